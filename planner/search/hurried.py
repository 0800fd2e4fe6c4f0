"""A plan on one host where the time is short: on a mesh that crosses hosts, the strategies alone of all ranks may take
longer than all of that.

What is found so is the answer where nothing shorter is found in the time that is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from ...errors import TimeLimit
from ..clock import Clock, now
from ..lowering.decisions import Decisions
from ..sharding.assignment import OutOfTime
from ..sharding.model import least_objective
from ..sharding.solving import Solution
from ..strategy.grouping import Grouping, groupings
from .found import Found
from .groups import GroupCosts, Inner, by_itself, inner_of, left_to
from .question import Question
from .search import Search
from .unsolved import unsolved

# Seconds of a time limit that is short, and the share of it that this may take.
SHORT, SHARE = 30.0, 0.4
SOON = 0.1  # of all of the time, what it takes even if there is less left


def on_one_host(question: Question) -> Found | None:
    """All of the program on one host of a mesh of several, the others idle: as the solver says, or by a choice that
    needs none. None where there is time to look at all ranks first, or it does not fit.
    """
    clock, machine = question.clock, question.machine
    if question.objective != "time" or question.pins or clock.limit > SHORT:
        return None
    hosts = (g for g in groupings(question.mesh, machine) if g.inner.size == machine.devices_per_host)
    grouping = next(hosts, None)
    if grouping is None or question.mesh.size == grouping.inner.size:
        return None
    for inner in _inners(question, grouping):
        costs = GroupCosts(question, grouping, _without_operations(question), inner)
        found = left_to(question, costs, costs.quickest)
        if found is not None or clock.up:
            return found
    return None


def _inners(question: Question, grouping: Grouping) -> Iterator[Inner]:
    """How a host by itself may be cut: as the solver says, and as is found without one."""
    clock = question.clock
    clock = Clock(clock.limit, now() + max(SOON * clock.limit, SHARE * clock.left) - clock.limit, late=inf)
    try:
        search = by_itself(question, grouping.inner, clock)
    except TimeLimit:
        return
    if search.least_held > question.capacity:
        return
    choice = next(unsolved(search))
    solved = _solved(search, question.capacity)
    if solved is not None and solved.choice:
        yield inner_of(search, solved)
    yield inner_of(search, Solution("fallback", choice, search.costs.of(choice), least_objective(search.model)))


def _solved(search: Search, budget: int) -> Solution | None:
    """What the solver says in the time that is left."""
    try:
        return None if search.question.clock.up else search.asked(budget)
    except OutOfTime:
        return None


def _without_operations(question: Question) -> Decisions:
    """What lies on all ranks though no operation is computed there."""
    constants = question.program.of_role("const")
    return Decisions({tensor.name: question.layouts.replicated(tensor.shape) for tensor in constants}, {}, {})
