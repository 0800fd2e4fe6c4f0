"""All of a program on one host of a mesh that crosses hosts: found first where that takes little of what a search over
all ranks takes, as where the time is short or a program is long.

Where the time is short, it is the answer if nothing shorter is found in what is left. For long programs it says whether
all ranks are looked at at all: strategies of 64 ranks with their prices take several times as long as those of 8, and
are in vain where slow links leave a program to one host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from ...errors import TimeLimit
from ..clock import Clock, now
from ..lowering.decisions import Decisions
from ..sharding.assignment import OutOfTime
from ..sharding.between import Hosts, of_hosts
from ..sharding.model import TIE, least_objective
from ..sharding.solving import Solution
from ..simulate import PriceBook
from ..strategy.grouping import Grouping, groupings
from ..strategy.mesh import Mesh
from ..strategy.strategies import StrategyTable
from .effort import MANY
from .found import Found
from .groups import PLACED, GroupCosts, by_itself, inner_of, left_to
from .question import Question
from .search import Search
from .unsolved import unsolved

# Seconds of a time limit that is short, and the share of it that this may take; of a long program more, as all ranks
# take several times as long.
SHORT, SHARE, OF_LONG = 30.0, 0.4, 0.8
SOON = 0.1  # of all of the time, what it takes even if there is less left
# All ranks are looked at where they may save this share of what one host takes, by a bound that leaves out transfers
# within hosts: of the forward pass of decoder layers on 8 hosts it says 12 %, and the best answer is 6 % longer.
SAVING = 0.1


@dataclass(frozen=True, eq=False)
class Alone:
    """The plan on one host. ``choice``: of the nodes of ``search``, the host's own problem."""

    found: Found
    grouping: Grouping
    search: Search
    choice: Mapping[int, int]

    def suffices(self, question: Question) -> bool:
        """Whether no answer on all ranks is asked for: of a long program, of which that would take long, with memory to
        spare, so that more of it would change nothing, and little to be saved.
        """
        scarce = 2 * self.found.candidate.peak > question.capacity
        wide = len(self.grouping.axes) > 1  # more options over hosts than one elimination goes through
        unsure = scarce or wide or question.machine.others or self.found.solution.status == "fallback"
        if unsure or not _long(question) or question.clock.up:
            return False
        question.say("hosts")
        mesh, (axis,) = self.grouping.mesh, self.grouping.axes
        over = Mesh((mesh.shape[axis],), (mesh.axes[axis],))
        book = PriceBook(of_hosts(question.machine), over)
        table = StrategyTable(question.program, over, book.works, book.layouts)
        work = {node: int(took[self.choice[node]]) for node, took in self.search.translation.work.items()}
        clock = Clock(question.clock.left, secured=True)
        saved = Hosts(self.search.model, work, table, book.traffic, clock).saved()
        return saved is not None and saved < SAVING * self.found.solution.objective / TIE


def on_one_host(question: Question) -> Alone | None:
    """All of the program on one host of a mesh of several, the others idle: as the solver says, or by a choice that
    needs none. None where all ranks are looked at first, or it does not fit.
    """
    clock, machine = question.clock, question.machine
    if question.objective != "time" or question.pins or (clock.limit > SHORT and not _long(question)):
        return None
    hosts = (g for g in groupings(question.mesh, machine) if g.inner.size == machine.devices_per_host)
    grouping = next(hosts, None)
    if grouping is None or question.mesh.size == grouping.inner.size:
        return None
    for search, solution in _solutions(question, grouping):
        costs = GroupCosts(question, grouping, _without_operations(question), inner_of(search, solution))
        found = left_to(question, costs, costs.quickest)
        if found is not None:
            return Alone(found, grouping, search, solution.choice)
        if clock.up:
            return None
    return None


def _long(question: Question) -> bool:
    """Whether a program is so long that the solver is asked in one view of overlap only, and that no operations are
    placed on single ranks.
    """
    count = len(question.program.operations)
    return count > MANY and count * question.mesh.size > PLACED


def _solutions(question: Question, grouping: Grouping) -> Iterator[tuple[Search, Solution]]:
    """How a host by itself may be cut: as the solver says, and as is found without one."""
    clock, short = question.clock, question.clock.limit <= SHORT
    share = OF_LONG if _long(question) else SHARE
    clock = Clock(clock.limit, now() + max(SOON * clock.limit, share * clock.left) - clock.limit, late=inf)
    try:
        search = by_itself(question, grouping.inner, clock)
    except TimeLimit:
        return
    if search.least_held > question.capacity:
        return
    choice = next(unsolved(search)) if short else {}
    solved = _solved(search, question.capacity)
    if solved is not None and solved.choice:
        yield search, solved
    choice = choice or next(unsolved(search))
    yield search, Solution("fallback", choice, search.costs.of(choice), least_objective(search.model))


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
