"""Second pass, groups of boxes → steps: which way each tile of the output is computed.

A tile is a part of a box on which every bound of kept dimensions is decided (see `cutting`). Sums of products go to
BLAS, small windows are written out, what is left goes slab by slab.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ...expr import Const, Expr, Read, walk
from ...expr.monoids import accumulator_dtype
from ...program import Block
from ...selection import selections
from ..device import Evaluation, Stored
from ..lifting import dtypes_of, value_dtype
from . import steps
from .contraction import Contraction, contraction
from .culling import held
from .cutting import resolve
from .folding import SINGLE, Reduction, compute_dtype
from .maps import Context
from .matching import extent, match
from .padding import paddable
from .pieces import Piece, masked
from .records import RecordFold
from .scanning import scan_in
from .scratch import Scratch
from .shards import Group, reduction
from .views import slabs, strided

# A fold is written out when it is a window (its dimensions share an axis with others) of at most this many taps,
# or has at most FEW taps; and only while the expression stays small.
TAPS, FEW, NODES = 64, 8, 1500
# Windows of more taps than PADDED read a padded copy, of parts of the output of about PADDED_POINTS elements.
PADDED, PADDED_POINTS = 16, 1 << 20
# Rows and columns from which a sum of products is worth a matrix product.
MATRIX = 4


def context_of(task: Evaluation, scratch: Scratch) -> Context:
    """The operands of a task, and the type in which its floats are added up."""
    floating = compute_dtype(accumulator_dtype(value_dtype(task), dtypes_of(task)[task.op.output]))
    return Context(task.reads, SINGLE if floating.kind != "f" else floating, scratch)


def steps_of(task: Evaluation, context: Context, group: Group) -> list[steps.Step]:
    """The steps of boxes that share their output, in order."""
    op, out = task.op, task.write
    if isinstance(op.body, Block):
        return [steps.BlockKernel(context, out, op.body, tuple(group))]
    if op.monoid is None:
        return [steps.Mapped(context, out, box) for box in group]
    fold = reduction(task)
    if fold is None:
        records = RecordFold(op, value_dtype(task), context, out, dtypes_of(task)[op.output])
        return [steps.Records(context, out, records, tuple(group))]
    return _Chooser(context, fold).folded(group, out)


@dataclass(frozen=True)
class _Chooser:
    """Folds of one kind."""

    context: Context
    fold: Reduction

    def folded(self, group: Group, out: Stored) -> list[steps.Step]:
        """One box is folded at once; several are added up in the accumulator's type.

        What conditions leave out of a box is left out, where that is much (see `culling`).
        """
        parts = [part for box in group for part in self._held(box)]
        if len(group) == 1 and parts == group:
            return self._box(group[0], out, accumulate=False)
        narrow = self.fold.accumulator != out.array.dtype
        total = Stored(np.empty(out.array.shape, self.fold.accumulator), out.grid) if narrow else out
        neutral = Const(self.fold.identity)
        found: list[steps.Step] = [steps.Mapped(self.context, total, kept(box, neutral)) for box in group]
        found += [step for part in parts for step in self._box(part, total, accumulate=True)]
        if narrow:
            rounding = self.context.reading(out=total)
            found += [steps.Mapped(rounding, out, kept(box, Read("'out", box.write))) for box in group]
        return found

    def _held(self, box: Piece) -> list[Piece]:
        """Boxes of the points that hold; scans, and folds of which the data say the points, take a box as it is."""
        if scan_in(box) is not None or selections(box.body, box.names, self.fold.identity):
            return [box]
        return held(box)

    def _box(self, box: Piece, out: Stored, *, accumulate: bool) -> list[steps.Step]:
        """Tiles of the output, each by the quickest way."""
        scan = scan_in(box)
        if scan is not None:
            return [steps.ScannedFold(self.context, out, box, self.fold, accumulate, scan)]
        piece = replace(box, body=masked(box.body, box.where, self.fold.identity), where=())
        chosen = selections(piece.body, piece.names, self.fold.identity)
        if chosen and _plain(piece, out):
            return [steps.SelectedFold(self.context, out, piece, self.fold, accumulate, chosen)]
        tiles = resolve(piece, set(piece.names) - piece.reduce)
        return [step for tile in tiles for step in self._tile(tile, out, accumulate)]

    def _tile(self, tile: Piece, out: Stored, accumulate: bool) -> list[steps.Step]:
        fold = steps.Fold(self.context, out, tile, self.fold, accumulate)
        unrolls = _worth_unrolling(tile)
        product = _product(fold, both=unrolls)
        if product is not None:
            return [steps.MatrixProduct(**vars(fold), contraction=product)]
        if unrolls and _taps(tile) > PADDED and paddable(tile):
            return [steps.PaddedWindow(**{**vars(fold), "piece": part}) for part in _slabs(tile)]
        if unrolls:
            return [steps.WrittenOut(**vars(fold))]
        return [steps.SlabFold(**vars(fold)) if _plain(tile, out) else steps.ScatteredFold(**vars(fold))]


def _plain(piece: Piece, out: Stored) -> bool:
    """Whether the elements that a fold writes are a strided view."""
    return strided(out, piece.write, tuple(dim for dim in piece.dims if dim[0] not in piece.reduce)) is not None


def _product(step: steps.Fold, *, both: bool) -> Contraction | None:
    """A matrix product, if it has enough rows and columns (``both``), or of one of them."""
    found = match(step.piece, step.fold)
    if found is None:
        return None
    sides = extent(step.piece, found.rows), extent(step.piece, found.columns)
    if (min(sides) if both else max(sides)) < MATRIX:
        return None
    return contraction(step.piece, found, step.context, step.out, step.fold, step.accumulate)


def kept(piece: Piece, body: Expr) -> Piece:
    """A map over the dimensions that the piece does not fold."""
    dims = tuple(dim for dim in piece.dims if dim[0] not in piece.reduce)
    dtypes = {**piece.dtypes, "'out": "f32", "'total": "f32"}  # never missed, so that their dtypes do not matter
    return replace(piece, dims=dims, reduce=frozenset(), body=body, where=(), dtypes=dtypes)


def _taps(tile: Piece) -> int:
    return prod(n for name, n in tile.dims if name in tile.reduce)


def _slabs(tile: Piece) -> list[Piece]:
    """Parts of a tile of at most about PADDED_POINTS elements of the output."""
    dims = [(name, n) for name, n in tile.dims if name not in tile.reduce]
    parts = []
    for cuts in slabs([n for _, n in dims], range(len(dims)), PADDED_POINTS):
        part = tile
        for (name, n), cut in zip(dims, cuts, strict=True):
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
