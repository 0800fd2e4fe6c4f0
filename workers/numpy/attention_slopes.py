"""The slopes of attention: of queries, of keys or of values, block by block, scores never stored.

    p = exp(scale * q . k - largest) / total       dx = scale p (slope . v - slope . result)
    dq = sum over keys of dx k      dk = sum over queries of dx q      dv = sum over queries of p slope

Formulas: Dao et al., "FlashAttention" (2022), appendix B.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ...expr import Affine, Bound, Call, Read, depends_on
from ...program import Block
from ...space import Grid, IntSet
from ..device import Runner, Stored, in_order
from .attention import KEYS, QUERIES, fixed, packed, pairs_seen, row_dim
from .folding import Array
from .maps import Context, bind_map
from .pieces import Piece


@dataclass(frozen=True)
class _Roles:
    """The dimensions of a piece: those of a row of queries and of a key, what the kernel makes, and all others."""

    row: str | None
    key: str
    column: str
    heads: tuple[str, ...]
    side: str  # of what slopes are made: q, k or v

    @staticmethod
    def of(block: Block, piece: Piece) -> _Roles:
        query, keys = (depends_on(read) for read in block.reads[:2])
        column = piece.names[-1]
        key = next(name for name in piece.names if name in keys - query)
        rows = [name for name in piece.names if name in query - keys and name != column]
        row = row_dim(piece, rows)
        heads = tuple(name for name in piece.names if name not in (row, key, column))
        return _Roles(row, key, column, heads, block.kernel[-1])


def bind_slopes(block: Block, boxes: Sequence[Piece], context: Context, out: Stored) -> list[Runner]:
    """The slopes of the pieces of a task that share their output, added up before they are rounded."""
    kept = tuple(dim for dim in boxes[0].dims if dim[0] not in boxes[0].reduce)
    with context.scratch.frame():
        total = context.scratch.take([n for _, n in kept], context.floating)
        runs: list[Runner] = [lambda: total.fill(0)]
        for box in boxes:
            roles = _Roles.of(block, box)
            for at in product(*(range(box.ranges[name][1]) for name in roles.heads)):
                runs.append(_Head(block, roles, box, dict(zip(roles.heads, at, strict=True)), context, total))
        made = Read("'made", tuple(Affine.dim(name) if n > 1 else Affine() for name, n in kept))
        stored = replace(boxes[0], dims=kept, reduce=frozenset(), body=made, where=())
        source = Stored(total, Grid(tuple(IntSet.interval(0, n) for _, n in kept)))
        runs.append(bind_map(stored, context.reading(made=source), out))
    return [in_order(runs)]


class _Head:
    """One head of queries: operands packed, then blocks of its rows against blocks of keys."""

    def __init__(
        self, block: Block, roles: _Roles, whole: Piece, at: dict[str, int], context: Context, total: Array
    ) -> None:
        piece = fixed(whole, at)
        kept = [name for name, _ in whole.dims if name not in whole.reduce]
        self.total = total[tuple(at.get(name, slice(None)) for name in kept)]
        self.scale, self.roles = float(block.attrs["scale"]), roles
        self.rows = piece.ranges[roles.row][1] if roles.row else 1
        self.keys, self.where, self.empty = piece.ranges[roles.key][1], piece.where, piece.empty
        if roles.row is None and roles.side == "q":
            self.total = self.total[np.newaxis]
        assert isinstance(piece.body, Call)
        row, key = (roles.row, roles.column), (roles.key, roles.column)
        sides = (row, key, key, row, row, (roles.row, None), (roles.row, None))
        self.packing: list[Runner] = []
        with context.scratch.frame():  # heads run one after another, so they share this memory
            self.sides = [
                packed(piece, read, names, context, self.packing)
                for read, names in zip(piece.body.args, sides, strict=True)
            ]

    def __call__(self) -> None:
        if self.empty:
            return
        for runner in self.packing:
            runner()
        for lo in range(0, self.rows, QUERIES):
            for start in range(0, self.keys, KEYS):
                rows, keys = slice(lo, min(lo + QUERIES, self.rows)), slice(start, min(start + KEYS, self.keys))
                seen = self._seen(rows, keys)
                if seen is not False:
                    self._add(rows, keys, seen)

    def _seen(self, rows: slice, keys: slice) -> Array | bool:
        where: tuple[Bound, ...] = self.where
        return pairs_seen(where, (self.roles.row, rows.start, rows.stop), (self.roles.key, keys.start, keys.stop))

    def _add(self, rows: slice, keys: slice, seen: Array | bool) -> None:
        """What a block of rows and keys adds. What is in no visible pair may not even be stored."""
        shape = rows.stop - rows.start, keys.stop - keys.start
        pairs = np.broadcast_to(seen, shape)
        mine, theirs = np.flatnonzero(pairs.any(axis=1)), np.flatnonzero(pairs.any(axis=0))
        if not len(mine):
            return
        pairs, mine, theirs = pairs[np.ix_(mine, theirs)], mine + rows.start, theirs + keys.start
        q, result, slope, total, largest = (self.sides[k][mine] for k in (0, 3, 4, 5, 6))
        k, v = self.sides[1][theirs], self.sides[2][theirs]
        x = np.where(pairs, self.scale * (q @ k.T) - largest, -np.inf)
        p = np.exp(x) / total
        if self.roles.side == "v":
            self.total[theirs] += p.T @ slope
            return
        dx = self.scale * p * (slope @ v.T - (slope * result).sum(axis=1, keepdims=True))
        if self.roles.side == "k":
            self.total[theirs] += dx.T @ q
        else:
            self.total[mine] += dx @ k
