"""Which engines run, by size after reduction, and for how long.

- *tiny* (what a planner usually asks): CP-SAT alone;
- *small*: toulbar2 from the first moment, beside it duals and moves for a good start and then CP-SAT (in turn with one
  job); moves again where these have not ended soon, because random costs that couple everything are beyond proofs;
- *large*: dual ascent beside moves, and when it has settled, moves on both sides.

Each lane of engines is a thread: the compiled loops, CP-SAT and the other process all leave the interpreter free.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..answer import DualCertificate, Step
from ..check_duals import dual_bound
from . import exact, wcsp
from .anneal import Annealing
from .certificate import dual_certificate
from .flat import Floats, flatten
from .incumbent import Incumbent
from .search import Search, climb
from .trws import Ascent, Duals, certified
from .wide import WideMoves

_TINY_ENTRIES = 20_000
_EXACT_ENTRIES = 400_000  # pair entries up to which CP-SAT's model is built
_FIRST_STEPS = 1  # of the ascent, before the first feasible labels give it something to aim at
_LARGE_FIRST_STEPS = 10  # of the ascent of a large problem, before labels are decoded from it
_SHAKEN = 0.3  # the share of perturbed rounds, every other time
_NEWS = 1e-3  # labels are decoded again once the bound is so much better
_RESERVE = 2.0  # the exact bound takes up to so many times as long as the reduction
_GRACE = 0.3  # seconds for the lanes to notice that the time is up

_ALONE = 0.2  # of the time limit, in which exact engines prove what they can before moves take a share of two cores
_ON_TOP = 0.5  # of the time spent, for the duals to climb on once an exact solver is done

_Engine = Callable[[], None]
Certified = tuple[int, DualCertificate]


@dataclass(frozen=True)
class Effort:
    """What was asked of `solve`."""

    time_limit: float
    prepared_s: float  # what reading the problem into a model took: the pace of this machine now
    seed: int
    jobs: int
    iteration_limit: int | None


def run(incumbent: Incumbent, steps: tuple[Step, ...], effort: Effort) -> Certified:
    """Runs the engines; returns the best bound that can be recomputed.

    An interrupt ends them like the time limit, once there is something to show.
    """
    least = incumbent.tally.least(), DualCertificate(steps, (), (), 1, (), 1)
    entries = incumbent.model.pair_entries
    if entries <= _TINY_ENTRIES:
        exact.run_exact(incumbent, effort.seed, _work(effort))
        return least
    several = int((incumbent.model.label_counts > 1).sum())
    small = entries <= wcsp.ENTRY_LIMIT and several <= wcsp.NODE_LIMIT
    reserve = min(0.2 + (_RESERVE if small else 0.2) * effort.prepared_s, 0.15 * effort.time_limit)
    incumbent.deadline -= reserve
    duals = _Duals(incumbent, effort, steps, least)
    incumbent.raise_bound(least[0])

    def work() -> None:
        if small:
            _small(incumbent, effort, duals, entries <= _EXACT_ENTRIES)
        else:
            _large(incumbent, effort, duals)

    try:
        _side_by_side(incumbent, [[work]])  # what compiles does not keep the caller past the deadline
    except KeyboardInterrupt as interrupt:
        incumbent.finished.set()
        if incumbent.labels is None or type(interrupt) is not KeyboardInterrupt:  # being terminated is no question
            raise
    incumbent.deadline += reserve
    incumbent.close()
    _certify(incumbent, effort, duals)
    return duals.made


def _certify(incumbent: Incumbent, effort: Effort, duals: _Duals) -> None:
    """Counts the best duals exactly. Where a solver claims more on its word, they climb on for a while first."""
    over = incumbent.again(max(0.0, incumbent.deadline - time.monotonic()))
    claimed = incumbent.claim is not None and incumbent.claim.bound is not None

    def work() -> None:
        if claimed and effort.iteration_limit is None:
            spent = time.monotonic() - incumbent.began
            climb(duals.ascent, over, _rounds(effort), min(_ON_TOP * spent, 0.5 * over.left))
        duals.certify(over)

    _side_by_side(over, [[work]])


def _work(effort: Effort) -> float | None:
    """CP-SAT's deterministic time for an iteration limit."""
    return None if effort.iteration_limit is None else max(0.01, effort.iteration_limit / 100)


class _Duals:
    """The ascent and the moves of one solve, on arrays that both share."""

    def __init__(self, incumbent: Incumbent, effort: Effort, steps: tuple[Step, ...], least: Certified) -> None:
        self.incumbent, self._steps, self.made = incumbent, steps, least
        self.flat, self.loads = flatten(incumbent.model), incumbent.loads
        self.ascent = Ascent.begin(self.flat, self.loads)
        self.search = Search.begin(self.flat, self.loads, incumbent, effort.seed)
        self._counted: Duals | None = None

    def climb(self, seconds: float, steps: int) -> None:
        climb(self.ascent, self.incumbent, steps, seconds)

    def certify(self, incumbent: Incumbent) -> None:
        """Counts the bound of the best duals exactly, if it may be better than what was counted before."""
        best = self.ascent.best
        if best is self._counted or not math.isfinite(best.bound) or self.made[0] >= best.bound + 1:
            return
        exact = certified(self.flat, self.loads, best)
        made = dual_certificate(incumbent.model, incumbent.loads, self.flat, exact, self._steps)
        bound = dual_bound(incumbent.model.problem, made)
        self._counted = best
        if bound > self.made[0]:
            self.made = bound, made
            incumbent.raise_bound(bound)


