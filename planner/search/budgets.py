"""Budgets below a number of bytes, the same ones whatever that number is."""

from __future__ import annotations

import math


def lesser(nbytes: int, count: int) -> list[int]:
    """So many budgets below a number of bytes, the largest first: of eight for each power of two, so that those tried
    with less memory are among those tried with more.

    >>> lesser(1000, 3), lesser(950, 2)
    ([939, 861, 789], [939, 861])
    """
    last = max(0, math.ceil(8 * math.log2(max(nbytes, 1)))) - 1
    return [int(2 ** (k / 8)) for k in range(last, max(-1, last - count), -1)]
