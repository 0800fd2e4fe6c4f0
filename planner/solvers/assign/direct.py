"""Problems solved as they are, supplies and prices included: elimination, and CP-SAT on what elimination leaves open.

Elimination under multipliers gives a bound L, and for every strategy how much more than L all choices with it cost. So
a choice that costs at most L + δ has only strategies that leave it that much: CP-SAT looks for the best of those, in
wider and wider shells δ. What it finds within a shell is compared with L; what it proves is a bound up to L + δ.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .answer import Assignment, Certificate, EngineClaim, Status
from .condition import Cases
from .dominance import Kept, settled, undominated
from .eliminate import affordable
from .factors import TooWide
from .first import first_choices
from .lagrange import Relaxation, Trial, examine
from .narrowing import Narrowing
from .places import Places, places_of
from .problem import FORBIDDEN, AssignmentProblem, cost_bound
from .prove import leaf, proof
from .standing import Terms

_FIRST_SHELL = 0.005  # of the bound
_WIDER = 8
_ENTRIES_PER_WORK = 200_000  # that are told to CP-SAT at most for each of its deterministic seconds
_MOST_IN_SHELLS = 20_000  # and where the bound may stay below all choices, so that a shell is most of it, in all
_LOOK_S = 0.1  # for every node, to see how much narrower a problem is once that is decided
_NARROW_WORK = 2_000_000  # entries up to which elimination is tried on what other engines can solve too


@dataclass(frozen=True)
class Request:
    """What was asked of `solve`. `work_limit`: of CP-SAT's deterministic time. `began`: by the monotonic clock."""

    began: float
    time_limit: float
    seed: int
    jobs: int
    work_limit: float | None
    gap: float
    prove: bool = True  # what an exact solver says, where that is affordable

    @property
    def left(self) -> float:
        return max(0.0, self.began + self.time_limit - time.monotonic())


@dataclass(eq=False)
class _State:
    """The best choice and the best bound so far with what certifies it; beyond that, what CP-SAT says on its word."""

    places: Places
    request: Request
    kept: Kept = ()
    best: Trial | None = None
    bound: int | None = None
    certificate: Certificate | None = None
    claim: EngineClaim | None = None
    history: tuple[tuple[float, int], ...] = ()
    infeasible: bool = False
    exhausted: bool = False

    def offer(self, choice: Sequence[int]) -> None:
        """Takes a choice if it fits and is cheaper."""
        if len(choice) != self.places.problem.node_count:
            return
        trial = examine(self.places, tuple(choice))
        if trial.fits and (self.best is None or trial.cost < self.best.cost):
            self.best = trial
            self.history += ((time.monotonic() - self.request.began, trial.cost),)

    def prove(self, bound: int, certificate: Certificate) -> None:
        if self.bound is None or bound > self.bound:
            self.bound, self.certificate = bound, certificate

    def trust(self, claim: EngineClaim) -> None:
        known = self.claim.bound if self.claim is not None else None
        if known is None or (claim.bound is not None and claim.bound > known):
            self.claim = claim

    @property
    def enough(self) -> int | None:
        """The bound that would do for the best choice."""
        return None if self.best is None else self.best.cost - int(self.request.gap * abs(self.best.cost))

    @property
    def proved(self) -> bool:
        return self.enough is not None and self.bound is not None and self.bound >= self.enough

    @property
    def done(self) -> bool:
        """Whether nothing is left to find out, CP-SAT's word taken for it."""
        claimed = self.claim.bound if self.claim is not None else None
        return (
            self.infeasible
            or self.proved
            or (self.enough is not None and claimed is not None and claimed >= self.enough)
        )

    def answer(self) -> Assignment:
        wall, seed = time.monotonic() - self.request.began, self.request.seed
        if self.infeasible:
            claim = self.claim if self.certificate is None else None
            return Assignment("infeasible", (), None, None, self.certificate, None, wall, seed, claim=claim)
        best, bound, certificate = self.best, self.bound, self.certificate
        cost = None if best is None else best.cost
        status: Status = "unknown" if best is None else "optimal" if bound == cost else "feasible"
        choice = () if best is None else best.choice
        claim = self.claim if self.claim is not None and self.claim.says_more_than(bound) else None
        return Assignment(
            status, choice, cost, bound, certificate, None, wall, seed, self.history, claim, self.exhausted
        )


