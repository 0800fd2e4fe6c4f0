"""Decisions lowered to plan documents: several schedules each, the shortest by simulation among those that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import msgspec

from ...program import Program
from ..format import Claims, Document, Predicted, Resolved, Traffic, Workspace
from ..lowering.decisions import Decisions, Listing, Schedule, units_of
from ..lowering.emit import Emitted, emit, sharding_of
from ..lowering.memory import Arena, least_arena, place
from ..lowering.needs import Needs
from ..lowering.order import in_order_of, listed
from ..lowering.steps import StepBuilder, Steps
from ..lowering.unhindered import Times, Unhindered, unhindered
from ..lowering.waits import waits_of
from ..lowering.workspace import workspaces
from ..sharding.model import Model
from ..sharding.nodes import Node, OperationNode, SinkNode, SourceNode
from ..simulate import Prices, simulate
from ..timeline import Timeline
from .question import Question


@dataclass(frozen=True, eq=False)
class Candidate:
    """One lowered plan and its predicted timeline. ``few_s``: seconds of a few of its layers, if they were asked."""

    decisions: Decisions
    document: Document
    timeline: Timeline
    peak: int
    schedule: Schedule
    few_s: float | None = None


def decide(nodes: list[Node], model: Model, choice: Mapping[int, int]) -> Decisions:
    """A choice spelled out for every tensor and operation."""
    return decided(nodes, [model.option(choice, k) for k in range(len(nodes))])


def decided(nodes: Sequence[Node], options: Sequence[int]) -> Decisions:
    """An option per node spelled out."""
    homes, strategies, ends = {}, {}, {}
    for node, option in zip(nodes, options, strict=True):
        match node:
            case OperationNode():
                strategies[node.name] = node.strategies[option]  # tied copies share the object
            case SourceNode():
                homes[node.tensor.name] = node.homes[option]
            case SinkNode():
                ends[node.tensor.name] = node.ends[option]
    return Decisions(homes, strategies, ends)


PLENTY = 2**60  # bytes, more than any device has
# How many times as long as its steps and their times what is still to be done of a plan takes, about.
TRIED = 3.0

# How far ahead resident tensors are gathered, the most eager first; 0 takes the least memory.
AHEAD = (24, 12, 6, 3, 1)
# Of a few layers schedules are told apart that are further apart than so much, and the two orders of operations if
# these are, as they begin and end in other ways; which of nearer ones is shorter of all layers only these tell.
NEAR, NEAR_ORDERS = 1.03, 1.1


@dataclass(frozen=True, eq=False)
class Trial:
    """Decisions lowered under a schedule, but for the places of slots. ``times``: of its run where these hold nothing
    up; no plan of these steps in this order takes less.
    """

    decisions: Decisions
    schedule: Schedule
    steps: Steps
    times: Times

    @property
    def seconds(self) -> float:
        return self.times.seconds

    @property
    def busy(self) -> bool:
        """Whether no rank waits for more than 1 % of the time."""
        return self.seconds <= 1.01 * self.times.compute_s


class Trials:
    """The same decisions under several schedules."""

    def __init__(self, question: Question, decisions: Decisions) -> None:
        self.question, self.decisions = question, decisions
        program = question.program
        for op in program.operations:
            question.table.prove(op, decisions.strategies[op.name].cuts)

    @cached_property
    def _plain(self) -> Needs:
        program = self.question.program
        return Needs(program, self.decisions, Listing(units_of(program, self.decisions)), self.question.layouts)

    @cached_property
    def _listed(self) -> Needs:
        question = self.question
        listing = listed(question.program, self.decisions, question.pricing, question.layouts)
        return Needs(in_order_of(question.program, listing.units), self.decisions, listing, question.layouts)

    def steps(self, schedule: Schedule) -> Steps:
        """The steps of all ranks."""
        needs = self._listed if schedule.listed else self._plain
        return StepBuilder(needs, self.question.pricing, schedule).build()

    def of(self, schedule: Schedule) -> Trial:
        question = self.question
        with question.clock.last_of_all(TRIED):
            steps = self.steps(schedule)
            return Trial(self.decisions, schedule, steps, unhindered(steps, question.program, question.pricing))

    def eager(self, distances: Iterable[int], kind: Schedule, enough: Callable[[Trial], bool]) -> Iterator[Trial]:
        """Resident tensors gathered at several distances from their use, until one is enough or the time is up."""
        for distance in distances:
            if self.question.clock.up:
                return
            found = self.of(replace(kind, ahead=distance))
            yield found
            if enough(found):
                return


def best_candidate(question: Question, decisions: Decisions, ideal: float) -> Candidate:
    """The lowered plan with the shortest simulated makespan among those that fit; the smallest if none does.

    Of a deep program of which all layers are decided alike schedules are tried on a few layers, and those that are
    nearly the shortest there on all of them. ``ideal``: the model's own estimate in seconds. Raises TimeLimit where it
    is the first, and late.
    """
    found = shorter_candidate(question, decisions, ideal, None)
    assert found is not None
    return found


def shorter_candidate(
    question: Question, decisions: Decisions, ideal: float, other: Candidate | None
) -> Candidate | None:
    """The same; None where it would be no shorter than another candidate, which is told before places are looked for,
    and of a deep program by a few layers if they are much longer.
    """
    question.clock.demand()
    few = question.of_few_layers(decisions)
    if few is not None:
        return _as_of_few(question, few, decisions, ideal, other)
    trials = _tried(question, decisions, ideal)
    if other is not None and _shortest(trials).seconds >= other.timeline.makespan_s:
        return None
    return _first_placed(question, trials) or placed(question, trials[0])


def _as_of_few(
    question: Question, few: Question, decisions: Decisions, ideal: float, other: Candidate | None
) -> Candidate | None:
    """Under the schedule that is shortest for a few layers of a program, of those under which all of it fits."""
    share = _work(few.program, decisions) / _work(question.program, decisions)
    told, trials = _tried(few, decisions, ideal * share), Trials(question, decisions)
    order = sorted(told, key=lambda trial: trial.seconds)
    if other is not None and other.few_s is not None:
        alike = order[0].schedule.listed is other.schedule.listed
        if order[0].seconds > (NEAR if alike else NEAR_ORDERS) * other.few_s:
            return None
    near = _near(order)
    first = [trials.of(trial.schedule) for k, trial in enumerate(near) if not k or not question.clock.up]
    if other is not None and _shortest(first).seconds >= other.timeline.makespan_s:
        return None
    best = _first_placed(question, first)
    for trial in order:
        if best is not None or question.clock.up:
            break
        best = None if trial in near else placed_within(question, trials.of(trial.schedule))
    return replace(best or placed(question, trials.of(told[0].schedule)), few_s=order[0].seconds)


def _near(order: Sequence[Trial]) -> list[Trial]:
    """Of trials of a few layers, the shortest first, those of which any may be the shortest of all layers; of equal
    ones the first.
    """
    found: list[Trial] = []
    for trial in order:
        alike = [other.seconds for other in found if other.schedule.listed is trial.schedule.listed]
        most = NEAR * alike[0] if alike else NEAR_ORDERS * order[0].seconds
        if trial.seconds <= most and trial.seconds not in alike:
            found.append(trial)
    return found


def _work(program: Program, decisions: Decisions) -> float:
    return sum(decisions.strategies[op.name].slowest for op in program.operations)


def _tried(question: Question, decisions: Decisions, ideal: float) -> list[Trial]:
    """Under several schedules, that of least memory first; alone where that does not fit.

    Gathers of resident tensors are tried at several distances from their use, before and after moves of fresh values,
    and where such are moved operations in list-scheduled order, with gathers as far ahead as was best without, then at
    other distances, and last with values sent as soon as they are made. Looking further is pointless once a schedule
    comes within 1 % of ``ideal`` seconds, or no rank of a listed one waits.
    """
    trials, resident = Trials(question, decisions), _moves(question, decisions, resident=True)
    found = [trials.of(Schedule(0) if resident else Schedule())]
    if least_arena(found[0].steps, question.rooms) <= question.capacity:
        if resident:
            found += trials.eager(AHEAD, Schedule(), lambda trial: trial.seconds <= 1.01 * ideal)
            first = replace(_shortest(found).schedule, gathers_first=True)
            found += trials.eager((first.ahead,), first, lambda _: True)
        if _moves(question, decisions, resident=False):
            kind = replace(_shortest(found).schedule, listed=True)
            distances = dict.fromkeys((kind.ahead, *(AHEAD if resident else ())))
            found += trials.eager(distances, kind, lambda trial: trial.busy)
            best = _shortest(found)
            if not best.busy:
                found += trials.eager((best.schedule.ahead,), replace(best.schedule, at_once=True), lambda _: True)
    return found


def _shortest(trials: Sequence[Trial]) -> Trial:
    return min(trials, key=lambda trial: trial.seconds)


def _first_placed(question: Question, trials: Sequence[Trial]) -> Candidate | None:
    """The shortest that fits. One that would be no shorter however its slots lie is not placed."""
    best: Candidate | None = None
    for k, trial in enumerate(sorted(trials, key=lambda trial: trial.seconds)):
        if (k and question.clock.up) or (best is not None and best.timeline.makespan_s <= trial.seconds):
            break
        other = placed_within(question, trial)
        if other is not None and (best is None or other.timeline.makespan_s < best.timeline.makespan_s):
            best = other
    return best


def _moves(question: Question, decisions: Decisions, *, resident: bool) -> bool:
    """Whether some resident tensor (else: some input or computed value) is moved at all."""
    roles = ("param", "state", "const") if resident else ("input", "value")
    for op in question.program.operations:
        for name, need in zip(op.operands, decisions.strategies[op.name].needs, strict=True):
            if question.program.tensor(name).role in roles and not decisions.made(question.program, name).satisfies(
                need
            ):
                return True
    return False


def lower(question: Question, decisions: Decisions, schedule: Schedule) -> Candidate:
    """One plan document for given decisions, with its simulated timeline. Raises TimeLimit where it is the first, and
    late.
    """
    question.clock.demand()
    return placed(question, Trials(question, decisions).of(schedule))


def fitting(question: Question, decisions: Decisions, schedule: Schedule, below: float = inf) -> Candidate | None:
    """The same, if it fits into memory. Where no places would do, or none would make it take less than ``below``
    seconds, none are looked for.
    """
    trial = Trials(question, decisions).of(schedule)
    return placed_within(question, trial) if trial.seconds < below else None


def least_peak(question: Question, decisions: Decisions, schedule: Schedule) -> int:
    """Bytes that the plan takes on a rank at least."""
    return least_arena(Trials(question, decisions).steps(schedule), question.rooms)


def needed(question: Question, candidate: Candidate) -> int:
    """Bytes that are enough for it if every device has as much."""
    if not question.rooms:
        return candidate.peak
    plenty = question.machine.with_memory({question.tier: PLENTY})
    return lower(replace(question, machine=plenty), candidate.decisions, candidate.schedule).peak


def placed(question: Question, trial: Trial) -> Candidate:
    """A plan document with its simulated timeline: places so that memory holds nothing up, if there is as much."""
    steps, decisions, devices = trial.steps, trial.decisions, question.machine.devices
    with question.clock.last_of_all():
        arena = place(steps, question.capacity, question.rooms, Unhindered(steps, trial.times), soon=question.clock.up)
        emitted = emit(steps, arena, waits_of(steps, arena), question.tier, len(devices))
        most = max((mine.peak for mine in arena.apart.values()), default=arena.peak)
        rooms = workspaces(steps, devices, question.tier, most, question.capacity)
        document = _document(question, decisions, emitted, rooms, _peaks(question, arena, rooms))
        timeline = simulate(document, Prices(Resolved(document, question.program, emitted.regions), question.book))
    return Candidate(decisions, document, timeline, arena.peak, trial.schedule)


def placed_within(question: Question, trial: Trial) -> Candidate | None:
    """The same, if that fits into memory. Where no places would do, none are looked for."""
    if least_arena(trial.steps, question.rooms) > question.capacity:
        return None
    found = placed(question, trial)
    return found if found.peak <= question.capacity else None


def _peaks(question: Question, arena: Arena, rooms: Mapping[str, Workspace]) -> list[int]:
    """Per rank where what lies there ends."""
    found = [arena.peak] * question.mesh.size
    for room in question.rooms if arena.apart else ():
        for rank in room.ranks:
            found[rank] = arena.on(room.kind).peak
    behind = max((room.offset + room.nbytes for room in rooms.values()), default=0)
    return [max(peak, behind) for peak in found]


def _document(
    question: Question, decisions: Decisions, emitted: Emitted, rooms: Mapping[str, Workspace], peaks: Sequence[int]
) -> Document:
    shardings = {name: sharding_of(strategy, question.mesh) for name, strategy in decisions.strategies.items()}
    return Document(
        program=question.program_json,
        machine=question.machine_json,
        mesh=question.mesh.shape,
        mesh_axes=question.mesh.axes,
        devices=tuple(range(question.mesh.size)),
        layouts=emitted.layouts,
        buffers=emitted.buffers,
        tasks=emitted.tasks,
        outputs=emitted.outputs,
        states=emitted.states,
        shardings=shardings,
        predicted=Predicted(0.0, 0.0, 0.0),
        traffic=Traffic(0, {}, {}),
        peak_bytes={str(rank): {question.tier: peak} for rank, peak in enumerate(peaks)},
        bound=None,
        claims=Claims("pinned", question.objective, 0.0, 0, 0.0, question.seed),
        senders="by_host",
        weights=question.mesh.weights or msgspec.UNSET,
        workspaces=dict(rooms) or msgspec.UNSET,
    )
