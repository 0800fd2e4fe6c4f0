"""Which engines run, by size after reduction, and for how long.

- *tiny* (what a planner usually asks): CP-SAT alone;
- *small*: a few seconds of duals and moves for a good start, then toulbar2 and CP-SAT side by side (one after the other
  with one job);
- *large*: dual ascent and moves until the time is up, side by side with two jobs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from . import exact, wcsp
from .answer import Certificate, DualCertificate, Step
from .certificate import dual_certificate
from .check import certified_bound
from .flat import flat_loads, flatten
from .incumbent import Incumbent
from .search import Search, climb
from .trws import Ascent, certified

_TINY_ENTRIES = 20_000
_EXACT_ENTRIES = 400_000  # pair entries up to which CP-SAT's model is built


@dataclass(frozen=True)
class Plan:
    """What was asked of `solve`."""

    time_limit: float
    seed: int
    jobs: int
    iteration_limit: int | None


def run(incumbent: Incumbent, steps: tuple[Step, ...], plan: Plan) -> Certificate | None:
    """Runs the engines; returns what certifies the incumbent's bound."""
    entries = incumbent.model.pair_entries
    if entries <= _TINY_ENTRIES:
        exact.run_exact(incumbent, plan.seed, _work(plan))
        return incumbent.proof
    duals = _Duals(incumbent, plan)
    reserve = _reserve(entries)
    incumbent.deadline -= reserve
    if entries <= wcsp.ENTRY_LIMIT and _memory_rows(incumbent) <= 20_000_000:
        _small(incumbent, plan, duals, entries)
    else:
        _large(incumbent, plan, duals)
    incumbent.deadline += reserve
    return duals.certificate(steps) or incumbent.proof


def _work(plan: Plan) -> float | None:
    """CP-SAT's deterministic time for an iteration limit."""
    return None if plan.iteration_limit is None else max(0.01, plan.iteration_limit / 100)


def _reserve(entries: int) -> float:
    """Seconds kept for the exact bound at the end."""
    return 0.5 + 1e-6 * entries


def _memory_rows(incumbent: Incumbent) -> int:
    return len(incumbent.loads.values)


class _Duals:
    """The ascent and the moves of one solve, on arrays that both share."""

    def __init__(self, incumbent: Incumbent, plan: Plan) -> None:
        self.incumbent = incumbent
        self.flat, self.loads = flatten(incumbent.model), flat_loads(incumbent.loads)
        self.ascent = Ascent.begin(self.flat, self.loads)
        self.search = Search.begin(self.flat, self.loads, incumbent, plan.seed)

    def climb(self, seconds: float, steps: int) -> None:
        climb(self.ascent, self.incumbent, steps, seconds)

    def certificate(self, steps: tuple[Step, ...]) -> DualCertificate | None:
        """The certificate of the best duals, if its exact bound is better than what an engine has proved."""
        incumbent, known = self.incumbent, self.incumbent.bound
        if not math.isfinite(self.ascent.best.bound) or (known is not None and known >= self.ascent.best.bound + 1):
            return None
        best = certified(self.flat, self.loads, self.ascent.best)
        made = dual_certificate(incumbent.model, incumbent.loads, self.flat, best, steps)
        bound = certified_bound(incumbent.model.problem, made)
        if known is not None and known >= bound:
            return None
        incumbent.bound = bound
        return made


def _small(incumbent: Incumbent, plan: Plan, duals: _Duals, entries: int) -> None:
    warm = min(0.1 * plan.time_limit, 10.0)
    steps = plan.iteration_limit if plan.iteration_limit is not None else 10**9
    for share in (0.3, 0.7):
        duals.climb(share * warm, steps)
        multipliers = duals.search.from_duals(duals.ascent.best)
    duals.search.improve(multipliers, 10)
    _need_priced_places(incumbent, duals)
    engines: list[Callable[[], None]] = []
    if plan.iteration_limit is None:
        engines.append(lambda: wcsp.run_wcsp(incumbent, plan.seed))
    if entries <= _EXACT_ENTRIES:
        engines.append(lambda: exact.run_exact(incumbent, plan.seed, _work(plan)))
    if plan.iteration_limit is None:
        engines.append(lambda: _keep_moving(duals, 10**9))
    _side_by_side(engines, plan.jobs, incumbent)


def _need_priced_places(incumbent: Incumbent, duals: _Duals) -> None:
    """The instants that the duals price highest are stated from the start."""
    prices = duals.ascent.best.multipliers
    places = sorted((p for p in prices.nonzero()[0].tolist()), key=lambda p: -prices[p])[:6]
    incumbent.need(places)


def _side_by_side(engines: list[Callable[[], None]], jobs: int, incumbent: Incumbent) -> None:
    """At most `jobs` engines at a time; with one job each gets an equal share of what is left."""
    if jobs == 1:
        for i, engine in enumerate(engines):
            deadline = incumbent.deadline
            incumbent.deadline -= incumbent.left * (1 - 1 / (len(engines) - i))
            engine()
            incumbent.deadline = deadline
        return
    waiting = list(engines)

    def work() -> None:
        while waiting and incumbent.left > 0.0:
            waiting.pop(0)()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _large(incumbent: Incumbent, plan: Plan, duals: _Duals) -> None:
    steps = plan.iteration_limit if plan.iteration_limit is not None else 10**9
    first = 0.08 * plan.time_limit
    duals.climb(first, steps)
    duals.search.from_duals(duals.ascent.best)

    def climbing() -> None:
        duals.climb(0.45 * plan.time_limit, steps)

    def moving() -> None:
        _keep_moving(duals, steps)

    if plan.jobs > 1:
        _side_by_side([climbing, moving], plan.jobs, incumbent)
    else:
        climbing()
        moving()


def _keep_moving(duals: _Duals, rounds: int) -> None:
    """Moves and fresh descents from the latest duals, in turn, until the time is up."""
    search, incumbent = duals.search, duals.incumbent
    for _ in range(rounds):
        if incumbent.left <= 0.0:
            return
        multipliers = search.from_duals(duals.ascent.best)
        search.improve(multipliers, 20)
