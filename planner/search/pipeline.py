"""From a question to a plan document: strategies, one assignment problem, its answers lowered, the shortest kept.

Where no mesh was asked for, the question is asked on several (`meshes`), and the solver answers once on each. The best
answer is then improved as that of one mesh would be. Numbers of devices on which no plan can be shorter than one that
was found are left out (`sharding.bound` proves it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import starmap
from typing import TYPE_CHECKING

import msgspec

from ...errors import Infeasible, TimeLimit
from ..clock import Clock
from ..format import Document, MeshTried
from ..machine import Machine
from ..strategy.mesh import Mesh
from .boxed import in_boxes
from .effort import FEW, WORTH
from .followers import followed
from .found import Found
from .groups import on_one_group, side_by_side
from .leaner import NothingFits, answered, explained
from .meshes import finer_meshes, plain_meshes
from .one_host import on_one_host
from .pieces import promising
from .pipelines import pipelined
from .question import Question
from .report import with_report
from .search import HOPE, Search
from .turns import improved

if TYPE_CHECKING:
    from ...rewrites import Rewritten

Asked = Callable[[Mesh, Clock], Question]  # the question on a mesh, to be answered in what a clock leaves

# Shares of the time after which no other mesh is tried, and that a try on another mesh may take at most.
TRYING, ONE_TRY = 0.6, 0.4
# Operations, each as often as it takes longer than for a few ranks, of answers that are improved beside the best.
OTHERS = 60
# Devices of several hosts, at most, that few operations are asked for in one row of.
ROW = 16
# Of few operations an answer is asked for in more rows, too, if it takes no more of the best.
ABOUT = 1.01


@dataclass(frozen=True)
class Made:
    """A plan document, and what its program is of the one that was asked about."""

    document: Document
    form: Rewritten | None


def make_plan(question: Question) -> Made:
    """The plan on one mesh. Raises Infeasible, TimeLimit or UsageError."""
    alone = on_one_host(question)
    if alone is None:
        return made_of(*_found(question))
    question.clock.secured, early = True, alone.found
    try:
        if alone.suffices(question):
            early = _on_groups(question, early, early.makespan_s) or early
        else:
            search, found = _found(question, early)
            if found is not early:
                return made_of(search, found)
    except (Infeasible, TimeLimit):
        early = on_one_group(question, early, early.makespan_s, alone.grouping.inner.size) or early
    return Made(with_report(early, None, question.bound, question), question.form)


def _found(question: Question, early: Found | None = None) -> tuple[Search, Found]:
    """The best plan of all ranks, or of some of them. ``early``: one on one host that is known."""
    try:
        search, found = answered(question)
    except NothingFits as refused:
        search, found = explained(refused.failures)
    whole = question.objective == "time" and WORTH * found.makespan_s <= search.question.bound.seconds
    if not whole:
        found = improved(search, search.settled(found))
        search, found = in_boxes(search.question, found) or (search, found)
    best = early if early is not None and early.makespan_s <= found.makespan_s else found
    if not whole:
        known = question.machine.devices_per_host if early is not None and search.question.form is question.form else 0
        best = on_one_group(search.question, found, best.makespan_s, known) or best
        best = _on_groups(search.question, found, best.makespan_s) or best
    return search, best


def made_of(search: Search, found: Found) -> Made:
    """The document of what was found, with the bound on all plans of its program."""
    question = search.question
    return Made(with_report(found, search.model, question.bound, question), question.form)


def _on_groups(question: Question, best: Found, below: float) -> Found | None:
    """The shortest plan of less than ``below`` seconds with operations on groups of ranks: side by side, with pieces
    of a batch that follow one another, or in stages.

    ``best`` is the best plan without.
    """
    found = None
    for other in (side_by_side, followed, pipelined):
        found = other(question, best, found.makespan_s if found else below) or found
    return found


@dataclass(frozen=True)
class _Answer:
    """The first answer on a mesh."""

    search: Search
    found: Found

    @property
    def rows(self) -> tuple[int, ...]:
        return self.search.question.mesh.shape

    @property
    def seconds(self) -> float:
        return self.found.makespan_s


def make_best_plan(asked: Asked, machine: Machine, clock: Clock, divided: Iterable[int] = ()) -> Made:
    """The shortest plan over several meshes; what each would give is in its claims. ``divided``: as `shares` says.

    Raises what all meshes raise: Infeasible, or TimeLimit where one of them might have had a plan; or UsageError.
    """
    meshes = _Meshes(asked, machine, clock)
    for rows in plain_meshes(machine, divided):
        meshes.ask(rows)
    meshes.ask_odd()
    for answer in meshes.nearest():
        meshes.take_apart(answer)
    best, found = meshes.improved_in_boxes(*meshes.improved())
    tried = {**meshes.tried, best.rows: found.makespan_s}
    for answer in meshes.sorted():
        answer.search.allow(clock)
        base = best.found if answer is best else answer.found
        other = _on_groups(answer.search.question, base, found.makespan_s)
        if other is not None:
            best, found, tried[answer.rows] = answer, other, other.makespan_s
    made = made_of(best.search, found)
    claims = msgspec.structs.replace(made.document.claims, meshes=tuple(starmap(MeshTried, tried.items())))
    return replace(made, document=msgspec.structs.replace(made.document, claims=claims))


class _Meshes:
    """The answers so far. ``tried``: their seconds by mesh, None where there was none."""

    def __init__(self, asked: Asked, machine: Machine, clock: Clock) -> None:
        self.asked, self.machine, self.clock = asked, machine, clock
        self.answers: list[_Answer] = []
        self.tried: dict[tuple[int, ...], float | None] = {}
        self.failures: list[Infeasible] = []
        self.late: list[TimeLimit] = []
        self.most = 0  # ranks of the meshes that were asked

    def sorted(self) -> list[_Answer]:
        """The shortest first. Where there is none, raises what a mesh raised: of what asks for memory the least."""
        if not self.answers and self.late:
            raise self.late[0]
        if not self.answers:
            self._take(explained(self.failures))
        return sorted(self.answers, key=lambda answer: answer.seconds)

    def nearest(self) -> list[_Answer]:
        """The best, and of few operations those that take about as long: more rows of them may be shorter. Meshes of
        three rows take much longer, so of many operations the best alone."""
        best, *others = self.sorted()
        few = best.search.question.toil <= FEW
        return [best, *(other for other in others if few and other.seconds <= ABOUT * best.seconds)]

    def ask(self, rows: tuple[int, ...]) -> _Answer | None:
        """The answer on a mesh; None where there is none, none can be shorter, or the time for trying is over."""
        if rows in self.tried or (self.answers and self.clock.spent(TRYING)):
            return None
        clock = Clock(ONE_TRY * self.clock.limit) if self.answers else self.clock
        question = self.asked(Mesh.of(rows, self.machine.device_count), clock)
        if self.answers and question.bound.seconds >= self.sorted()[0].seconds:
            return None
        if self.most >= question.mesh.size and question.hopeless:  # nor do other meshes of no more ranks need less
            return None
        self.most = max(self.most, question.mesh.size)
        question.say("mesh " + "x".join(map(str, rows)))
        self.tried[rows] = None
        try:
            return self._take(answered(question))
        except NothingFits as refused:
            self.failures += refused.failures
        except TimeLimit as error:
            self.late.append(error)
        return None

    def ask_odd(self) -> None:
        """Of few operations all devices as one row, over hosts too; and one device fewer than the best has, for as long
        as that is shorter: what divides none of their dimensions may wait for less.
        """
        best = self.sorted()[0]
        if best.search.question.toil > FEW:
            return
        if self.machine.device_count <= ROW:
            self.ask((self.machine.device_count,))
            best = self.sorted()[0]
        while (size := best.search.question.mesh.size) > 2:
            fewer = self.ask((size - 1,))
            if fewer is None or fewer.seconds >= best.seconds:
                break
            best = fewer

    def _take(self, found: tuple[Search, Found]) -> _Answer:
        answer = _Answer(*found)
        self.tried[answer.rows] = answer.seconds
        self.answers.append(answer)
        return answer

    def improved(self) -> tuple[_Answer, Found]:
        """The best answer made better, and others that may be shorter than that once they are: which of them is, the
        first answers do not tell.
        """
        best = self.sorted()[0]
        found = self._improved(best)
        others = OTHERS // best.search.question.toil
        seen = [best]
        while more := [answer for answer in self.sorted() if self._promising(answer, found, seen)]:
            answer, others = more[0], others - 1
            seen.append(answer)
            hope = 1 if answer.search.question.toil <= FEW else HOPE
            full = others >= 0 and answer.found.least_s < hope * found.makespan_s
            other = self._improved(answer) if full else self._in_pieces(answer)
            plainer = len(answer.rows) < len(best.rows) and other.makespan_s <= found.makespan_s
            if plainer or other.makespan_s < WORTH * found.makespan_s:
                best, found = answer, other
        return best, found

    def improved_in_boxes(self, best: _Answer, found: Found) -> tuple[_Answer, Found]:
        """The same, or of all devices what takes less in boxes, which are the same for all meshes of so many."""
        for answer in self.sorted():
            if answer.search.question.mesh.size == self.most:
                answer.search.allow(self.clock)
                other = in_boxes(answer.search.question, found)
                return (best, found) if other is None else (_Answer(*other), other[1])
        return best, found

    def _promising(self, answer: _Answer, found: Found, seen: list[_Answer]) -> bool:
        if answer in seen or self.clock.spent(TRYING):
            return False
        # Of few operations the first answer says little of what the last one takes: 1.48 ms became 0.76.
        small = answer.search.question.toil <= FEW and answer.found.least_s < WORTH * found.makespan_s
        return small or promising(answer.found, found)

    def _improved(self, answer: _Answer) -> Found:
        answer.search.allow(self.clock)
        return self._told(answer, improved(answer.search, answer.search.settled(answer.found)))

    def _in_pieces(self, answer: _Answer) -> Found:
        answer.search.allow(self.clock)
        return self._told(answer, answer.search.in_pieces(answer.found))

    def _told(self, answer: _Answer, found: Found) -> Found:
        self.tried[answer.rows] = found.makespan_s
        return found

    def take_apart(self, answer: _Answer) -> None:
        """The same devices in more rows, for as long as that is shorter."""
        for rows in finer_meshes(answer.rows, self.machine):
            finer = self.ask(rows)
            if finer is not None and finer.seconds < answer.seconds:
                self.take_apart(finer)
