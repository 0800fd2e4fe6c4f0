"""The attention kernel: softmax statistics (o, l, m) over keys, block by block, scores never stored.

Formulas: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); blocks over keys as in Dao et
al., "FlashAttention" (2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from ...errors import TapestryError
from ...expr import MONOIDS, Affine, Bound, Call, Const, Expr, depends_on
from ...space import Grid, IntSet
from ..device import Runner, Stored, in_order
from .folding import Array
from .maps import Context, bind_map
from .pieces import Piece, Simplify
from .records import combined, state_of, store_records
from .views import strided

QUERIES, KEYS = 128, 512
STATE = MONOIDS["online_softmax"]


def fold_states(total: Array, more: Array) -> None:
    """``total`` = fold of two arrays of states [..., (o, l, m)]."""
    store_records(STATE, combined(STATE, state_of(STATE, total), state_of(STATE, more)), total)


def identity_state(piece: Piece, context: Context, out: Stored) -> Runner:
    """Set the states of a piece to what no key gives: o = l = 0, m = -inf."""
    state, width = piece.dims[-1]
    kept = tuple(dim for dim in piece.dims if dim[0] not in piece.reduce)
    plain = replace(piece, dims=kept, reduce=frozenset(), where=(), body=Const(0.0))
    sums, largest = (
        plain.part(state, 0, width - 1),
        replace(plain.part(state, width - 1, width), body=Const(float("-inf"))),
    )
    return in_order([bind_map(part, context, out) for part in (sums, largest)])


def bind_attention(piece: Piece, scale: float, context: Context, out: Stored) -> Runner:
    """Fold the keys of a piece into the states that ``out`` holds. ``body`` is a call of the three reads q, k, v."""
    if len(piece.dims) < 2 or piece.reduce != {piece.dims[-2][0]}:
        raise TapestryError("attention folds its last dimension but one and keeps the last whole")
    query = _query(piece)
    rest = [name for name in piece.names[:-2] if name != query]
    heads = product(*(range(piece.ranges[name][1]) for name in rest))
    with context.scratch.frame():
        return in_order([_Head(piece, dict(zip(rest, at, strict=True)), query, scale, context, out) for at in heads])


def _query(piece: Piece) -> str | None:
    """The dimension to take rows along: one that keys do not depend on."""
    assert isinstance(piece.body, Call)
    reads = piece.body.args[1:]
    return row_dim(piece, [name for name in piece.names[:-2] if not any(name in depends_on(read) for read in reads)])


def row_dim(piece: Piece, among: Sequence[str]) -> str | None:
    """Of some dimensions the one to take rows along: one that the domain couples with others, else the longest."""
    coupled = [name for name in among if any(name in bound.expr.dims for bound in piece.where)]
    return max(coupled or among, key=lambda name: piece.ranges[name][1], default=None)


def fixed(piece: Piece, at: dict[str, int]) -> Piece:
    """The piece with some dimensions set to a value and dropped."""
    dims = tuple(dim for dim in piece.dims if dim[0] not in at)
    values = {name: Affine.of(value) for name, value in at.items()}
    simplify = Simplify({name: (0, n) for name, n in dims}, values, piece.dtypes)
    return replace(
        piece,
        dims=dims,
        write=tuple(simplify.index(index) for index in piece.write),
        body=simplify.expr(piece.body),
        where=simplify.where(piece.where),
    )


def _trimmed(piece: Piece) -> Piece:
    """Only the keys that some row can see: bounds over all rows give an interval of keys."""
    key, keys = piece.dims[-2]
    lo, hi = 0, keys
    for bound in piece.where:
        c = bound.expr.coefficient(key)
        if abs(c) != 1 or not bound.expr.is_affine or piece.empty:
            continue
        low, high = (bound.expr - Affine(((key, c),))).bounds(piece.ranges)  # the rest lies in [low, high)
        above = None if bound.lo is None else bound.lo - (high - 1)  # c * key >= above
        below = None if bound.hi is None else bound.hi - low  # c * key < below
        if c < 0:
            above, below = (None if below is None else 1 - below), (None if above is None else 1 - above)
        lo, hi = max(lo, lo if above is None else above), min(hi, hi if below is None else below)
    return piece if (lo, hi) == (0, keys) or lo >= hi else piece.part(key, lo, hi)


class _Head:
    """All rows of one head: operands packed, then blocks of rows against blocks of keys."""

    def __init__(
        self, whole: Piece, at: dict[str, int], query: str | None, scale: float, context: Context, out: Stored
    ) -> None:
        piece = _trimmed(fixed(whole, at))
        self.scale, self.query, (self.key, self.keys) = scale, query, piece.dims[-2]
        self.rows = piece.ranges[query][1] if query else 1
        state, width = piece.dims[-1]
        self.where, self.empty = piece.where, piece.empty
        states = strided(out, piece.write, [dim for dim in piece.dims if dim[0] != self.key])
        assert states is not None, "a state's record is one stride"
        self.states = states if query else states[np.newaxis]
        narrow = piece.part(state, 0, width - 2)
        assert isinstance(narrow.body, Call)
        self.packing: list[Runner] = []
        with context.scratch.frame():  # heads run one after another, so they share this memory
            self.q, self.k, self.v = (
                packed(narrow, read, (name, state), context, self.packing)
                for read, name in zip(narrow.body.args, (query, self.key, self.key), strict=True)
            )

    def __call__(self) -> None:
        if self.empty:
            return
        for runner in self.packing:
            runner()
        np.multiply(self.q, self.scale, out=self.q)
        for start in range(0, self.rows, QUERIES):
            self._rows(start, min(start + QUERIES, self.rows))

    def _rows(self, lo: int, hi: int) -> None:
        state = np.zeros((hi - lo, self.states.shape[1]), self.q.dtype)
        state[:, -1] = -np.inf
        for start in range(0, self.keys, KEYS):
            stop = min(start + KEYS, self.keys)
            seen = pairs_seen(self.where, (self.query, lo, hi), (self.key, start, stop))
            if seen is not False:
                self._fold(state, lo, hi, start, stop, seen)
        fold_states(self.states[lo:hi], state)

    def _fold(self, state: Array, lo: int, hi: int, start: int, stop: int, visible: Array | bool) -> None:
        """One block: scores, new maximum, old sums scaled, new sums added."""
        k, v = self.k[start:stop], self.v[start:stop]
        if not isinstance(visible, bool):
            visible = np.broadcast_to(visible, (hi - lo, stop - start))
            seen = visible.any(axis=0)  # what no row sees may not even be stored
            k, v, visible = k[seen], v[seen], visible[:, seen]
            if not seen.any():
                return
        scores = self.q[lo:hi] @ k.T
        if not isinstance(visible, bool):
            scores[~visible] = -np.inf
        m = np.maximum(state[:, -1:], scores.max(axis=1, keepdims=True))
        finite = np.where(np.isneginf(m), scores.dtype.type(0), m)
        np.exp(np.subtract(scores, finite, out=scores), out=scores)
        state[:, :-1] *= np.exp(state[:, -1:] - finite)
        state[:, :-2] += scores @ v
        state[:, -2] += scores.sum(axis=1)
        state[:, -1:] = m


def packed(
    piece: Piece, read: Expr, names: tuple[str | None, str | None], context: Context, before: list[Runner]
) -> Array:
    """An operand as a dense array [rows or keys, head width] in the compute type, 1 long along what has no name. What
    copies it there is put ``before``.
    """
    dims = tuple((name, piece.ranges[name][1]) for name in names if name is not None)
    dense = context.scratch.take([n for _, n in dims], context.floating)
    part = replace(
        piece, dims=dims, reduce=frozenset(), body=read, where=(),
        write=tuple(Affine.dim(d) if n > 1 else Affine() for d, n in dims),
    )  # fmt: skip
    target = Stored(dense, Grid(tuple(IntSet.interval(0, n) for _, n in dims)))
    before.append(bind_map(part, replace(context, lenient=True), target))
    return dense.reshape([1 if name is None else piece.ranges[name][1] for name in names])


def pairs_seen(where: tuple[Bound, ...], rows: tuple[str | None, int, int], keys: tuple[str, int, int]) -> Array | bool:
    """Which (row, key) pairs of a block a domain holds; True or False where that is all or none. ``rows``, ``keys``:
    dimension, first, end.
    """
    ranges = {name: (lo, hi) for name, lo, hi in (keys, rows) if name}
    left: list[Bound] = []
    for bound in where:
        known = bound.decided(ranges)
        if known is False:
            return False
        if known is None:
            left.append(bound)
    return _mask(left, {name: np.arange(*span) for name, span in ranges.items()}, keys[0]) if left else True


def _mask(bounds: Sequence[Bound], values: dict[str, Array], key: str) -> Array:
    axes = {name: v[np.newaxis, :] if name == key else v[:, np.newaxis] for name, v in values.items()}
    held: Array = np.ones((1, 1), np.bool_)
    for bound in bounds:
        at = bound.expr.evaluate(axes)
        if bound.lo is not None:
            held = held & (at >= bound.lo)
        if bound.hi is not None:
            held = held & (at < bound.hi)
    return held
