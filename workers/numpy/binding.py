"""The NumPy device: one compute task bound to the memory of its operands, then run as often as wanted.

Binding does the thinking: the shard is cut into pieces (see `pieces`), each piece becomes strided views and NumPy
calls. Sums of products go to BLAS, small windows are written out, other folds go slab by slab. Results depend on the
operands' values and the shard alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, product
from math import prod

import numpy as np

from ...errors import TapestryError
from ...expr import Affine, Call, Const, Expr, Read, walk
from ...program import Block, Operation
from ...space import Box, Grid, Region
from ..device import Evaluation, Runner, Stored, in_order
from .attention import bind_attention, identity_state
from .contraction import bind_contraction, extent, match
from .evaluate import DOUBLE, SINGLE
from .folding import FOLD_FUNCTION, identity_of
from .loops import Context, Fold, accumulator, bind_map, fold_body
from .padding import paddable, padded
from .pieces import Piece, masked, resolve, unrolled, whole
from .scratch import Scratch
from .views import slabs, strided

# A fold is written out when it is a window (its dimensions share an axis with others) of at most this many taps,
# or has at most FEW taps; and only while the expression stays small.
TAPS, FEW, NODES = 64, 8, 1500
# Windows of more taps than PADDED read a padded copy, of parts of the output of about PADDED_POINTS elements.
PADDED, PADDED_POINTS = 16, 1 << 20
# Rows and columns from which a sum of products is worth a matrix product.
MATRIX = 4


def bind_compute(task: Evaluation, scratch: Scratch) -> Runner:
    """A closure that evaluates the task's operation at its points."""
    dtypes = {tensor.name: tensor.dtype for tensor in task.program.tensors}
    double = any(dtypes[name] == "f64" for name in (*task.op.operands, task.op.output))
    context = Context(task.reads, DOUBLE if double else SINGLE, scratch)
    return in_order(_Binder(task.op, dtypes, context, task.write).bind(task.points))