def solve_directly(problem: AssignmentProblem, request: Request, hint: Sequence[int] | None = None) -> Assignment:
    """The whole of it, for any problem."""
    places = places_of(problem)
    kept = undominated(places)
    if all(len(mine) == count for mine, count in zip(kept, problem.strategy_counts.tolist(), strict=True)):
        return _solved(_State(places, request), hint)
    answer = _solved(_State(places_of(problem.restricted(kept)), request, kept), _renumbered(hint, kept))
    choice = tuple(mine[s] for mine, s in zip(kept, answer.choice, strict=False))
    return replace(answer, choice=settled(places, choice, kept)) if choice else answer


def _renumbered(hint: Sequence[int] | None, kept: Kept) -> list[int] | None:
    """A hint among the strategies that are left: the first of them where its own is not."""
    if hint is None or len(hint) != len(kept):
        return None
    return [mine.index(s) if s in mine else 0 for s, mine in zip(hint, kept, strict=True)]


def _solved(state: _State, hint: Sequence[int] | None) -> Assignment:
    state.offer(hint or ())
    relaxation = _relaxed(state)
    loose = not relaxation.whole
    if not state.infeasible and (state.best is None or (loose and not state.proved)):
        seen = [trial.choice for trial in relaxation.by_cost] if loose else []
        for choice in first_choices(Terms.of(state.places), seed=state.request.seed, also=seen):
            state.offer(choice)
    if loose and not state.infeasible:
        _narrow(state, relaxation)
    if loose and not state.done:
        _in_cases(state)
    if not state.done:
        _in_shells(state, relaxation)
        _prove(state)
    return state.answer()


def _prove(state: _State) -> None:
    """Where CP-SAT has the last word, a proof of it that can be recomputed, if that is affordable."""
    problem, wanted = state.places.problem, state.enough
    if state.infeasible:
        wanted = cost_bound(problem) + 1
    if wanted is None or not state.done or state.proved or not state.request.prove:
        return
    certificate = proof(problem, wanted, state.request.left, state.kept)
    if certificate is not None and state.infeasible:
        state.certificate = certificate
    elif certificate is not None:
        state.prove(wanted, certificate)


def solve_narrow(problem: AssignmentProblem, request: Request) -> Assignment | None:
    """What a single elimination finds and proves; None where the problem is too wide for it."""
    state = _State(places_of(problem), request)
    try:
        relaxation = Relaxation.of(state.places, _NARROW_WORK)
    except TooWide:
        return None
    relaxation.begin()
    _take(state, relaxation)
    return state.answer()


def _relaxed(state: _State) -> Relaxation:
    """Elimination under multipliers, or shares where the problem is too wide."""
    relaxation = Relaxation.at_most(state.places, affordable(state.request.left))
    relaxation.ascend(state.request.gap, state.request.began + state.request.time_limit)
    _take(state, relaxation)
    return relaxation


def _narrow(state: _State, relaxation: Relaxation) -> None:
    """Bounds, round after round, of what may still be in a better choice: what is left is soon eliminated. Where the
    best choice is near enough to the bound that alone is done.
    """
    narrowing = Narrowing.of(state.places.problem, relaxation)
    until = state.request.began + state.request.time_limit
    while state.best is not None and narrowing.bound < state.best.cost and state.request.left:
        for choice in narrowing.promising(state.best.cost, until) if not state.proved else ():
            state.offer(choice)
        if not narrowing.narrow(state.best.cost, 0.0, until, whole=state.proved):
            return
        for choice in narrowing.choices():
            state.offer(choice)
        state.prove(narrowing.bound, replace(narrowing.certificate, kept=state.kept))


