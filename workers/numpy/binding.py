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

from ...arithmetic import explicit
from ...expr import MONOIDS, Affine, Call, Cast, Const, Expr, Read, walk
from ...expr.monoids import accumulator_dtype
from ...program import Block, Operation
from ...result_type import result_dtype
from ...space import Box, Grid, Region
from ..device import Evaluation, Runner, Stored, in_order
from .block_kernels import BLOCKS
from .contraction import bind_contraction, extent, match
from .folding import DOUBLE, SINGLE, Reduction, compute_dtype
from .loops import Context, Fold, bind_map
from .padding import paddable, padded
from .pieces import Piece, masked, resolve, unrolled, whole
from .records import RecordFold
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
    body = task.op.body
    value = dtypes[task.op.output] if isinstance(body, Block) else result_dtype(body, dtypes)
    floating = compute_dtype(accumulator_dtype(value, dtypes[task.op.output]))
    context = Context(task.reads, SINGLE if floating.kind != "f" else floating, scratch)
    return in_order(_Binder(task.op, value, dtypes, context, task.write).bind(task.points))


class _Binder:
    """Binds the grids of a shard one by one."""

    def __init__(self, op: Operation, value: str, dtypes: Mapping[str, str], context: Context, out: Stored) -> None:
        self.op, self.dtypes, self.context, self.out = op, dtypes, context, out
        self.monoid = None if op.monoid is None else MONOIDS[op.monoid]
        self.reduction = None if self.monoid is None else Reduction.of(self.monoid, value, dtypes[op.output])
        self.records = RecordFold(op, value, context, out, dtypes[op.output])
        dims = tuple((dim.name, dim.extent) for dim in op.dims)
        self.piece = Piece(dims, frozenset(op.reduce_dims), op.write, self._body(), op.where, dtypes)

    def _body(self) -> Expr:
        """What a point contributes: a value; of a block its reads, of a record its components, as a call of them."""
        if isinstance(self.op.body, Block):
            return Call(self.op.body.kernel, self.op.body.reads)
        body = explicit(self.op.body, self.dtypes)
        if self.monoid is None:
            return body
        lifts = self.records.lifts(body)
        return lifts[0] if self.reduction is not None else Call("'record", tuple(lifts))

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
        if isinstance(self.op.body, Block):
            return BLOCKS[self.op.body.kernel](self.op.body, boxes, self.context, self.out)
        if self.reduction is None:
            return [self.records.bind(boxes)]
        if len(boxes) == 1:
            return self._fold(boxes[0], self.reduction, self.out, accumulate=False)
        wide = self.reduction.accumulator
        narrow = wide != self.out.array.dtype
        total = Stored(np.empty(self.out.array.shape, wide), self.out.grid) if narrow else self.out
        neutral = Const(self.reduction.identity)
        runners = [bind_map(_kept(box, neutral), self.context, total) for box in boxes]
        runners += [runner for box in boxes for runner in self._fold(box, self.reduction, total, accumulate=True)]
        if narrow:
            runners += [bind_map(_kept(box, Read("'out", box.write)), self._with(total), self.out) for box in boxes]
        return runners

    def _with(self, stored: Stored) -> Context:
        """The context in which ``'out`` can be read."""
        return replace(self.context, stored={**self.context.stored, "'out": stored})

    def _fold(self, box: Piece, fold: Reduction, out: Stored, *, accumulate: bool) -> list[Runner]:
        """Tiles of the output on which every bound of kept dimensions is decided, each by the quickest way."""
        piece = replace(box, body=masked(box.body, box.where, fold.identity), where=())
        return [self._tile(tile, fold, out, accumulate) for tile in resolve(piece, set(piece.names) - piece.reduce)]

    def _tile(self, tile: Piece, fold: Reduction, out: Stored, accumulate: bool) -> Runner:
        found = match(tile, fold)
        if found is not None and min(extent(tile, found.rows), extent(tile, found.columns)) >= MATRIX:
            product_of = bind_contraction(tile, found, self.context, out, fold, accumulate)
            if product_of is not None:
                return product_of
        if _worth_unrolling(tile):
            return self._unrolled(tile, fold, out, accumulate)
        if found is not None and max(extent(tile, found.rows), extent(tile, found.columns)) >= MATRIX:
            product_of = bind_contraction(tile, found, self.context, out, fold, accumulate)
            if product_of is not None:
                return product_of
        return self._generic(tile, fold, out, accumulate)

    def _unrolled(self, tile: Piece, fold: Reduction, out: Stored, accumulate: bool) -> Runner:
        """The fold written out; a wide guarded window reads padded copies."""
        if _taps(tile) > PADDED and paddable(tile):
            return in_order([run for part in _slabs(tile) for run in self._padded(part, fold, out, accumulate)])
        return self._written_out(tile, fold, self.context, out, accumulate)

    def _padded(self, tile: Piece, fold: Reduction, out: Stored, accumulate: bool) -> list[Runner]:
        with self.context.scratch.frame():
            piece, context, runners = padded(tile, self.context)
            return [*runners, self._written_out(piece, fold, context, out, accumulate)]

    def _written_out(self, tile: Piece, fold: Reduction, context: Context, out: Stored, accumulate: bool) -> Runner:
        if fold.accumulator == DOUBLE:
            tile = replace(tile, body=Cast("f64", tile.body))
        piece = unrolled(tile, fold.function, fold.identity)
        if not accumulate:
            return bind_map(piece, context, out)
        body = Call(fold.function, (Read("'out", piece.write), piece.body))
        return bind_map(replace(piece, body=body), replace(context, stored={**context.stored, "'out": out}), out)

    def _generic(self, tile: Piece, fold: Reduction, out: Stored, accumulate: bool) -> Runner:
        kept = tuple(dim for dim in tile.dims if dim[0] not in tile.reduce)
        if strided(out, tile.write, kept) is not None:
            return Fold(tile, self.context, out, fold, accumulate)
        # The output's elements are not a strided view: fold into a dense array, then scatter that.
        dense = Stored(np.empty([n for _, n in kept], fold.accumulator), Box.of_shape([n for _, n in kept]).grid())
        plain = tuple(Affine.dim(name) if n > 1 else Affine() for name, n in kept)
        folding = Fold(replace(tile, write=plain), self.context, dense, fold, False)
        value: Expr = Read("'out", plain)
        context = self._with(dense)
        if accumulate:
            context = replace(context, stored={**context.stored, "'total": out})
            value = Call(fold.function, (Read("'total", tile.write), value))
        return in_order([folding, bind_map(_kept(tile, value), context, out)])


def _kept(piece: Piece, body: Expr) -> Piece:
    """A map over the dimensions that the piece does not fold."""
    dims = tuple(dim for dim in piece.dims if dim[0] not in piece.reduce)
    dtypes = {**piece.dtypes, "'out": "f32", "'total": "f32"}  # never missed, so that their dtypes do not matter
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
