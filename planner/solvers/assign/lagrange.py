"""Bounds and choices where resources bind: elimination with a multiplier on each place that matters.

For multipliers λ ≥ 0 on places, with s_r the sum of those of resource r, every choice that fits costs at least

    min over choices of (cost + Σ_p λ_p · what is in use at p)  −  Σ_r limit_r · max(0, s_r − price_r)

because what a peak costs is at least price_r times any average of the loads, and no load exceeds the limit. Elimination
finds the minimum; a linear program over the choices seen so far (cutting planes: Kelley, 1960) says where to look next.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from .answer import EliminationCertificate, Prices, ShareCertificate
from .eliminate import MOST_WORK
from .factors import PRICE_UNIT, TooWide
from .places import Places, asked_of, places_of
from .problem import FORBIDDEN, AssignmentProblem, Ints, cost_bound
from .shares import Shares
from .supply import supplied
from .whole import Whole

_TRIALS = 24  # multipliers in one ascent
_IN_VAIN, _RISING = 3, 1e-3  # so many without that much more end it where the bound may stay below all choices
_SETTLED = 1e-5  # of the bound: what a further trial must promise to be worth it
_FIRST_STEP = (
    64  # a multiplier may first grow to so many times less than it takes for the limit to cost the whole bound
)
_STEP = 4.0  # and then by this factor at a time


@dataclass(frozen=True, eq=False)
class Trial:
    """A choice seen: `linear` is its cost without peaks, `cost` with them, `profile` what it holds at every place."""

    choice: tuple[int, ...]
    linear: int
    cost: int
    profile: Ints
    fits: bool


def examine(places: Places, choice: tuple[int, ...]) -> Trial:
    """Counts a choice."""
    problem, profile = places.problem, places.profile(choice)
    linear = _linear_cost(problem, choice)
    peaks = sum(problem.price(r) * peak for r, peak in places.peaks(profile).items())
    return Trial(choice, linear, linear + peaks, profile, linear < FORBIDDEN // 2 and places.fits(profile))


def _linear_cost(problem: AssignmentProblem, choice: tuple[int, ...]) -> int:
    total = sum(int(problem.costs[v][s]) for v, s in enumerate(choice))
    for e, (u, v) in enumerate(problem.edges.tolist()):
        total += int(problem.matrix(e)[choice[u], choice[v]])
    for supply in problem.supplies:
        brought = supplied(supply, asked_of(supply.readers, supply.asks, choice))
        total += int(supply.costs[choice[supply.source], brought].sum())
    return total


class Engine(Protocol):
    """What bounds a problem under multipliers. `whole`: by the least of all choices."""

    @property
    def whole(self) -> bool: ...

    @property
    def work(self) -> int:
        """Entries that it goes through each time."""
        ...

    def least(self, multipliers: Mapping[int, int], worth: int = -FORBIDDEN) -> tuple[int, tuple[int, ...]]:
        """No more than the least of all choices, and a choice. `worth`: no trouble is to be taken for less."""
        ...

    def keep(self) -> None:
        """From now on `spare` and `certificate` are of the last bound."""
        ...

    def spare(self) -> dict[int, Ints]:
        """Per node, for each strategy how much more than the bound every choice with it costs at least."""
        ...

    def certificate(self, prices: Prices) -> EliminationCertificate | ShareCertificate:
        """What certifies the bound, with the multipliers."""
        ...


@dataclass(eq=False)
class Relaxation:
    """The best bound so far with its multipliers (units of 1 / PRICE_UNIT), and the choices seen on the way."""

    places: Places
    engine: Engine
    most: int  # that any choice costs
    bound: int = -FORBIDDEN
    multipliers: Mapping[int, int] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    tried: dict[int, Mapping[int, int]] = field(default_factory=dict)  # multipliers, by the bound that they gave

    @staticmethod
    def of(places: Places, most_work: int = MOST_WORK) -> Relaxation:
        """By elimination. Raises TooWide."""
        return Relaxation(places, Whole(places, most_work), cost_bound(places.problem))

    @staticmethod
    def shared(places: Places, most_work: int = MOST_WORK) -> Relaxation:
        """Of any problem: its bound may stay below the least of all choices."""
        return Relaxation(places, Shares(places, most_work), cost_bound(places.problem))

    @staticmethod
    def at_most(places: Places, most_work: int) -> Relaxation:
        """By elimination; by shares where that would go through more entries."""
        try:
            return Relaxation.of(places, most_work)
        except TooWide:
            return Relaxation.shared(places, most_work)

    def among(self, problem: AssignmentProblem, near: Sequence[Sequence[int]], most_work: int) -> Relaxation:
        """Of what is left of the problem if `near` are its strategies, beginning with these multipliers and, where both
        are by shares, where this bound stands.
        """
        found = Relaxation.at_most(places_of(problem), most_work)
        if isinstance(found.engine, Shares) and isinstance(self.engine, Shares):
            found.engine.follow(self.engine, near)
        found.attempt(found.placed(self.named))
        return found

    @property
    def whole(self) -> bool:
        """Whether the bound is that of the multipliers."""
        return self.engine.whole

    @property
    def impossible(self) -> bool:
        """Whether the bound is above all that a choice can cost: there is none that fits."""
        return self.bound > self.most

    def best(self) -> Trial | None:
        """The cheapest choice seen that fits."""
        return min((trial for trial in self.trials if trial.fits), key=lambda trial: trial.cost, default=None)

    @property
    def by_cost(self) -> list[Trial]:
        """The choices seen, those that fit first, the cheapest first."""
        return sorted(self.trials, key=lambda trial: (not trial.fits, trial.cost))

    def settled(self, gap: float) -> bool:
        best = self.best()
        return best is not None and best.cost - self.bound <= gap * abs(best.cost)

    def ascend(self, gap: float, until: float = inf, enough: int = FORBIDDEN) -> None:
        """Tries multipliers until the best choice seen is within `gap` of the bound, or the bound has settled.

        `until`: the moment, by the monotonic clock, at which to stop in any case. `enough`: a bound that will do.
        """
        if not self.tried:
            self.begin()
        raised, vain = self.bound, 0
        for _ in range(1, _TRIALS):
            if self.impossible or self.bound >= enough or self.settled(gap):
                return
            if self.bound > raised + _RISING * abs(raised):
                raised, vain = self.bound, 0
            if not self.whole and vain == _IN_VAIN:
                break
            vain += 1
            following = self._promising() if self.trials and time.monotonic() <= until else None
            if following is None:
                break
            self.attempt(self._between() if following in self.tried.values() else following)
        if self.trials and time.monotonic() <= until:
            self._until_something_fits()

    def begin(self) -> None:
        """The first elimination: no limit matters, and peaks are priced where they will probably be."""
        self.attempt(_start(self.places))

    @property
    def named(self) -> dict[tuple[int, int], int]:
        """The multipliers by (resource, instant)."""
        places = self.places
        return {(int(places.resource[p]), int(places.instant[p])): k for p, k in self.multipliers.items()}

    def placed(self, named: Mapping[tuple[int, int], int]) -> dict[int, int]:
        """Such multipliers on the places that there are."""
        where = zip(self.places.resource.tolist(), self.places.instant.tolist(), strict=True)
        known = {at: place for place, at in enumerate(where)}
        return {known[at]: price for at, price in named.items() if at in known}

    def attempt(self, multipliers: Mapping[int, int]) -> None:
        """Maybe a better bound, maybe a choice not seen."""
        limits = limits_worth(self.places, multipliers)
        least, choice = self.engine.least(multipliers, self.bound + limits)
        bound = least - limits
        self.tried[bound] = dict(multipliers)
        if bound > self.bound:
            self.bound, self.multipliers = bound, dict(multipliers)
            self.engine.keep()
        if all(choice != trial.choice for trial in self.trials):
            trial = examine(self.places, choice)
            if trial.linear < FORBIDDEN // 2:
                self.trials.append(trial)

    def _promising(self) -> dict[int, int] | None:
        """The multipliers at which the choices seen allow the best bound, none far from the best so far."""
        from .cutting import highest  # loads a linear-programming library, needed only where resources bind

        top, multipliers = highest(self.places, self.trials, self.multipliers, self._steps())
        if top <= self.bound + _SETTLED * abs(self.bound):
            return None
        return multipliers

    def _between(self) -> dict[int, int]:
        """Half way between the two multipliers that gave the best bounds: where choices seen tell of none that are new,
        as those of a bound below all choices may, the bound is a concave function of the multipliers still.
        """
        best = [self.tried[bound] for bound in sorted(self.tried)[-2:]]
        places = dict.fromkeys(place for some in best for place in some)
        return {place: sum(some.get(place, 0) for some in best) // len(best) for place in places}

    def _steps(self) -> dict[int, float]:
        """Per place that some choice overfills the largest multiplier to try next."""
        scale = max(abs(self.trials[0].cost), 1)
        active = dict.fromkeys(place for trial in self.trials for place in self.places.worst(trial.profile))
        active |= dict.fromkeys(self.multipliers)
        steps = {}
        for place in active:
            first = scale / max(int(min(self.places.limit[place], max(t.profile[place] for t in self.trials))), 1)
            price = self.places.problem.price(int(self.places.resource[place]))
            steps[place] = max(first / _FIRST_STEP, _STEP * self.multipliers.get(place, 0) / PRICE_UNIT, float(price))
        return steps

    def _until_something_fits(self) -> None:
        """Dearer and dearer places, for a first choice that fits."""
        multipliers = dict(self.multipliers) or _start(self.places)
        for _ in range(4):
            if self.best() is not None or not multipliers:
                return
            multipliers = {place: value * 4 for place, value in multipliers.items()}
            if self._too_dear(multipliers):
                return
            self.attempt(multipliers)

    def _too_dear(self, multipliers: Mapping[int, int]) -> bool:
        """Whether charges could come near what stands for forbidden."""
        most = max((int(trial.profile.max(initial=0)) for trial in self.trials), default=0)
        return sum(multipliers.values()) // PRICE_UNIT * most > FORBIDDEN // 16


def limits_worth(places: Places, multipliers: Mapping[int, int]) -> int:
    """Σ_r limit_r · max(0, s_r − price_r), rounded up."""
    sums: dict[int, int] = {}
    for place, value in multipliers.items():
        r = int(places.resource[place])
        sums[r] = sums.get(r, 0) + value
    problem = places.problem
    worth = sum(int(problem.limits[r]) * max(0, s - problem.price(r) * PRICE_UNIT) for r, s in sums.items())
    return -(-worth // PRICE_UNIT)


def _start(places: Places) -> dict[int, int]:
    """The whole price of every priced peak on the place that is fullest at the least."""
    least = [0] * (len(places) + 1)
    for row in places.rows:
        if row.supply < 0:
            for begin, end in zip(row.begin.tolist(), row.end.tolist(), strict=True):
                least[begin] += int(row.amounts.min())
                least[end] -= int(row.amounts.min())
    for place in range(1, len(least)):
        least[place] += least[place - 1]
    found = {}
    for r in places.limited:
        if places.problem.price(r):
            mine = [p for p in range(len(places)) if places.resource[p] == r]
            found[max(mine, key=lambda p: least[p])] = places.problem.price(r) * PRICE_UNIT
    return found
