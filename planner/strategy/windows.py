"""The shape of a dense convolution's task, of its gradients' too: that of the product of windows and filters.

A library's convolution is as quick as its channels let it be: with 3 of them it takes 5 to 10 times as long as its
operations say. Which dimensions are channels follows from what the operation reads and writes, and how many a shard has
from how many points it has and how many elements it touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ...expr import Affine, Read
from ...program import Operation


@dataclass(frozen=True)
class Windows:
    """A sum of products of two tensors, one of which, the image, is read in windows along axes of the other.

    ``weights``: what is written are the filters, and what is folded places of a result. ``places``: of a window.
    ``apart``: no two windows share an element, and nothing is left out, so that the windows are the rows of a matrix.
    ``laid_out``: that matrix has to be laid out first, as its rows, or its columns, do not lie one after another.
    """

    other: str
    weights: bool
    places: int
    apart: bool = False
    laid_out: bool = False

    def shape(self, points: int, reads: Mapping[str, int], written: int) -> tuple[float, float, float]:
        """Places of the result, channels out, and elements of a window in all channels in, of a task that reads and
        writes so many elements."""
        filters, result = (written, reads[self.other]) if self.weights else (reads[self.other], written)
        places = points / filters
        channels = result / places
        return places, channels, filters / channels


@lru_cache(maxsize=65536)
def windows(op: Operation) -> Windows | None:
    """The windows of a convolution without groups, along any number of axes; None for anything else."""
    reads = [factor for factor in op.factors or () if isinstance(factor, Read)]
    if len(reads) != 2 or reads[0].tensor == reads[1].tensor:
        return None
    written = {name for row in op.write for name in row.dims}
    for image, other in (reads, reads[::-1]):
        along = {name for row in image.index if len(row.dims) > 1 for name in row.dims}
        seen, known = ({name for row in read.index for name in row.dims} for read in (image, other))
        folded, kept = along & set(op.reduce_dims), along - set(op.reduce_dims)
        if folded and kept and folded <= known and not kept & known and not seen & known & written:
            weights = _span(op, image, kept) < _span(op, image, folded)
            places = prod(op.extents[name] for name in (kept if weights else folded))
            plain = not (op.where or image.guard or other.guard) and all(len(row.dims) < 2 for row in other.index)
            apart = plain and all(_apart(op, row) for row in image.index)
            return Windows(other.tensor, weights, places, apart, apart and not _as_matrix(op, image))
    return None


def _span(op: Operation, image: Read, names: set[str]) -> int:
    """Elements of the image between the first and the last that dimensions come to: of results more than of a window,
    as of 14 x 14 windows of 16 x 16 places that stand 16 apart."""
    rows = [row for row in image.index if len(row.dims) > 1]
    return prod(op.extents[name] * max(1, *(abs(row.coefficient(name)) for row in rows)) for name in names)


def _apart(op: Operation, row: Affine) -> bool:
    """Whether no two values of its dimensions have the same index."""
    if not row.is_affine:
        return False
    reached = 0
    for step, extent in sorted((abs(step), op.extents[str(name)]) for name, step in row.terms):
        if extent > 1 and step <= reached:
            return False
        reached += step * (extent - 1)
    return True


def _as_matrix(op: Operation, image: Read) -> bool:
    """Whether the folded dimensions are the last, or the first, along which the image lies."""
    folded = [
        str(name) in op.reduce_dims
        for row in image.index
        for name, _ in sorted(row.terms, key=lambda term: -abs(term[1]))
    ]
    return folded in (sorted(folded), sorted(folded, reverse=True))