def _in_cases(state: _State) -> None:
    """Elimination case by case, the most promising first, where that narrows a problem enough."""
    if state.request.left < _LOOK_S * state.places.problem.node_count:
        return
    try:
        cases = Cases.of(state.places.problem)
    except TooWide:
        return
    for relaxation in cases.relaxations:
        if not state.request.left:
            return  # what has not begun bounds nothing
        relaxation.begin()
    for relaxation in sorted(cases.relaxations, key=lambda case: case.bound):
        for choice in cases.choices():
            state.offer(choice)
        enough = FORBIDDEN if state.enough is None else state.enough
        if relaxation.bound < enough and not relaxation.impossible and state.request.left:
            relaxation.ascend(state.request.gap, state.request.began + state.request.time_limit, enough)
    for choice in cases.choices():
        state.offer(choice)
    if all(relaxation.impossible for relaxation in cases.relaxations):
        state.infeasible, state.certificate = True, replace(cases.certificate, kept=state.kept)
    else:
        state.prove(cases.bound, replace(cases.certificate, kept=state.kept))


def _take(state: _State, relaxation: Relaxation) -> None:
    """What elimination has found and proved."""
    if relaxation.impossible:
        state.infeasible, state.certificate = True, _certificate(relaxation, state.kept)
        return
    state.prove(relaxation.bound, _certificate(relaxation, state.kept))
    for trial in relaxation.trials:
        state.offer(trial.choice)


def _certificate(relaxation: Relaxation, kept: Kept) -> Certificate:
    return replace(leaf(relaxation), kept=kept)


def _in_shells(state: _State, relaxation: Relaxation) -> None:
    """The strategies within δ of the bound, for wider and wider δ, decided by CP-SAT."""
    spare, low, loose = relaxation.engine.spare(), relaxation.bound, not relaxation.whole
    if loose and _entries(state.places.problem, _allowed(state.places.problem, None, 0)) > _MOST_IN_SHELLS:
        state.exhausted = True
        return
    reach = max(1, int(abs(low) * max(_FIRST_SHELL, state.request.gap)))
    while not state.done and state.request.left > 0:
        if state.best is not None:
            reach = min(reach, state.best.cost - low)
        allowed = _allowed(state.places.problem, spare, reach)
        whole = _allowed(state.places.problem, None, reach)
        everything = all((some == all_).all() for some, all_ in zip(allowed, whole, strict=True))
        outside = None if everything else low + reach + 1
        if not _within(state, allowed, outside) or everything:
            return
        if state.best is not None and state.best.cost <= low + reach:
            return
        reach *= _WIDER


def _allowed(
    problem: AssignmentProblem, spare: dict[int, NDArray[np.int64]] | None, reach: int
) -> list[NDArray[np.bool_]]:
    """Strategies that some choice within reach of the bound may have; all that are not forbidden, if that is all."""
    open_ = [problem.costs[v] < FORBIDDEN // 2 for v in range(problem.node_count)]
    return open_ if spare is None else [mask & (spare[v] <= reach) for v, mask in enumerate(open_)]


def _entries(problem: AssignmentProblem, allowed: list[NDArray[np.bool_]]) -> int:
    """About how much CP-SAT would be told of: the strategies, and what they supply item by item."""
    strategies = [int(mask.sum()) for mask in allowed]
    return sum(strategies) + sum(strategies[supply.source] * supply.item_count for supply in problem.supplies)


def _within(state: _State, allowed: list[NDArray[np.bool_]], outside: int | None) -> bool:
    """CP-SAT on some strategies; `outside` is the least cost of any other choice. Whether it came to an end.

    It is not asked where it would only be told of the problem in the time that it has.
    """
    request = state.request
    if (
        request.work_limit is not None
        and _entries(state.places.problem, allowed) > request.work_limit * _ENTRIES_PER_WORK
    ):
        return False
    from .integer import engine, solve_integer

    found = solve_integer(
        state.places, allowed, state.best.choice if state.best is not None else None,
        time_limit=request.left, work_limit=request.work_limit, seed=request.seed, jobs=request.jobs,
    )  # fmt: skip
    if found.status == "infeasible" and outside is None:
        state.infeasible, state.certificate = True, None
        state.claim = EngineClaim(engine(), "infeasible", None)
        return True
    state.offer(found.choice)
    bounds = [b for b in (found.bound if found.status != "infeasible" else outside, outside) if b is not None]
    if bounds:
        name = engine() if outside is None else f"elimination and {engine()}"
        state.trust(EngineClaim(name, found.status, min(bounds)))
    return found.status in ("optimal", "infeasible")
