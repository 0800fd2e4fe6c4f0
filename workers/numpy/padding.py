"""Guarded reads of a window from a padded copy: one copy, then every tap is a plain strided view."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...expr import Read, rewrite, walk
from ...space import Box, Grid
from ..device import Runner, Stored
from .folding import number
from .maps import Context
from .pieces import Piece
from .views import grid_pairs


def paddable(piece: Piece) -> bool:
    """Whether every guard of a read is an interval on one of the read's own axes, and there is a guard at all."""
    guarded = [node for node in walk(piece.body) if isinstance(node, Read) and node.guard]
    return bool(guarded) and all(_boxed(read) for read in guarded)


def _boxed(read: Read) -> bool:
    affine = all(index.is_affine for index in read.index)
    return affine and all(bound.expr in read.index for bound in read.guard)


def padded(piece: Piece, context: Context) -> tuple[Piece, Context, list[Runner]]:
    """The piece with its guarded reads replaced by plain reads of padded copies, and what fills these copies."""
    runners: list[Runner] = []
    stored = dict(context.stored)
    renamed: dict[Read, Read] = {}
    for node in dict.fromkeys(n for n in walk(piece.body) if isinstance(n, Read) and n.guard):
        name = f"padded {len(renamed)}"
        stored[name], runner = _copy(node, piece, context)
        renamed[node] = Read(name, node.index)
        runners.append(runner)
    dtypes = {**piece.dtypes, **{new.tensor: piece.dtypes[old.tensor] for old, new in renamed.items()}}
    body = rewrite(piece.body, lambda node: renamed.get(node, node) if isinstance(node, Read) else node)
    return replace(piece, body=body, dtypes=dtypes), replace(context, stored=stored), runners


def _copy(read: Read, piece: Piece, context: Context) -> tuple[Stored, Runner]:
    """The elements that a read touches over a piece, the fill where its guard fails."""
    source = context.stored[read.tensor]
    spans = [index.bounds(piece.ranges) for index in read.index]
    hull = Box(tuple(lo for lo, _ in spans), tuple(hi for _, hi in spans))
    target = Stored(context.scratch.take(hull.shape, source.array.dtype), hull.grid())
    pairs = grid_pairs(_inside(read, hull), source.grid, target.grid)
    fill = number(read.fill, piece.dtypes[read.tensor])

    def run() -> None:
        target.array[...] = fill
        for from_, to in pairs:
            np.copyto(target.array[to], source.array[from_])

    return target, run


def _inside(read: Read, hull: Box) -> Grid:
    """The part of the hull where every guard holds."""
    lo, hi = list(hull.lo), list(hull.hi)
    for bound in read.guard:
        for axis, index in enumerate(read.index):
            if index == bound.expr:
                lo[axis] = lo[axis] if bound.lo is None else max(lo[axis], bound.lo)
                hi[axis] = hi[axis] if bound.hi is None else min(hi[axis], bound.hi)
    return Box(tuple(lo), tuple(hi)).grid()
