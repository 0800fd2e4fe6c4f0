"""Exact set algebra over interned regions: equal regions are one number, and every question is answered once.

Repeated layers ask the same questions of the same regions, so that their proofs cost a dictionary lookup each. Number
0 is the empty region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ...space import Grid, IntSet, Region, parse_region
from . import cells
from .budget import Budget
from .cells import Disagreement, Form

EMPTY = 0
What = Callable[[], str]


class Algebra:
    """Regions as small integers. Every answer is proved by the second engine (`cells`), or Disagreement is raised."""

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self._regions: list[Region] = []
        self._forms: list[Form] = []
        self._weights: list[int] = []
        self._numbers: dict[Region, int] = {}
        self._read: dict[str, int] = {}
        self._minus: dict[tuple[int, int], int] = {}
        self._meet: dict[tuple[int, int], int] = {}
        self._join: dict[frozenset[int], int] = {}
        self.number(Region())

    def number(self, region: Region) -> int:
        """Of a region that is no answer to a question: it is what its runs say."""
        found = self._numbers.setdefault(region, len(self._regions))
        if found == len(self._regions):
            form = cells.bare(region)
            self._regions.append(region)
            self._forms.append(form)
            self._weights.append(sum(len(runs) for tile in form.tiles for runs in tile))
            self.budget.spend(self._weights[found], "regions of many pieces")
            if not cells.well_formed(form, self.budget.spend):
                raise Disagreement(f"the pieces of {region} overlap, or are none")
        return found

    def equal(self, region: Region, form: Form, what: What) -> int:
        """The number of a region that has to be the set that the second engine found; its tiles may overlap."""
        number = self.number(region)
        mine = self._forms[number]
        if mine.tiles != form.tiles:
            alike = cells.holds((mine, form), lambda one, other: bool(one) == bool(other), self.budget.spend)
            self.believe(alike, what, number)
        return number

    def covers(self, region: Region, form: Form, what: What) -> int:
        """The same of a hull, which may hold more."""
        number = self.number(region)
        alike = cells.holds((self._forms[number], form), lambda one, other: one or not other, self.budget.spend)
        self.believe(alike, what, number)
        return number

    def stated(self, form: Form) -> int:
        """The number of a set that the second engine knows; its tiles may overlap."""
        region = Region.of(*(Grid(tuple(IntSet(runs) for runs in tile)) for tile in form.tiles))
        return self.equal(region, form, lambda: "a union of tiles")

    def read(self, text: str) -> int:
        """A region as plans write it. ValueError where it is none."""
        if text not in self._read:
            self.budget.spend(4 * text.count("+") ** 2 + text.count("|") ** 2 // 16, "reading regions of many pieces")
            self._read[text] = self.equal(parse_region(text), cells.read(text), partial("what {!r} says".format, text))
        return self._read[text]

    def whole(self, extents: Sequence[int]) -> int:
        """All tuples from zero to the extents."""
        return self.stated(cells.box(extents))

    def believe(self, proved: bool, what: What, answer: int) -> None:
        """Raise Disagreement where an answer of the first engine is not proved by the second."""
        if not proved:
            raise Disagreement(f"{what()} is not {self._regions[answer]}")

    def _charge(self, a: int, b: int) -> None:
        self.budget.spend(1 + self._weights[a] * self._weights[b], "comparing regions of many pieces")

    def region(self, number: int) -> Region:
        return self._regions[number]

    def form(self, number: int) -> Form:
        return self._forms[number]

    def size(self, number: int) -> int:
        return self._forms[number].size

    def witness(self, number: int) -> tuple[int, ...] | None:
        return self._forms[number].least()

    def minus(self, a: int, b: int) -> int:
        if a == b or not a:
            return EMPTY
        if not b:
            return a
        if (a, b) not in self._minus:
            self._charge(a, b)
            found = self._minus[a, b] = self.number(self._regions[a] - self._regions[b])
            what = partial("{} without {}".format, self._regions[a], self._regions[b])
            self.believe(self._is_minus(a, b, found), what, found)
        return self._minus[a, b]

    def _is_minus(self, a: int, b: int, found: int) -> bool:
        one, other, left = self._forms[a], self._forms[b], self._forms[found]
        if (found == a and cells.apart(one, other)) or (not found and cells.within(one, other)):
            return True
        return cells.holds((one, other, left), lambda x, y, z: z == (x and not y), self.budget.spend)

    def meet(self, a: int, b: int) -> int:
        if a == b or not a or not b:
            return a if a == b else EMPTY
        if (a, b) not in self._meet:
            self._charge(a, b)
            found = self._meet[a, b] = self._meet[b, a] = self.number(self._regions[a] & self._regions[b])
            what = partial("what {} has in {}".format, self._regions[a], self._regions[b])
            self.believe(self._is_meet(a, b, found), what, found)
        return self._meet[a, b]

    def _is_meet(self, a: int, b: int, found: int) -> bool:
        one, other, both = self._forms[a], self._forms[b], self._forms[found]
        if not found and cells.apart(one, other):
            return True
        if (found == a and cells.within(one, other)) or (found == b and cells.within(other, one)):
            return True
        return cells.holds((one, other, both), lambda x, y, z: z == (x and y), self.budget.spend)

    def join(self, numbers: Iterable[int]) -> int:
        parts = frozenset(numbers) - {EMPTY}
        if len(parts) <= 1:
            return next(iter(parts), EMPTY)
        if parts not in self._join:
            grids = [grid for part in sorted(parts) for grid in self._regions[part].grids]
            found = self._union(sorted(grids, key=lambda grid: grid.hull().lo))
            together = Form(tuple(tile for part in parts for tile in self._forms[part].tiles))
            self._join[parts] = self.equal(found, together, lambda: "a union")
        return self._join[parts]

    def _union(self, grids: list[Grid]) -> Region:
        """By halves of neighbours: shards that tile their space grow together, instead of meeting each all others."""
        if len(grids) <= 4:
            self.budget.spend(sum(len(axis.runs) for grid in grids for axis in grid.axes) ** 2, "joining regions")
            return Region.of(*grids)
        middle = len(grids) // 2
        one, other = self._union(grids[:middle]), self._union(grids[middle:])
        self.budget.spend(1 + len(one.grids) * len(other.grids), "joining regions of many pieces")
        return one | other

    def within(self, a: int, b: int) -> bool:
        return not self.minus(a, b)
