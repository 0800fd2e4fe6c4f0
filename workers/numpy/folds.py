"""Folds over pieces of any kind: evaluate a slab, reduce it, combine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ..device import Stored
from .cutting import resolve
from .evaluate import Kernel
from .folding import BOOL, Array, Reduction, round_into
from .maps import SLAB_POINTS, Context, memory_order, views_of
from .pieces import Piece, masked
from .views import Slices, slab_shape, slabs, strided, within


@dataclass
class _Part:
    """One piece of a fold's points: its kernel, the axes it folds and the slabs of those."""

    kernel: Kernel
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    slabs: list[Slices]


class Folding:
    """``out[write] = fold of body`` over a tile, generic: evaluate a slab, reduce it, combine."""

    def __init__(self, tile: Piece, context: Context, out: Stored, fold: Reduction, accumulate: bool) -> None:
        self.ufunc, self.identity, self.accumulate = fold.ufunc, fold.identity, accumulate
        self.kept = tuple(dim for dim in tile.dims if dim[0] not in tile.reduce)
        self.acc_dtype = fold.accumulator
        self.context, self.out = context, out
        view = strided(out, tile.write, self.kept)
        assert view is not None, "a slab fold is chosen where the target is a strided view"
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
        order = memory_order(piece, views_of(piece, self.context.stored))
        found = slabs(piece.shape, order, SLAB_POINTS)
        lengths = dict(zip(piece.names, slab_shape(found[0]) if found else piece.shape, strict=True))
        return tuple(lengths[name] for name, _ in self.kept)

    def _part(self, piece: Piece) -> _Part:
        kernel = self.context.compiler(piece).finish(piece.body)
        axes = tuple(k for k, name in enumerate(piece.names) if name in piece.reduce)
        inner = [piece.shape[k] for k in axes]
        order = [axes.index(k) for k in memory_order(piece, views_of(piece, self.context.stored)) if k in axes]
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