def _small(incumbent: Incumbent, effort: Effort, duals: _Duals, exact_fits: bool) -> None:
    def warm_up() -> None:
        _warm_up(incumbent, effort, duals)

    def network() -> None:
        wcsp.run_wcsp(incumbent, effort.seed)

    def polytope() -> None:
        if exact_fits:
            exact.run_exact(incumbent, effort.seed, _work(effort))

    def moving() -> None:
        _keep_moving(duals, duals.search, _rounds(effort), small=True)

    def moving_later() -> None:
        if not incumbent.finished.wait(max(0.0, incumbent.left - (1.0 - _ALONE) * effort.time_limit)):
            other = Search.begin(duals.flat, duals.loads, incumbent, effort.seed + 1)  # the start may still use its own
            _keep_moving(duals, other, _rounds(effort), small=True)

    if effort.iteration_limit is not None:
        _in_turn(incumbent, [warm_up, polytope] if exact_fits else [warm_up, moving])
    elif effort.jobs == 1:
        _in_turn(incumbent, [network, warm_up, *([polytope] if exact_fits else []), moving, network])
    elif effort.jobs == 2 and exact_fits:
        _side_by_side(incumbent, [[network], [warm_up, polytope], [moving_later]])
    elif effort.jobs == 2:
        _side_by_side(incumbent, [[network], [warm_up, moving]])
    else:
        _side_by_side(incumbent, [[network], [polytope], [warm_up, moving]])


def _warm_up(incumbent: Incumbent, effort: Effort, duals: _Duals) -> None:
    """Duals, feasible labels from them, and the rows that the duals price highest for the engines to state at once."""
    seconds = min(0.1 * effort.time_limit, 10.0) if effort.iteration_limit is None else math.inf
    for steps, share in ((_FIRST_STEPS, 0.1), (_rounds(effort), 0.3), (_rounds(effort), 0.6)):
        if incumbent.left > 0.0:
            duals.climb(share * seconds, steps)
            multipliers = duals.search.from_duals(duals.ascent.best)
            duals.search.improve(multipliers, 5)
    prices = duals.ascent.best.multipliers
    incumbent.need(sorted(prices.nonzero()[0].tolist(), key=lambda p: -prices[p])[:6])


def _rounds(effort: Effort) -> int:
    return effort.iteration_limit if effort.iteration_limit is not None else 10**9


def _large(incumbent: Incumbent, effort: Effort, duals: _Duals) -> None:
    duals.search.first()
    duals.climb(0.05 * effort.time_limit, _LARGE_FIRST_STEPS)
    duals.search.from_duals(duals.ascent.best)  # the next steps aim at the best cost: too high a one spoils them
    other = Search.begin(duals.flat, duals.loads, incumbent, effort.seed + 1)

    def climbing() -> None:
        duals.climb(min(0.6 * effort.time_limit, incumbent.left - 3 * _RESERVE * effort.prepared_s), _rounds(effort))
        duals.certify(incumbent)

    def moving() -> None:
        _keep_moving(duals, duals.search, _rounds(effort))

    def moving_too() -> None:
        _keep_moving(duals, other, _rounds(effort))

    if effort.jobs == 1:
        climbing()
        moving()
    else:
        _side_by_side(incumbent, [[climbing, moving_too], [moving]])


def _keep_moving(duals: _Duals, search: Search, rounds: int, *, small: bool = False) -> None:
    """Descents from new duals, oscillation and moves, in turn, until the time is up; of ``small`` problems wide moves
    and annealing, too.

    Labels are decoded again from better duals, but in no more than half of the time.
    """
    incumbent, bound, began, decoding = search.incumbent, -math.inf, time.monotonic(), 0.0
    more: list[_Engine] | None = None
    for _ in range(rounds):
        if incumbent.left <= 0.0:
            return
        start = time.monotonic()
        news = duals.ascent.best.bound > bound + _NEWS * abs(bound)
        if bound == -math.inf or (news and decoding <= 0.5 * (start - began)):
            bound = duals.ascent.best.bound
            multipliers = search.from_duals(duals.ascent.best)
            decoding += time.monotonic() - start
        if incumbent.labels is None:
            continue
        search.oscillate(search.decoded, multipliers, 60)
        best = search.oscillate(incumbent.labels.copy(), multipliers.copy(), 60, _SHAKEN)
        search.improve(best, 3)
        if more is None:
            more = _of_small(search, multipliers) if small else []
        for engine in more:
            engine()


def _of_small(search: Search, multipliers: Floats) -> list[_Engine]:
    """What takes long for large problems."""
    wide = WideMoves.begin(search, multipliers)
    return [*([wide.run] if wide is not None else []), Annealing.begin(search).run]


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
    deadline = incumbent.deadline  # which engines in turn shorten for a while

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
    while running := [thread for thread in threads if thread.is_alive()]:
        left = deadline - time.monotonic()
        if left <= 0.0 or incumbent.finished.is_set():
            break
        running[0].join(min(left, 0.2))
    until = time.monotonic() + _GRACE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if failures:
        raise failures[0]
