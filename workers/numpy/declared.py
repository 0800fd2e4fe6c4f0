"""Block kernels that are declared in one place, by a function of NumPy arrays (`tapestry.block`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...blocks import BLOCKS
from ...dtypes import DTYPES, numpy_dtype
from ...expr import MONOIDS, Affine, Call, Expr, Read, depends_on
from ...program import Block
from ...space import Grid, IntSet
from ..device import Runner, Stored, in_order
from .folding import Array, round_into
from .maps import Context, bind_map
from .pieces import Piece
from .records import combined, state_of, store_records
from .views import strided


def bind_declared(block: Block, boxes: Sequence[Piece], context: Context, out: Stored) -> list[Runner]:
    """The first piece of a group stores what it makes, the others are folded into that."""
    found = []
    for piece in boxes:
        with context.scratch.frame():  # pieces run one after another, so they share this memory
            found.append(_Call(block, piece, context, out, first=piece is boxes[0]))
    return list(found)


@dataclass(frozen=True)
class Sides:
    """The dimensions of a piece by what they are to its kernel."""

    kept: tuple[tuple[str, int], ...]
    made: tuple[tuple[str, int], ...]
    folded: tuple[tuple[str, int], ...]

    @staticmethod
    def of(block: Block, piece: Piece) -> Sides:
        whole = len(piece.dims) - BLOCKS[block.kernel].uncut
        folded = tuple(dim for dim in piece.dims if dim[0] in piece.reduce)
        return Sides(tuple(dim for dim in piece.dims[:whole] if dim not in folded), piece.dims[whole:], folded)


class _Call:
    """Operands copied to dense blocks, then the kernel's function."""

    def __init__(self, block: Block, piece: Piece, context: Context, out: Stored, *, first: bool) -> None:
        entry = BLOCKS[block.kernel]
        assert entry.bodies is not None
        assert isinstance(piece.body, Call)
        self.function, self.attributes = entry.bodies.numpy, block.attrs
        self.monoid = None if entry.monoid is None or first else MONOIDS[entry.monoid]
        self.sides = Sides.of(block, piece)
        # What an operand depends on is said by the operation: in a piece, dimensions of one element are gone.
        sides = zip(piece.body.args, block.reads, strict=True)
        packed = [self._packed(piece, read, whole, context) for read, whole in sides]
        self.packing = in_order([run for run, _ in packed])
        self.operands = [array for _, array in packed]
        self._result(piece, context, out)

    def _packed(self, piece: Piece, read: Expr, whole: Read, context: Context) -> tuple[Runner, Array]:
        """What copies an operand, and where to: [kept ..., folded ..., made ...], as `tapestry.blocks.Bodies` says."""
        own, dtype = depends_on(whole), piece.dtypes[whole.tensor]
        inner = [dim for dim in (*self.sides.folded, *self.sides.made) if dim[0] in own]
        dims = tuple(dim if dim[0] in own else (dim[0], 1) for dim in (*self.sides.kept, *inner))
        dense = context.scratch.take([n for _, n in dims], numpy_dtype(DTYPES[dtype].compute))
        return bind_map(_copied(piece, dims, read), context, _whole(dense)), dense

    def _result(self, piece: Piece, context: Context, out: Stored) -> None:
        """Where the result goes: a view of the output, or a dense array that is copied there."""
        dims = (*self.sides.kept, *self.sides.made)
        view = strided(out, piece.write, dims)
        self.after: Runner = in_order([])
        if view is not None:
            self.target = view
            return
        assert self.monoid is None, "a record is one stride"
        self.target = context.scratch.take([n for _, n in dims], out.array.dtype)
        made = Read("'made", tuple(Affine.dim(name) for name, _ in dims))
        stored = replace(piece, dims=dims, reduce=frozenset(), body=made, where=())
        self.after = bind_map(stored, context.reading(made=_whole(self.target)), out)

    def __call__(self) -> None:
        self.packing()
        found: Any = np.asarray(self.function(*self.operands, **self.attributes))
        found = np.broadcast_to(found, self.target.shape)
        if self.monoid is None:
            round_into(found, self.target)
        else:
            total, more = (state_of(self.monoid, states) for states in (self.target, found))
            store_records(self.monoid, combined(self.monoid, total, more), self.target)
        self.after()


def _copied(piece: Piece, dims: tuple[tuple[str, int], ...], read: Expr) -> Piece:
    write = tuple(Affine.dim(name) if n > 1 else Affine() for name, n in dims)
    return replace(piece, dims=dims, reduce=frozenset(), body=read, where=(), write=write)


def _whole(array: Array) -> Stored:
    return Stored(array, Grid(tuple(IntSet.interval(0, n) for n in array.shape)))