class _Binder:
    """Binds the grids of a shard one by one."""

    def __init__(self, op: Operation, dtypes: Mapping[str, str], context: Context, out: Stored) -> None:
        self.op, self.dtypes, self.context, self.out = op, dtypes, context, out
        self.dtype = dtypes[op.output]
        self.monoid = op.monoid
        body: Expr = Call(op.body.kernel, op.body.reads) if isinstance(op.body, Block) else op.body
        dims = tuple((dim.name, dim.extent) for dim in op.dims)
        self.piece = Piece(dims, frozenset(op.reduce_dims), op.write, body, op.where, dtypes)

    def bind(self, points: Region) -> list[Runner]:
        grids = [self._groups(grid) for grid in points.grids]
        if self.monoid is None:
            return [bind_map(box, self.context, self.out) for groups in grids for group in groups for box in group]
        if len(grids) > 1 and self._overlapping(points):
            grids = [[[box for groups in grids for group in groups for box in group]]]
        return [runner for groups in grids for group in groups for runner in self._group(group)]

    def _groups(self, grid: Grid) -> list[list[Piece]]:
        """Boxes of a grid, those that fold into the same elements together."""
        names = [dim.name for dim in self.op.dims]
        runs = dict(zip(names, (axis.runs for axis in grid.axes), strict=True))
        kept, folded = [n for n in names if n not in self.piece.reduce], [n for n in names if n in self.piece.reduce]
        inner = [dict(zip(folded, pick, strict=True)) for pick in product(*(runs[name] for name in folded))]
        outer = [dict(zip(kept, pick, strict=True)) for pick in product(*(runs[name] for name in kept))]
        return [[whole(self.piece, {**a, **b}) for b in inner] for a in outer]

    def _overlapping(self, points: Region) -> bool:
        """Whether two grids fold into a common element."""
        kept = [k for k, dim in enumerate(self.op.dims) if dim.name not in self.piece.reduce]
        shadows = [Grid(tuple(grid.axes[k] for k in kept)) for grid in points.grids]
        return any(a & b for a, b in combinations(shadows, 2))

    # -- folds ---------------------------------------------------------------------------------------------------

    def _group(self, boxes: list[Piece]) -> list[Runner]:
        """Boxes that share their output: one is folded at once; several are added up in the accumulator's type."""
        assert self.monoid is not None
        if self.monoid == "online_softmax":
            return self._states(boxes)
        if len(boxes) == 1:
            return self._fold(boxes[0], self.out, accumulate=False)
        wide = accumulator(self.monoid, self.out.array.dtype, self.context.floating)
        narrow = wide != self.out.array.dtype
        total = Stored(np.empty(self.out.array.shape, wide), self.out.grid) if narrow else self.out
        neutral = Const(identity_of(self.monoid, self.dtype))
        runners = [bind_map(_kept(box, neutral), self.context, total) for box in boxes]
        runners += [runner for box in boxes for runner in self._fold(box, total, accumulate=True)]
        if narrow:
            runners += [bind_map(_kept(box, Read("'out", box.write)), self._with(total), self.out) for box in boxes]
        return runners

    def _with(self, stored: Stored) -> Context:
        """The context in which ``'out`` can be read."""
        return replace(self.context, stored={**self.context.stored, "'out": stored})

    def _states(self, boxes: list[Piece]) -> list[Runner]:
        if not isinstance(self.op.body, Block) or self.op.body.kernel != "attention":
            raise TapestryError("online_softmax folds the states of attention only", where=self.op.name)
        scale = float(self.op.body.attrs["scale"])
        cleared = [identity_state(box, self.context, self.out) for box in boxes]
        return [*cleared, *(bind_attention(box, scale, self.context, self.out) for box in boxes)]

    def _fold(self, box: Piece, out: Stored, *, accumulate: bool) -> list[Runner]:
        """Tiles of the output on which every bound of kept dimensions is decided, each by the quickest way."""
        assert self.monoid is not None
        neutral = identity_of(self.monoid, self.dtype)
        body = fold_body(masked(box.body, box.where, neutral), self.monoid, self.dtype, box.dtypes)
        piece = replace(box, body=body, where=())
        return [self._tile(tile, out, accumulate) for tile in resolve(piece, set(piece.names) - piece.reduce)]

    def _tile(self, tile: Piece, out: Stored, accumulate: bool) -> Runner:
        assert self.monoid is not None
        found = match(tile, self.monoid)
        if found is not None and min(extent(tile, found.rows), extent(tile, found.columns)) >= MATRIX:
            product_of = bind_contraction(tile, found, self.context, out, accumulate)
            if product_of is not None:
                return product_of
        if _worth_unrolling(tile):
            return self._unrolled(tile, out, accumulate)
        if found is not None and max(extent(tile, found.rows), extent(tile, found.columns)) >= MATRIX:
            product_of = bind_contraction(tile, found, self.context, out, accumulate)
            if product_of is not None:
                return product_of
        return self._generic(tile, out, accumulate)

    def _unrolled(self, tile: Piece, out: Stored, accumulate: bool) -> Runner:
        """The fold written out; a wide guarded window reads padded copies."""
        if _taps(tile) > PADDED and paddable(tile):
            return in_order([run for part in _slabs(tile) for run in self._padded(part, out, accumulate)])
        return self._written_out(tile, self.context, out, accumulate)

    def _padded(self, tile: Piece, out: Stored, accumulate: bool) -> list[Runner]:
        with self.context.scratch.frame():
            piece, context, runners = padded(tile, self.context)
            return [*runners, self._written_out(piece, context, out, accumulate)]

    def _written_out(self, tile: Piece, context: Context, out: Stored, accumulate: bool) -> Runner:
        assert self.monoid is not None
        function = FOLD_FUNCTION[self.monoid]
        piece = unrolled(tile, function, identity_of(self.monoid, self.dtype))
        if not accumulate:
            return bind_map(piece, context, out)
        body = Call(function, (Read("'out", piece.write), piece.body))
        return bind_map(replace(piece, body=body), replace(context, stored={**context.stored, "'out": out}), out)

    def _generic(self, tile: Piece, out: Stored, accumulate: bool) -> Runner:
        assert self.monoid is not None
        kept = tuple(dim for dim in tile.dims if dim[0] not in tile.reduce)
        if strided(out, tile.write, kept) is not None:
            return Fold(tile, self.context, out, self.monoid, self.dtype, accumulate)
        # The output's elements are not a strided view: fold into a dense array, then scatter that.
        wide = accumulator(self.monoid, out.array.dtype, self.context.floating)
        dense = Stored(np.empty([n for _, n in kept], wide), Box.of_shape([n for _, n in kept]).grid())
        plain = tuple(Affine.dim(name) if n > 1 else Affine() for name, n in kept)
        fold = Fold(replace(tile, write=plain), self.context, dense, self.monoid, self.dtype, False)
        value: Expr = Read("'out", plain)
        context = self._with(dense)
        if accumulate:
            context = replace(context, stored={**context.stored, "'total": out})
            value = Call(FOLD_FUNCTION[self.monoid], (Read("'total", tile.write), value))
        return in_order([fold, bind_map(_kept(tile, value), context, out)])


def _kept(piece: Piece, body: Expr) -> Piece:
    """A map over the dimensions that the piece does not fold."""
    dims = tuple(dim for dim in piece.dims if dim[0] not in piece.reduce)
    dtypes = {**piece.dtypes, "'out": "f32", "'total": "f32"}
    return replace(piece, dims=dims, reduce=frozenset(), body=body, where=(), dtypes=dtypes)


def _taps(tile: Piece) -> int:
    return prod(n for name, n in tile.dims if name in tile.reduce)


def _slabs(tile: Piece) -> list[Piece]:
    """Parts of a tile of at most about PADDED_POINTS elements of the output."""
    kept = [(name, n) for name, n in tile.dims if name not in tile.reduce]
    parts = []
    for cuts in slabs([n for _, n in kept], range(len(kept)), PADDED_POINTS):
        part = tile
        for (name, n), cut in zip(kept, cuts, strict=True):
            part = part if (cut.start, cut.stop) == (0, n) else part.part(name, cut.start, cut.stop)
        parts.append(part)
    return parts


def _worth_unrolling(tile: Piece) -> bool:
    taps = _taps(tile)
    limit = TAPS if _window(tile) else FEW
    return taps <= limit and taps * sum(1 for _ in walk(tile.body)) <= NODES


def _window(tile: Piece) -> bool:
    """Whether a folded dimension shares an axis of a read with a kept one."""
    for node in walk(tile.body):
        for index in node.index if isinstance(node, Read) else ():
            if index.dims & tile.reduce and index.dims - tile.reduce:
                return True
    return False
