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

from ...expr import Read
from ...program import Operation


@dataclass(frozen=True)
class Windows:
    """A sum of products of two tensors, one of which, the image, is read in windows along axes of the other.

    ``weights``: what is written are the filters, and what is folded places of a result. ``places``: of a window.
    """

    other: str
    weights: bool
    places: int

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
            outputs, taps = (prod(op.extents[name] for name in names) for names in (kept, folded))
            return Windows(other.tensor, weights=outputs < taps, places=min(outputs, taps))
    return None
