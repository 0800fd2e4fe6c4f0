"""Measured times over sizes: what a size in between takes, and what no size takes less than."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Timing:
    """Seconds over sizes: one measured point or more, both increasing (seconds may stay the same).

    Linear between the points; at the rate of the first below it, and at the rate of the last beyond it.
    """

    points: Points

    @staticmethod
    def at_rate(per_second: float) -> Timing:
        """What has the same rate at every size."""
        return Timing(((1.0, 1.0 / per_second),))

    @cached_property
    def _sizes(self) -> list[float]:
        return [size for size, _ in self.points]

    def seconds(self, size: float) -> float:
        """The measured seconds at a measured size; 0 for nothing."""
        right = bisect_left(self._sizes, size)
        if right == len(self.points) or (right == 0 and size != self._sizes[0]):
            near, took = self.points[min(right, len(self.points) - 1)]
            return took * (size / near)
        x1, t1 = self.points[right]
        if x1 == size:
            return t1
        x0, t0 = self.points[right - 1]
        return t0 + (t1 - t0) * ((size - x0) / (x1 - x0))

    @cached_property
    def least(self) -> float:
        """Seconds a unit of size of which no size takes less. Between two points the ratio is between theirs."""
        return min(took / size for size, took in self.points)


def monotone(measured: Iterable[tuple[float, float]]) -> Points:
    """Measured points as those of a timing: sizes once each, and seconds that never fall, the nearest such ones in the
    sum of squares (pool adjacent violators: Ayer et al., "An empirical distribution function for sampling with
    incomplete information", 1955).

    >>> monotone([(4, 3.0), (1, 1.0), (2, 5.0), (4, 5.0)])
    ((1, 1.0), (2, 4.5), (4, 4.5))
    """
    by_size: dict[float, list[float]] = {}
    for size, seconds in measured:
        by_size.setdefault(size, []).append(seconds)
    pools: list[tuple[float, list[float]]] = []
    for size in sorted(by_size):
        mean, sizes = fmean(by_size[size]), [size]
        while pools and pools[-1][0] > mean:
            before, pooled = pools.pop()
            mean = (before * len(pooled) + mean * len(sizes)) / (len(pooled) + len(sizes))
            sizes = [*pooled, *sizes]
        pools.append((mean, sizes))
    return tuple((size, mean) for mean, sizes in pools for size in sizes)
