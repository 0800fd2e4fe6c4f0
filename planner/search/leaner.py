"""Other forms of a program that take less memory, tried where memory decides: states updated early, values computed
again instead of kept.

They are tried from the one that costs least to the leanest, each planned like any program, until one more makes nothing
shorter. Where there is memory for what is quickest, none is tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from ...errors import Infeasible, TimeLimit
from ...program import Operation
from ...rewrites import Rewritten
from ..early import updated_early
from ..recompute import fetched_again, recomputed, spread, ways
from ..sharding.assignment import UNLIMITED, OutOfTime
from ..sharding.shortage import Shortage
from .effort import WORTH
from .found import Found
from .question import Question
from .search import ENOUGH, OutOfReach, Search, searched
from .turns import first_answer

# Of the memory of values, nothing forgotten: what is asked for at most.
SHARES = (3 / 4, 1 / 2, 1 / 3, 1 / 4, 1 / 8)


class NothingFits(Exception):
    """No form of the program was found to fit, for these reasons; `explained` makes one of them."""

    def __init__(self, failures: list[Infeasible]) -> None:
        self.failures = failures


def answered(question: Question) -> tuple[Search, Found]:
    """The first answer, of the program or a leaner form of it. Where shares in proportion to speed are too much for
    some ranks, the best of those and of shares that are not. Raises NothingFits or TimeLimit.
    """
    found, failures = list[tuple[Search, Found]](), list[Infeasible]()
    for asked in question.within_memory:
        if found and question.clock.up:
            break
        try:
            found.append(_answered(asked))
        except NothingFits as refused:
            failures += refused.failures
        except TimeLimit:
            if not found:
                raise
    if not found:
        raise NothingFits(failures)
    by_bytes = question.objective == "bytes"
    return min(found, key=lambda each: each[1].solution.objective if by_bytes else each[1].makespan_s)


def _answered(question: Question) -> tuple[Search, Found]:
    """Of the program or a leaner form of it, with these shares."""
    failures: list[Infeasible] = []
    if question.hopeless:  # there is only to say what would do
        leanest = reduce(lambda _, form: question.of_form(form), _forms(question), question)
        raise NothingFits([OutOfReach(searched(leanest, turning=True), 0)])
    best: tuple[Search, Found] | None = None
    try:
        best = first_answer(question)
    except Infeasible as shortage:
        failures.append(shortage)
    if best is not None:
        search, found = best
        wanted = with_plenty(search, found)
        if wanted is None or wanted.candidate.peak <= question.capacity:
            return search, found if wanted is None else search.shorter(found, wanted)
    for form in _forms(question):
        if question.clock.up:
            break
        other = searched(question.of_form(form))
        try:
            found = other.first()
        except Infeasible as shortage:
            failures.append(shortage)
            continue
        except TimeLimit:
            break
        if best is not None and not _shorter(found, best[1], question):
            break
        best = other, found
    if best is None:
        raise NothingFits(failures)
    return best


def explained(failures: list[Infeasible]) -> tuple[Search, Found]:
    """Raises the error that asks for least memory. Of what was out of reach the nearest is looked at, which may fit
    after all: packing knows more of results in the place of operands than the model does.
    """
    told = [error for error in failures if not isinstance(error, OutOfReach)]
    beyond = [error for error in failures if isinstance(error, OutOfReach)]
    if beyond:
        search = min(beyond, key=lambda error: error.least).search
        try:
            return search, search.least()
        except Infeasible as shortage:
            told.append(shortage)
    raise reduce(_lesser, told)


def with_plenty(search: Search, found: Found) -> Found | None:
    """What the model would choose with memory without end, where that is better. Where there is plenty, it is not
    asked.
    """
    question = search.question
    scarce = 2 * found.candidate.peak > question.capacity
    if not scarce or question.objective != "time" or found.solution.status == "fallback" or question.clock.up:
        return None
    try:
        free = search.asked(UNLIMITED)
    except OutOfTime:
        return None
    if not free.choice or free.objective >= (1 - ENOUGH) * found.solution.objective:
        return None
    return search.lowered(free.choice, found.solution)


def _shorter(found: Found, best: Found, question: Question) -> bool:
    """Whether a plan that fits is shorter, or for the objective ``bytes`` moves less."""
    if question.objective == "bytes":
        return found.solution.objective < best.solution.objective
    return found.makespan_s < WORTH * best.makespan_s


def _lesser(one: Infeasible, other: Infeasible) -> Infeasible:
    """Of two errors the one that asks for less."""
    if isinstance(other, Shortage) and not (isinstance(one, Shortage) and one.need <= other.need):
        return other
    return one


def _forms(question: Question) -> Iterator[Rewritten]:
    """Leaner forms of the program, the one that costs least first; the leanest with weights fetched again."""
    program = question.program
    early = updated_early(program)
    form = Rewritten(program, early)
    if early != program:
        yield form
    for way in spread(ways(early, lambda op: _seconds(question, op)), SHARES):
        form = Rewritten(program, early).then(recomputed(early, way))
        yield form
    if question.mesh.size > 1:
        again = fetched_again(form.program)
        if again.steps:
            yield form.then(again)


def _seconds(question: Question, op: Operation) -> float:
    """What an operation takes where its work is shared equally."""
    return question.table.strategy(op, (None,) * len(question.mesh.shape)).slowest / question.mesh.size
