"""Element-wise maps and folds over pieces, slab by slab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...expr import Expr, IndexValue, Inside, Read, walk
from ..device import Runner, Stored, in_order
from .evaluate import Compiler, Kernel
from .folding import BOOL, Array, Reduction, round_into
from .pieces import Piece, guarded, masked, resolve
from .scratch import Scratch
from .views import Slices, slab_shape, slabs, strided, within

# Points per slab: temporaries of a slab stay in the second-level cache, and calls are long enough to hide what they
# cost.
SLAB_POINTS = 1 << 16


@dataclass(frozen=True)
class Context:
    """What binding a task to memory needs: the operands, the accumulator of its floats, and scratch memory.

    lenient: elements that are not stored read as whatever is there, because what is made of them is masked later.
    """

    stored: Mapping[str, Stored]
    floating: np.dtype[Any]
    scratch: Scratch
    lenient: bool = False

    def compiler(self, piece: Piece) -> Compiler:
        return Compiler(piece.dims, self.stored, piece.where, lenient=self.lenient)


def memory_order(piece: Piece, views: Sequence[Array]) -> list[int]:
    """Axes of the piece from far apart in memory to close together, going by the views."""
    return sorted(range(len(piece.dims)), key=lambda axis: (-sum(abs(view.strides[axis]) for view in views), axis))


def _views(piece: Piece, stored: Mapping[str, Stored]) -> list[Array]:
    found = (
        strided(stored[n.tensor], n.index, piece.dims) for n in walk(piece.body) if isinstance(n, Read) and not n.guard
    )
    return [view for view in found if view is not None]


# -- maps --------------------------------------------------------------------------------------------------------


def bind_map(piece: Piece, context: Context, out: Stored) -> Runner:
    """``out[write] = body`` at every point of a piece without reduction."""
    names = piece.names
    return in_order([_bind_plain_map(part, context, out) for part in resolve(piece, names)])


def _bind_plain_map(piece: Piece, context: Context, out: Stored) -> Runner:
    view = strided(out, piece.write, piece.dims)
    piece = replace(piece, body=guarded(piece.body, piece.where))
    if view is None or piece.where or view.shape != piece.shape:
        return _bind_scatter(piece, context, out)
    with context.scratch.frame():
        kernel = context.compiler(piece).finish(piece.body, view)
        parts = slabs(piece.shape, memory_order(piece, [view]), SLAB_POINTS)
        kernel.prepare({slab_shape(part) for part in parts}, context.scratch)

    def run() -> None:
        for part in parts:
            kernel.at(part)

    return run


def _bind_scatter(piece: Piece, context: Context, out: Stored) -> Runner:
    """A map whose writes are masked or not affine: values and positions are computed, then assigned."""
    parts = slabs(piece.shape, range(len(piece.dims)), SLAB_POINTS)
    shapes = {slab_shape(part) for part in parts}
    narrow = np.empty((), out.array.dtype).dtype
    # A read of the output at the written element touches its position, computed as for any gather.
    place = Stored(np.arange(out.array.size).reshape(out.array.shape), out.grid)
    target = Read("output", piece.write, piece.where, -1)
    with context.scratch.frame():
        values = context.compiler(piece).finish(piece.body)
        spots = Compiler(piece.dims, {"output": place}).finish(target)
        values.prepare(shapes, context.scratch)
        spots.prepare(shapes, context.scratch)
    flat = out.array.reshape(-1)

    def run() -> None:
        for part in parts:
            shape = slab_shape(part)
            where = np.broadcast_to(np.asarray(spots.at(part)), shape)
            rounded = np.empty(shape, narrow)
            round_into(values.at(part), rounded)
            chosen = where >= 0
            flat[where[chosen]] = rounded[chosen]

    return run


# -- folds -------------------------------------------------------------------------------------------------------


@dataclass
class _Part:
    """One piece of a fold's points: its kernel, the axes it folds and the slabs of those."""

    kernel: Kernel
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    slabs: list[Slices]


