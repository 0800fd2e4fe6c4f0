"""Which of many regions a given one may meet, by the intervals around them: so that not every pair is asked."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .algebra import Algebra

_FAR = 1 << 62  # ends beyond are taken for this one, which keeps their order


class Near:
    """Regions by number, asked for those whose hulls touch another's on every axis: all that meet it are such."""

    def __init__(self, algebra: Algebra, regions: Iterable[int]) -> None:
        self._algebra = algebra
        boxes = [(region, hull) for region in regions for hull in algebra.form(region).hulls]
        self._owners = [region for region, _ in boxes]
        self._ends = _ends(hull for _, hull in boxes)

    def to(self, region: int) -> list[int]:
        """In the order in which they were given."""
        found: dict[int, None] = {}
        for lo, hi in _ends(self._algebra.form(region).hulls) if self._owners else ():
            self._algebra.budget.spend(1 + len(self._owners) // 64, "regions near to another")
            overlap = (self._ends[:, 0] <= hi).all(axis=1) & (lo <= self._ends[:, 1]).all(axis=1)
            found |= dict.fromkeys(self._owners[k] for k in np.flatnonzero(overlap).tolist())
        return list(found)


def _ends(hulls: Iterable[tuple[tuple[int, int], ...]]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Per hull its first and its last ends, an axis each."""
    ends = [
        [[max(-_FAR, min(end, _FAR)) for end in side] for side in zip(*hull, strict=True)] or [[], []] for hull in hulls
    ]
    return np.array(ends, dtype=np.int64)
