"""Records at places that the data say, many places of few points each: the points of a place are found first.

    out[v, d] = sum[t] x[t, d] if at[t] == v else 0

One kernel counts the points that ask for each place, and finds the first of them. A warp then folds those of a place,
one after another, each of its threads into records of its own: it goes to the first, and looks for more only where
there are more. The order is that of the points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...expr import depends_on
from .arrays import DeviceArray
from .jobs import Job
from .machine import THREADS, WARP
from .statements import inside
from .writing import HEADER, Writer, Written, places_of

# Places from which on a warp has few points to fold; records of a thread at one place.
MANY, RECORDS = 64, 4
# What the bytes of the table are before anybody asked: more than any number of a point, and what is counted from.
UNASKED = 0x7F
NONE = 0x7F7F7F7F
TABLE = np.dtype(np.int32)


@dataclass(frozen=True)
class Sought:
    """The kernels, one after the other, and the table between them, whose bytes are `UNASKED` before."""

    table: DeviceArray
    kernels: tuple[Written, Written]


def sought(job: Job, take: Callable[[int], DeviceArray]) -> Sought | None:
    """How a job's points find their places; None where places are few, or which one a point asks for is not the same
    for all records of a place. ``take`` gives so many elements of `TABLE`.
    """
    if len(job.placed) != 1 or len(job.folds) != 1 or not job.points:
        return None
    [fold] = job.folds
    looped = {name for name, _ in fold.looped}
    if len(fold.chosen) != 1 or not looped or not depends_on(fold.chosen[0].value) <= looped:
        return None
    extent = dict(job.kept)[job.placed[0]]
    if extent < MANY or fold.points >= NONE:
        return None
    table = take(2 * extent)
    return Sought(table, (_Finder(job, table).written(), _Folder(job, table).written()))


class _Seeker(Writer):
    """What both kernels know. The table has a count and the number of the first point for each place."""

    headers = f"#include <tapestry/warp.cuh>\n{HEADER}"

    def __init__(self, job: Job, table: DeviceArray) -> None:
        super().__init__(job, (), None)
        [self.place], [self.fold] = job.placed, job.folds
        self.extent = self.ranges[self.place][1]
        self.table = self._parameter(table, "int", constant=False)

    def _asked(self, number: str) -> tuple[list[str], str]:
        """Statements for the point of a number, and the place that it asks for."""
        emitter = self._emitter()
        value = emitter.as_type(emitter.value(self.fold.chosen[0].value), "Int")
        return [*places_of(self.fold.looped, self.kind, number), *emitter.outer, *emitter.inner], value


class _Finder(_Seeker):
    """One thread a point."""

    def __init__(self, job: Job, table: DeviceArray) -> None:
        super().__init__(job, table)
        self.wanted = self.fold.points

    def _body(self) -> list[str]:
        before, value = self._asked("k")
        return [
            f"const {self._natural()} k = {self._natural()}(blockIdx.x) * {THREADS}u + threadIdx.x;",
            f"if (k >= {self.fold.points}u) return;",
            *before,
            f"const Int asked = {value};",
            f"if (asked < 0 || asked >= {self.extent}) return;",
            f"add_into({self.table} + 2 * asked, 1);",
            f"least_into({self.table} + 2 * asked + 1, int(k));",
        ]


class _Folder(_Seeker):
    """A warp some records of a place."""

    def __init__(self, job: Job, table: DeviceArray) -> None:
        super().__init__(job, table)
        self.parts = -(-job.points // (RECORDS * WARP))
        self.wanted = self.extent * self.parts * WARP

    def _body(self) -> list[str]:
        natural, records = self._natural(), RECORDS * WARP
        before, value = self._asked("q")
        each = f"for ({natural} k = begin + lane; k < end; k += {WARP}u) {{"
        record = [*places_of(self.kept, self.kind, "k")]
        first = [*places_of(self.fold.looped, self.kind, "q"), *self._under(self.fold.where, self._point(self.fold))]
        more = [*places_of(self.fold.looped, self.kind, "q"), *self._under(self.fold.where, self._placed(self.fold))]
        looking = [
            f"const {natural} mine = from + lane;",
            "bool here = false;",
            f"if (mine > found && mine < {self.fold.points}u) {{",
            *inside([f"const {natural} q = mine;", *before, f"here = {value} == Int({self.place});"]),
            "}",
            "for (unsigned there = lanes_with(here); there; there &= there - 1u, --left) {",
            *inside([f"const {natural} q = from + lowest(there);", each, *inside([*record, *more]), "}"]),
            "}",
        ]
        return [
            f"const {natural} thread = {natural}(blockIdx.x) * {THREADS}u + threadIdx.x;",
            f"const {natural} warp = thread / {WARP}u, lane = thread % {WARP}u;",
            f"if (warp >= {self.extent * self.parts}u) return;",
            f"const {self.kind} {self.place} = {self.kind}(warp / {self.parts}u);",
            f"const {natural} begin = warp % {self.parts}u * {records}u;",
            f"const {natural} end = begin + {records}u < {self.job.points}u ? begin + {records}u : {self.job.points}u;",
            f"int left = {self.table}[2 * {self.place}] - {NONE};",
            f"const {natural} found = {natural}({self.table}[2 * {self.place} + 1]);",
            each,
            *inside([*record, *self._state(), *self._first(first), *self._stores()]),
            "}",
            "--left;",
            f"for ({natural} from = found / {WARP}u * {WARP}u; left > 0; from += {WARP}u) {{",
            *inside(looking),
            "}",
        ]

    def _first(self, point: list[str]) -> list[str]:
        return ["if (left > 0) {", *inside([f"const {self._natural()} q = found;", *point]), "}"]
