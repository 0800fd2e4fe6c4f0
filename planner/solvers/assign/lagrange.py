"""Bounds and choices where resources bind: elimination with a multiplier on each place that matters.

For multipliers λ ≥ 0 on places, with s_r the sum of those of resource r, every choice that fits costs at least

    min over choices of (cost + Σ_p λ_p · what is in use at p)  −  Σ_r limit_r · max(0, s_r − price_r)

because what a peak costs is at least price_r times any average of the loads, and no load exceeds the limit. Elimination
finds the minimum; a linear program over the choices seen so far (cutting planes: Kelley, 1960) says where to look next.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from .eliminate import MOST_WORK, Elimination
from .factors import PRICE_UNIT, Factors, TooWide
from .parts import parted
from .places import Places, asked_of, places_of
from .problem import FORBIDDEN, AssignmentProblem, Ints, cost_bound
from .supply import supplied

_TRIALS = 24  # eliminations in one ascent
WIDEST = 100_000  # entries of a bucket where one of all that meet would be too wide
_TRIALS_PARTED = 72  # eliminations where variables have several buckets
_PASSES = 100  # entries of all buckets together are about so many times those of the widest
_LEVELLING = 3  # of which so many are made at the same multipliers
_CALMER = 0.7  # a step that brought no better bound is followed by one so much shorter
_IN_VAIN, _RISING = 16, 1e-3  # so many without that much of a better bound end an ascent
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


@dataclass(eq=False)
class Relaxation:
    """The best bound so far with its multipliers (units of 1 / PRICE_UNIT), and the choices seen on the way."""

    places: Places
    factors: Factors
    elimination: Elimination
    most: int  # that any choice costs
    bound: int = -FORBIDDEN
    multipliers: Mapping[int, int] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    attempts: int = 0
    supplies: tuple[int, ...] = ()  # that are parted
    whole: bool = True  # neither supplies nor buckets are parted: the bound is that of the multipliers
    shifts: Mapping[int, Ints] = field(default_factory=dict)  # between buckets of a variable, for the best bound
    step: float = 1.0  # of the next such shifts
    last: tuple[Mapping[int, int], int] = ({}, -FORBIDDEN)  # the last multipliers with the bound that they gave
    _charged: tuple[Mapping[int, int], list[Ints]] | None = None

    @staticmethod
    def of(places: Places, most_work: int = MOST_WORK) -> Relaxation:
        """Raises TooWide."""
        factors = Factors(places)
        elimination = Elimination(factors.sizes, factors.scopes(), most_work, factors.place)
        return Relaxation(places, factors, elimination, cost_bound(places.problem))

    @staticmethod
    def of_parts(problem: AssignmentProblem, widest: int = WIDEST) -> Relaxation:
        """Of a problem that may be too wide itself: its bound holds, its choices may cost more than they seem to.

        `widest`: entries of a bucket, and of the factor of a supply, that is taken as a whole.
        """
        supplies: tuple[int, ...] = ()
        try:
            factors = Factors(places_of(problem), widest)
        except TooWide as error:
            supplies = error.supplies
            factors = Factors(places_of(parted(problem, supplies)), widest)
        elimination = Elimination(factors.sizes, factors.scopes(), widest=widest)
        whole = not supplies and not elimination.parted
        return Relaxation(factors.places, factors, elimination, cost_bound(problem), supplies=supplies, whole=whole)

    @staticmethod
    def at_most(problem: AssignmentProblem, most_work: int, widest: int = WIDEST) -> Relaxation:
        """Of a problem; in parts where an elimination would go through more entries."""
        try:
            return Relaxation.of(places_of(problem), most_work)
        except TooWide:
            return Relaxation.of_parts(problem, max(1, min(widest, most_work // _PASSES)))

    @property
    def impossible(self) -> bool:
        """Whether the bound is above all that a choice can cost: there is none that fits."""
        return self.bound > self.most

    def best(self) -> Trial | None:
        """The cheapest choice seen that fits."""
        return min((trial for trial in self.trials if trial.fits), key=lambda trial: trial.cost, default=None)

    def choices(self, places: Places) -> list[tuple[int, ...]]:
        """The choices seen, those first that fit and cost least by a problem of which this is in parts."""
        seen = [examine(places, trial.choice) for trial in self.trials]
        return [trial.choice for trial in sorted(seen, key=lambda trial: (not trial.fits, trial.cost))]

    def settled(self, gap: float) -> bool:
        best = self.best()
        return best is not None and best.cost - self.bound <= gap * abs(best.cost)

    def ascend(self, gap: float, until: float = inf, enough: int = FORBIDDEN, trials: int = _TRIALS_PARTED) -> None:
        """Tries multipliers until the best choice seen is within `gap` of the bound, or the bound has settled.

        `until`: the moment, by the monotonic clock, at which to stop in any case. `enough`: a bound that will do.
        `trials`: eliminations at most.
        """
        if not self.attempts:
            self.begin()
        raised, since = self.bound, 0
        for trial in range(1, min(trials, _TRIALS_PARTED if self.elimination.parted else _TRIALS)):
            if self.impossible or self.bound >= enough or self.settled(gap):
                return
            if not self.trials or time.monotonic() > until:
                return
            if self.bound > raised + _RISING * abs(raised):
                raised, since = self.bound, trial
            following = None if trial > since + _IN_VAIN else self._following(trial)
            if following is None:
                break
            self.attempt(following)
        self._until_something_fits()

    def _following(self, trial: int) -> Mapping[int, int] | None:
        """The multipliers to try next: the same a few times while costs are moved between buckets."""
        if not self.elimination.parted:
            return self._promising()
        return self.last[0] if trial % _LEVELLING else self._promising() or self.last[0]

    def begin(self) -> None:
        """The first elimination: no limit matters, and peaks are priced where they will probably be."""
        self.attempt(_start(self.places))

    def resume(self, before: Relaxation) -> None:
        """Begins as another one of about the same problem ended: at its multipliers, and with its shifts between the
        buckets of every variable that has as many.
        """
        theirs = {before.factors.origin[v]: positions for v, positions in before.elimination.parted.items()}
        shifts: dict[int, Ints] = {}
        for v, positions in self.elimination.parted.items():
            of_before = theirs.get(self.factors.origin[v], [])
            known = [before.shifts[position] for position in of_before if position in before.shifts]
            if len(known) == len(positions) and all(len(shift) == self.elimination.sizes[v] for shift in known):
                shifts |= dict(zip(positions, known, strict=True))
        self.elimination.shifts = shifts
        self.attempt(self.placed(before.named))

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
        """One elimination: maybe a better bound, maybe a choice not seen."""
        self.attempts += 1
        least, values, known = self.elimination.least(self._under(multipliers))
        bound = least - limits_worth(self.places, multipliers)
        if bound > self.bound:
            self.bound, self.multipliers, self.shifts = bound, dict(multipliers), self.elimination.shifts
        if self.elimination.parted:
            if self.last[0] == multipliers and bound <= self.last[1]:
                self.step *= _CALMER
            self.elimination.even(known, self.step)
        self.last = dict(multipliers), bound
        choice = tuple(values[v] for v in range(self.places.problem.node_count))
        if all(choice != trial.choice for trial in self.trials):
            trial = examine(self.places, choice)
            if trial.linear < FORBIDDEN // 2:
                self.trials.append(trial)

    def _under(self, multipliers: Mapping[int, int]) -> list[Ints]:
        """The factors, which are the last ones where the multipliers are."""
        if self._charged is None or self._charged[0] != multipliers:
            self._charged = dict(multipliers), self.factors.under(multipliers)
        return self._charged[1]

    def _promising(self) -> dict[int, int] | None:
        """The multipliers at which the choices seen allow the best bound, none far from the best so far."""
        from .cutting import highest  # loads a linear-programming library, needed only where resources bind

        top, multipliers = highest(self.places, self.trials, self.multipliers, self._steps())
        if top <= self.bound + _SETTLED * abs(self.bound):
            return None
        return multipliers

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

    def spare(self) -> dict[int, Ints]:
        """Per node, for each strategy how much more than the bound every choice with it costs at least."""
        self.elimination.shifts = self.shifts
        least, _, known = self.elimination.least(self._under(self.multipliers))
        with_each = self.elimination.least_with(known)
        return {v: with_each[v] - least for v in range(self.places.problem.node_count)}


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
