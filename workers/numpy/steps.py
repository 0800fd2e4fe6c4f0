"""What the second pass chooses and the third binds: one record per way of computing.

Every step says from what it computes (``context``) and into what (``out``).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...expr.scans import Scan
from ...program import Block
from ...selection import Selection
from ..device import Stored
from .contraction import Contraction
from .folding import Reduction
from .maps import Context
from .pieces import Piece
from .records import RecordFold


@dataclass(frozen=True)
class Step:
    context: Context
    out: Stored


@dataclass(frozen=True)
class Mapped(Step):
    """out[write] = body, point by point."""

    piece: Piece


@dataclass(frozen=True)
class BlockKernel(Step):
    """The boxes of a group by a kernel of its own."""

    block: Block
    boxes: tuple[Piece, ...]


@dataclass(frozen=True)
class Records(Step):
    """The boxes of a group folded as records of several components."""

    fold: RecordFold
    boxes: tuple[Piece, ...]


@dataclass(frozen=True)
class Fold(Step):
    """A piece folded value by value. accumulate: onto what ``out`` holds."""

    piece: Piece
    fold: Reduction
    accumulate: bool


@dataclass(frozen=True)
class MatrixProduct(Fold):
    """A sum of products, by BLAS."""

    contraction: Contraction


@dataclass(frozen=True)
class SelectedFold(Fold):
    """A fold of which the data say the points that count: it goes to these alone."""

    chosen: tuple[Selection, ...]


@dataclass(frozen=True)
class WrittenOut(Fold):
    """A short fold as one expression, mapped."""


@dataclass(frozen=True)
class PaddedWindow(Fold):
    """A wide guarded window, written out over padded copies of what it reads."""


@dataclass(frozen=True)
class SlabFold(Fold):
    """Any fold: a slab is evaluated, reduced, combined."""


@dataclass(frozen=True)
class ScannedFold(Fold):
    """A fold over all that comes before an index, each result out of the one before."""

    scan: Scan


@dataclass(frozen=True)
class ScatteredFold(Fold):
    """A slab fold whose elements are not a strided view: into a dense array first."""
