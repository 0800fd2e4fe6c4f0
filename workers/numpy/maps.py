"""Element-wise maps over pieces, slab by slab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...expr import Read, walk
from ..device import Runner, Stored, in_order
from .cutting import resolve
from .evaluate import Compiler
from .folding import Array, round_into
from .pieces import Piece, guarded
from .scratch import Scratch
from .views import slab_shape, slabs, strided

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

    def reading(self, **stored: Stored) -> Context:
        """The context in which further arrays can be read, by their name behind a quotation mark."""
        return replace(self, stored={**self.stored, **{f"'{name}": held for name, held in stored.items()}})

    def compiler(self, piece: Piece) -> Compiler:
        return Compiler(piece.dims, self.stored, piece.where, lenient=self.lenient)


def memory_order(piece: Piece, views: Sequence[Array]) -> list[int]:
    """Axes of the piece from far apart in memory to close together, going by the views."""
    return sorted(range(len(piece.dims)), key=lambda axis: (-sum(abs(view.strides[axis]) for view in views), axis))


def views_of(piece: Piece, stored: Mapping[str, Stored]) -> list[Array]:
    found = (
        strided(stored[n.tensor], n.index, piece.dims) for n in walk(piece.body) if isinstance(n, Read) and not n.guard
    )
    return [view for view in found if view is not None]


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
