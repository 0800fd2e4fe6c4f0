"""Where elements lie: an index of a tensor as a place in an array that stores a part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...expr import Affine
from ...expr.simplify import Ranges, simplify_index
from ...kernels.elementwise.indices import text
from ...space import IntSet
from ..device import Stored


@dataclass(frozen=True)
class Place:
    """An offset in elements: an index expression, and the axes along which it steps from stretch to stretch.

    Each of ``broken`` is (index, stride, stretches); a stretch is (end, shift): index - shift before the end.
    """

    plain: Affine
    broken: tuple[tuple[Affine, int, tuple[tuple[int, int], ...]], ...] = ()

    @property
    def expressions(self) -> list[Affine]:
        return [self.plain, *(index for index, _, _ in self.broken)]

    def written(self, ranges: Ranges, names: Mapping[str, str], kind: str) -> str:
        """The offset in C++."""
        found = [text(self.plain, ranges, names, kind)]
        for index, stride, stretches in self.broken:
            at = text(index, ranges, names, kind)
            *first, last = stretches
            picked = "".join(f"({at}) < {end} ? ({at}) - {shift} : " for end, shift in first)
            found.append(f"({picked}({at}) - {last[1]}) * {stride}")
        return " + ".join(found)


def place(index: Sequence[Affine], stored: Stored, ranges: Ranges) -> Place:
    """Where the element of an index lies, for indices that are stored."""
    plain, broken = Affine(), []
    stride = 1
    for expr, axis in reversed(list(zip(index, stored.grid.axes, strict=True))):
        local = _local(expr, axis, ranges)
        if local is not None:
            plain += local * stride
        else:
            broken.append((expr, stride, _stretches(axis)))
        stride *= axis.size
    return Place(simplify_index(plain, ranges), tuple(broken))


def _local(expr: Affine, axis: IntSet, ranges: Ranges) -> Affine | None:
    """The place along one axis, if all indices are of one run. What is stored in one run is touched nowhere else."""
    lo, hi = expr.bounds(ranges)
    before = 0
    for run in axis.runs:
        if len(axis.runs) == 1 or (run.start <= lo and hi <= run.stop):
            return simplify_index((expr - run.start) // run.step, ranges) + before
        before += len(run)
    return Affine() if not axis.runs else None


def _stretches(axis: IntSet) -> tuple[tuple[int, int], ...]:
    assert all(run.step == 1 for run in axis.runs), "storage consists of intervals"
    found, before = [], 0
    for run in axis.runs:
        found.append((run.stop, run.start - before))
        before += len(run)
    return tuple(found)