class Fold:
    """``out[write] = fold of body`` over a tile, generic: evaluate a slab, reduce it, combine."""

    def __init__(self, tile: Piece, context: Context, out: Stored, fold: Reduction, accumulate: bool) -> None:
        self.ufunc, self.identity, self.accumulate = fold.ufunc, fold.identity, accumulate
        self.kept = tuple(dim for dim in tile.dims if dim[0] not in tile.reduce)
        self.acc_dtype = fold.accumulator
        self.context, self.out = context, out
        view = strided(out, tile.write, self.kept)
        assert view is not None, "bind_fold gives the generic fold an affine target"
        self.view = view
        body = masked(tile.body, tile.where, self.identity)
        pieces = resolve(replace(tile, body=body, where=()), tile.reduce)
        self.block = self._block(tile, pieces)
        with context.scratch.frame():
            self.tiles = list(_blocked([n for _, n in self.kept], self.block))
            self.acc = context.scratch.take(self.block, self.acc_dtype)
            self.partial = context.scratch.take(self.block, self.acc_dtype)
            self.parts = [self._part(piece) for piece in pieces]

    def _block(self, tile: Piece, pieces: Sequence[Piece]) -> tuple[int, ...]:
        """Extents of the slabs of the output: whole along the dimensions that are close in memory."""
        piece = pieces[0] if pieces else tile
        order = memory_order(piece, _views(piece, self.context.stored))
        found = slabs(piece.shape, order, SLAB_POINTS)
        lengths = dict(zip(piece.names, slab_shape(found[0]) if found else piece.shape, strict=True))
        return tuple(lengths[name] for name, _ in self.kept)

    def _part(self, piece: Piece) -> _Part:
        kernel = self.context.compiler(piece).finish(piece.body)
        axes = tuple(k for k, name in enumerate(piece.names) if name in piece.reduce)
        inner = [piece.shape[k] for k in axes]
        order = [axes.index(k) for k in memory_order(piece, _views(piece, self.context.stored)) if k in axes]
        cuts = slabs(inner, order, SLAB_POINTS // max(1, prod(self.block)))
        full = {slab_shape(self._place(piece.shape, axes, tile, cut)) for tile in self.tiles for cut in cuts}
        kernel.prepare(full, self.context.scratch)
        return _Part(kernel, piece.shape, axes, cuts)

    @staticmethod
    def _place(shape: tuple[int, ...], axes: tuple[int, ...], tile: Slices, cut: Slices) -> Slices:
        """A slab of the output and one of the folded dimensions, as a slab of the piece."""
        kept, folded = iter(tile), iter(cut)
        return tuple(next(folded) if k in axes else next(kept) for k in range(len(shape)))

    def __call__(self) -> None:
        for tile in self.tiles:
            target = within(self.view, tile)
            direct = target.dtype == self.acc_dtype
            shape = slab_shape(tile)
            acc = target if direct else _leading(self.acc, shape)
            started = self.accumulate
            if started and not direct:
                np.copyto(acc, target)
            for part in self.parts:
                for cut in part.slabs:
                    started = self._fold(part, tile, cut, acc, started)
            if not started:
                acc[...] = self.identity
            if not direct:
                round_into(acc, target)

    def _fold(self, part: _Part, tile: Slices, cut: Slices, acc: Array, started: bool) -> bool:
        slab = self._place(part.shape, part.axes, tile, cut)
        value = np.broadcast_to(np.asarray(part.kernel.at(slab)), slab_shape(slab))
        if not started:
            self._reduce(value, part.axes, acc)
            return True
        partial = _leading(self.partial, acc.shape)
        self._reduce(value, part.axes, partial)
        self.ufunc(acc, partial, out=acc)
        return True

    def _reduce(self, value: Array, axes: tuple[int, ...], out: Array) -> None:
        dtype = None if out.dtype == BOOL else out.dtype
        if value.dtype != out.dtype and dtype is not None:
            value = value.astype(dtype)
        self.ufunc.reduce(value, axis=axes, dtype=dtype, out=out)


def _leading(array: Array, shape: tuple[int, ...]) -> Array:
    return array.reshape(-1)[: prod(shape)].reshape(shape)


def _blocked(shape: Sequence[int], block: Sequence[int]) -> list[Slices]:
    found: list[Slices] = [()]
    for n, b in zip(shape, block, strict=True):
        found = [(*left, slice(at, min(at + b, n))) for left in found for at in range(0, n, b)]
    return found


def depends_on(expr: Expr) -> frozenset[str]:
    """The dimensions that an expression's value may vary along."""
    names: set[str] = set()
    for node in walk(expr):
        if isinstance(node, Read):
            names.update(*(index.dims for index in node.index), *(bound.expr.dims for bound in node.guard))
        elif isinstance(node, IndexValue):
            names |= node.index.dims
        elif isinstance(node, Inside):
            names.update(*(bound.expr.dims for bound in node.bounds))
    return frozenset(names)
