"""How many stretches the rows of a launch are cut into, so that the block with the most of them has few.

Rows of images lie one behind the other in a line. A cut within an image makes both stretches beside it walk rows that
their windows share; a cut between images costs nothing. So a few stretches less, whose cuts fall between images or
halve them, can leave the busiest block less to do: of 16 x 14 rows under 3 x 3 windows, 18 stretches walk up to 15
rows and 16 walk 14.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

import numpy as np

SPARED = 8  # one stretch of so many may be left out


@lru_cache(maxsize=16384)
def evenest(line: int, height: int, most: int, stride: int, shared: int) -> tuple[int, float]:
    """(stretches, rows that the busiest one walks), of at most `most` stretches.

    `line` rows of images of `height` rows each are met, `stride` rows walked for each of them; `shared` rows are walked
    on both sides of a cut, half of them counted to either.
    """
    found, least = most, rows_of_busiest(line, height, most, stride, shared)
    for count in range(most - 1, most - most // SPARED - 1, -1):
        if ceil(line / count) * stride >= least:  # though no cut were in an image, and with fewer all the more
            break
        rows = rows_of_busiest(line, height, count, stride, shared)
        if rows < least:
            found, least = count, rows
    return found, least


@lru_cache(maxsize=16384)
def rows_of_busiest(line: int, height: int, stretches: int, stride: int, shared: int) -> float:
    """Rows that the busiest of so many equal stretches walks; the first of them have one met row more where rows are
    left over."""
    stretch, longer = divmod(line, stretches)
    number = np.arange(stretches + 1)
    bounds = number * stretch + np.minimum(number, longer)
    cut = (bounds % height != 0) * (shared / 2)
    return float((np.diff(bounds) * stride + cut[:-1] + cut[1:]).max())
