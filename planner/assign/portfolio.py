"""Which engines run, by size after reduction, and for how long.

- *tiny* (what a planner usually asks): CP-SAT alone;
- *small*: toulbar2 from the first moment, beside it duals and moves for a good start and then CP-SAT (in turn with one
  job);
- *large*: dual ascent beside moves, and when it has settled, moves on both sides.

Each lane of engines is a thread: the compiled loops, CP-SAT and the other process all leave the interpreter free.
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
_FIRST_STEPS = 1  # of the ascent, before the first feasible labels give it something to aim at
_RESERVE = 2.0  # the exact bound at the end takes up to so many times as long as the reduction
_GRACE = 1.0  # seconds for a lane to notice that the time is up

_Engine = Callable[[], None]


@dataclass(frozen=True)
class Plan:
    """What was asked of `solve`."""

    time_limit: float
    prepared_s: float  # what reading the problem into a model took: the pace of this machine now
    seed: int
    jobs: int
    iteration_limit: int | None


def run(incumbent: Incumbent, steps: tuple[Step, ...], plan: Plan) -> Certificate | None:
    """Runs the engines; returns what certifies the incumbent's bound."""
    entries = incumbent.model.pair_entries
    if entries <= _TINY_ENTRIES:
        exact.run_exact(incumbent, plan.seed, _work(plan))
        return incumbent.proof
    reserve = min(0.2 + _RESERVE * plan.prepared_s, 0.15 * plan.time_limit)
    incumbent.deadline -= reserve
    duals = _Duals(incumbent, plan)
    several = int((incumbent.model.label_counts > 1).sum())
    if entries <= wcsp.ENTRY_LIMIT and several <= wcsp.NODE_LIMIT:
        _small(incumbent, plan, duals, entries <= _EXACT_ENTRIES)
    else:
        _large(incumbent, plan, duals)
    incumbent.deadline += reserve
    return duals.certificate(steps) or incumbent.proof


def _work(plan: Plan) -> float | None:
    """CP-SAT's deterministic time for an iteration limit."""
    return None if plan.iteration_limit is None else max(0.01, plan.iteration_limit / 100)


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


def _small(incumbent: Incumbent, plan: Plan, duals: _Duals, exact_fits: bool) -> None:
    def warm_up() -> None:
        _warm_up(incumbent, plan, duals)

    def network() -> None:
        wcsp.run_wcsp(incumbent, plan.seed)

    def polytope() -> None:
        if exact_fits:
            exact.run_exact(incumbent, plan.seed, _work(plan))

    def moving() -> None:
        _keep_moving(duals, duals.search, _rounds(plan))

    if plan.iteration_limit is not None:
        _in_turn(incumbent, [warm_up, polytope] if exact_fits else [warm_up, moving])
    elif plan.jobs == 1:
        _in_turn(incumbent, [network, warm_up, polytope, network] if exact_fits else [network, warm_up, network])
    elif plan.jobs == 2:
        _side_by_side(incumbent, [[network], [warm_up, polytope, moving]])
    else:
        _side_by_side(incumbent, [[network], [polytope], [warm_up, moving]])


def _warm_up(incumbent: Incumbent, plan: Plan, duals: _Duals) -> None:
    """Duals, feasible labels from them, and the rows that the duals price highest for the engines to state at once."""
    seconds = min(0.1 * plan.time_limit, 10.0) if plan.iteration_limit is None else math.inf
    for steps, share in ((_FIRST_STEPS, 0.1), (_rounds(plan), 0.3), (_rounds(plan), 0.6)):
        if incumbent.left > 0.0:
            duals.climb(share * seconds, steps)
            multipliers = duals.search.from_duals(duals.ascent.best)
            duals.search.improve(multipliers, 5)
    prices = duals.ascent.best.multipliers
    incumbent.need(sorted(prices.nonzero()[0].tolist(), key=lambda p: -prices[p])[:6])


def _rounds(plan: Plan) -> int:
    return plan.iteration_limit if plan.iteration_limit is not None else 10**9


def _large(incumbent: Incumbent, plan: Plan, duals: _Duals) -> None:
    duals.climb(0.05 * plan.time_limit, _FIRST_STEPS)
    duals.search.from_duals(duals.ascent.best)
    other = Search.begin(duals.flat, duals.loads, incumbent, plan.seed + 1)

    def climbing() -> None:
        duals.climb(0.6 * plan.time_limit, _rounds(plan))

    def moving() -> None:
        _keep_moving(duals, duals.search, _rounds(plan))

    def moving_too() -> None:
        _keep_moving(duals, other, _rounds(plan))

    if plan.jobs == 1:
        climbing()
        moving()
    else:
        _side_by_side(incumbent, [[climbing, moving_too], [moving]])


def _keep_moving(duals: _Duals, search: Search, rounds: int) -> None:
    """Descents from new duals, oscillation and moves, in turn, until the time is up."""
    incumbent, bound = search.incumbent, -math.inf
    for round_ in range(rounds):
        if incumbent.left <= 0.0:
            return
        if round_ == 0 or duals.ascent.best.bound > bound + 1e-3 * abs(bound):
            bound = duals.ascent.best.bound
            multipliers = search.from_duals(duals.ascent.best)
        if incumbent.labels is None:
            continue
        labels = incumbent.labels.copy()
        priced_best = search.oscillate(labels, multipliers.copy(), 60)
        search.improve(priced_best, 3)


def _in_turn(incumbent: Incumbent, engines: list[_Engine]) -> None:
    """One after the other, each with an equal share of the time that is left."""
    deadline = incumbent.deadline
    for i, engine in enumerate(engines):
        if incumbent.finished.is_set():
            return
        incumbent.deadline = deadline - incumbent.left * (1 - 1 / (len(engines) - i))
        engine()
        incumbent.deadline = deadline


def _side_by_side(incumbent: Incumbent, lanes: list[list[_Engine]]) -> None:
    """Every lane in a thread of its own. What still compiles when the time is up is not waited for."""
    failures: list[BaseException] = []

    def work(lane: list[_Engine]) -> None:
        try:
            for engine in lane:
                if incumbent.left > 0.0:
                    engine()
        except BaseException as error:
            failures.append(error)
            incumbent.finished.set()

    threads = [threading.Thread(target=work, args=(lane,), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and incumbent.left > 0.0:
            thread.join(min(incumbent.left, 0.2))
        thread.join(_GRACE)
    if failures:
        raise failures[0]
