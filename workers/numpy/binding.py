"""Third pass, steps → runners: a compute task bound to the memory of its operands, then run as often as wanted.

Results depend on the operands' values and the shard alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

import numpy as np

from ...expr import Affine, Call, Cast, Expr, Read
from ...space import Box
from ..device import Evaluation, Runner, Stored, in_order
from ..lifting import over_records
from . import steps
from .block_kernels import bind_block
from .choosing import context_of, kept, steps_of
from .folding import DOUBLE
from .folds import Folding
from .maps import bind_map
from .padding import padded
from .pieces import Piece
from .scanning import results, scanning
from .scratch import Scratch
from .selecting import Selecting
from .shards import groups_of
from .unrolling import unrolled


def bind_compute(task: Evaluation, scratch: Scratch) -> Runner:
    """A closure that evaluates the task's operation at its points."""
    task = over_records(task)
    context = context_of(task, scratch)
    return in_order([bound(step) for group in groups_of(task) for step in steps_of(task, context, group)])


@singledispatch
def bound(step: steps.Step) -> Runner:
    """The runner of a step."""
    raise TypeError(f"nothing binds a {type(step).__name__}")


@bound.register
def _(step: steps.Mapped) -> Runner:
    return bind_map(step.piece, step.context, step.out)


@bound.register
def _(step: steps.BlockKernel) -> Runner:
    return in_order(bind_block(step.block, step.boxes, step.context, step.out))


@bound.register
def _(step: steps.Records) -> Runner:
    return step.fold.bind(step.boxes)


@bound.register
def _(step: steps.MatrixProduct) -> Runner:
    return step.contraction.bind()


@bound.register
def _(step: steps.SelectedFold) -> Runner:
    return Selecting(step)


@bound.register
def _(step: steps.WrittenOut) -> Runner:
    return _written_out(step)


@bound.register
def _(step: steps.PaddedWindow) -> Runner:
    with step.context.scratch.frame():
        piece, context, copies = padded(step.piece, step.context)
        return in_order([*copies, _written_out(replace(step, piece=piece, context=context))])


@bound.register
def _(step: steps.SlabFold) -> Runner:
    return Folding(step.piece, step.context, step.out, step.fold, step.accumulate)


@bound.register
def _(step: steps.ScatteredFold) -> Runner:
    piece = kept(step.piece, step.piece.body)
    dense = _dense(piece, step)
    folding = Folding(replace(step.piece, write=_plain(piece)), step.context, dense, step.fold, False)
    return in_order([folding, _put(piece, dense, step)])


@bound.register
def _(step: steps.ScannedFold) -> Runner:
    piece = results(step.piece, step.scan)
    dense = _dense(piece, step)
    run = scanning(step.piece, step.scan, step.context, step.fold, dense.array)
    return in_order([run, _put(kept(piece, piece.body), dense, step)])


def _dense(piece: Piece, step: steps.Fold) -> Stored:
    """An array for the results at the points of a piece, in the type that adds up."""
    return Stored(np.empty(piece.shape, step.fold.accumulator), Box.of_shape(piece.shape).grid())


def _plain(piece: Piece) -> tuple[Affine, ...]:
    return tuple(Affine.dim(name) if n > 1 else Affine() for name, n in piece.dims)


def _put(piece: Piece, dense: Stored, step: steps.Fold) -> Runner:
    """Results to where they belong, onto what is there if the step accumulates."""
    value: Expr = Read("'out", _plain(piece))
    context = step.context.reading(out=dense)
    if step.accumulate:
        context = context.reading(total=step.out)
        value = Call(step.fold.function, (Read("'total", piece.write), value))
    return bind_map(kept(piece, value), context, step.out)


def _written_out(step: steps.Fold) -> Runner:
    """The fold as one expression, onto what is there if it accumulates."""
    wide = step.fold.accumulator == DOUBLE
    tile = replace(step.piece, body=Cast("f64", step.piece.body)) if wide else step.piece
    piece = unrolled(tile, step.fold.function, step.fold.identity)
    if not step.accumulate:
        return bind_map(piece, step.context, step.out)
    body = Call(step.fold.function, (Read("'out", piece.write), piece.body))
    return bind_map(replace(piece, body=body), step.context.reading(out=step.out), step.out)
