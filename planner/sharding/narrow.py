"""A model solved while most transfers are known from below alone: prices are asked for where they may matter.

Elimination says how much more than its bound every choice with some decision costs at least. Choices that it finds are
priced as they are, and what no choice as cheap as the best of them may have is left out. Among what is left the pairs
are priced, the most promising first, and bound and choices get better with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..solvers import assign
from ..solvers.assign import Assignment, AssignmentProblem
from .model import combine

if TYPE_CHECKING:
    from .assignment import Moved, Translation

_ROUNDS = 12  # looks ahead
_WHOLE = 2  # halves of the transfers of values that count in the objective itself
# Pairs that are priced after one of them; where paths are looked for by pair.
_PAIRS, _PAIRS_BY_PAIR = 8000, 1000
_FEW = 1000  # options of all decisions together that engines are asked about where the bound is loose
_ANSWERS = 3  # answers that are asked for while the last one costs more than it seemed to

Options = Sequence[Sequence[int]]
"""Of every decision some of its options."""
Ask = Callable[[AssignmentProblem, Sequence[int] | None], Assignment]
"""For an answer, given a choice to begin with."""


class Answer(NamedTuple):
    """As an `Assignment`, of all options; ``cost`` as it is."""

    status: str
    choice: Sequence[int]
    cost: int
    bound: int
    exhausted: bool = False


@dataclass(eq=False)
class Lazily:
    """A model as a problem within so many bytes, in a view of overlap. ``gap``, ``exposed``, ``without``: as for
    `solving.solve`.

    ``best``: the cheapest choice so far with its cost. ``bound``: what every choice costs at least;
    ``loose`` if it may stay below all choices.
    """

    translation: Translation
    capacity: int
    exposed: int
    gap: float
    until: float
    without: Collection[tuple[int, int]] = ()
    best: tuple[int, list[int]] | None = None
    bound: int = 0
    loose: bool = False

    def solved(self, ask: Ask, start: Mapping[int, int] | None) -> Answer:
        """What an engine says once it matters no more what is not priced. ``start``: a choice to begin with, of options
        that may be taken.
        """
        if start is not None and self.translation.taken(start) <= self.capacity:
            self._offer([start[node] for node in self.translation.decided])
        kept = self._narrowed()
        if self.loose and self.best is not None and sum(map(len, kept)) > _FEW:
            cost, choice = self.best
            return Answer("feasible", choice, cost, min(self.bound, cost), exhausted=True)
        for _ in range(_ANSWERS):
            if self._late and self.best is not None:
                return Answer("feasible", self.best[1], self.best[0], min(self.bound, self.best[0]))
            answer = ask(self._problem().restricted(kept), self._hint(kept))
            if not answer.choice:
                break
            choice = named(answer.choice, kept)
            known = self._late or not self._settle_around(choice, kept)
            self._offer(choice)
            if known or self._enough(answer.cost) or self._late:
                break
        if self.best is None:
            return Answer(answer.status, (), 0, answer.bound or 0)
        cost, choice = self.best
        bound = min(answer.bound or 0, cost)
        claim = "" if answer.claimed_by is None else f" ({answer.claimed_by})"
        return Answer("optimal" if bound == cost else f"feasible{claim}", choice, cost, bound)

    def _enough(self, cost: int | None) -> bool:
        return cost is not None and self.best is not None and self.best[0] <= (1 + self.gap) * cost

    def _narrowed(self) -> Options:
        """The options that some choice may have which is cheaper than the best one seen.

        What another view than the objective's own answers is tried by simulation, and how near that is to the best of
        the view is not asked: it ends with the first round that brings nothing cheaper.
        """
        kept: Options = self.translation.allowed(self.without)
        ahead, near = None, kept
        for _ in range(_ROUNDS):
            if self._late:
                break
            after = None if ahead is None else (ahead, near)
            ahead = assign.outlook(self._problem().restricted(kept), self._known(kept), self.gap / 2, self.until, after)
            if ahead is None:
                break
            before = self.best
            for choice in ahead.choices:
                self._offer(named(choice, kept))
            assert self.best is not None
            self.bound = max(self.bound, min(ahead.bound, self.best[0]))  # a choice of other options costs no less
            self.loose = ahead.loose
            settled = not self._enough(self.bound) and self._settle_near(ahead, kept)
            near = ahead.within(max(0, self.best[0] - ahead.bound))
            kept = _named(near, kept)
            if not settled or (self.exposed != _WHOLE and self.best == before):
                break
        return kept

    def _settle_near(self, ahead: assign.Outlook, kept: Options) -> bool:
        """Prices the pairs of the most promising options, as many as may be; whether there were any, and others are
        left. ``kept``: those that were looked at.
        """
        assert self.best is not None
        whole = reach = max(0, self.best[0] - ahead.bound)
        while reach and self._unknown(_named(ahead.within(reach), kept)) > self._most:
            reach //= 2
        if not self._unknown(near := _named(ahead.within(reach), kept)):
            near = _named(ahead.within(reach := min(2 * reach + 1, whole)), kept)
        settled = self._settle(near)
        among = assign.outlook(self._problem().restricted(near), gap=self.gap / 2, until=self.until)
        for choice in among.choices if among is not None else ():
            self._offer(named(choice, near))
        return bool(settled) and reach != whole

    @property
    def _late(self) -> bool:
        return time.monotonic() > self.until

    @property
    def _most(self) -> int:
        """How many pairs are priced at once."""
        return _PAIRS_BY_PAIR if self.translation.model.traffic.by_pair else _PAIRS

    def _problem(self) -> AssignmentProblem:
        return self.translation.problem(self.capacity, self.exposed)

    def _offer(self, choice: Sequence[int]) -> None:
        """Takes a choice that is cheaper; what it costs is rounded up."""
        t = self.translation
        parts = t.costs.parts(dict(zip(t.decided, choice, strict=True)))
        cost = -(-combine(t.model.objective, parts, self.exposed) // t.unit)
        if self.best is None or cost < self.best[0]:
            self.best = cost, list(choice)

    def _hint(self, kept: Options) -> list[int] | None:
        """The best choice in the numbers of some options; None where it has others."""
        return None if self.best is None else numbered(self.best[1], kept)

    def _known(self, kept: Options) -> list[NDArray[np.bool_]]:
        """Of every supply of the problem with some options [option of the source, item] whether its cost is known."""
        t, number = self.translation, self.translation.number
        exchanged = [each for some in t.exchanged for each in some]
        found = [np.ones((len(kept[each.old]), each.stored.shape[1]), dtype=bool) for each in exchanged]
        return found + [
            moved.priced.known[np.ix_(moved.at[list(kept[number[moved.flows[0].home]])], moved.asked)]
            for moved in t.moved
        ]

    def _unknown(self, kept: Options) -> int:
        """How many pairs are not priced yet that some of these options have."""
        return sum(moved.priced.unknown(*self._pairs(moved, kept)) for moved in self.translation.moved)

    def _settle(self, kept: Options) -> int:
        """Prices them while there is time; how many there were."""
        in_time = takewhile(lambda _: not self._late, self.translation.moved)
        return sum(moved.priced.settle(*self._pairs(moved, kept)) for moved in in_time)

    def _settle_around(self, choice: Sequence[int], kept: Options) -> int:
        """Prices the pairs of a choice, and those of choices one decision away, where some of its own have no price,
        while there is time; how many there were.
        """
        own = [[option] for option in choice]
        if not self._unknown(own):
            return 0
        found = 0
        for moved in takewhile(lambda _: not self._late, self.translation.moved):
            (rows, columns), (all_rows, all_columns) = self._pairs(moved, own), self._pairs(moved, kept)
            found += moved.priced.settle(rows, all_columns) + moved.priced.settle(all_rows, columns)
        return found

    def _pairs(self, moved: Moved, kept: Options) -> tuple[list[int], list[int]]:
        """The numbers of the layouts in which a tensor lies or is asked for, with some options of every decision."""
        number, flow = self.translation.number, moved.flows[0]
        rows = {int(moved.at[k]) for k in kept[number[flow.home]]}
        columns = {
            int(moved.asked[asks[k]])
            for j, asks in zip(moved.group, moved.asks, strict=True)
            for k in kept[number[flow.readers[j][0]]]
        }
        return sorted(rows), sorted(columns)


def named(choice: Sequence[int], kept: Options) -> list[int]:
    """A choice among some options in the numbers of all; none if there is none."""
    return [mine[s] for mine, s in zip(kept, choice, strict=True)] if choice else []


def numbered(choice: Sequence[int], kept: Options) -> list[int] | None:
    """A choice of all options in the numbers of some; None where it has others."""
    both = list(zip(kept, choice, strict=True))
    return [mine.index(s) for mine, s in both] if all(s in mine for mine, s in both) else None


def _named(near: Options, kept: Options) -> Options:
    """Some of some options, in the numbers of all."""
    return [[mine[s] for s in some] for mine, some in zip(kept, near, strict=True)]
