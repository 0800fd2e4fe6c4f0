"""Decisions lowered to plan documents: several schedules each, the shortest by simulation among those that fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from ..format import Claims, Document, Predicted, Resolved, Traffic, Workspace
from ..lowering.decisions import Decisions, Listing, Schedule, units_of
from ..lowering.emit import Emitted, emit, sharding_of
from ..lowering.memory import Arena, least_arena, place
from ..lowering.order import in_order_of, listed
from ..lowering.steps import StepBuilder, Steps
from ..lowering.waits import waits_of
from ..lowering.workspace import workspaces
from ..sharding.model import Model
from ..sharding.nodes import Node, OperationNode, SinkNode, SourceNode
from ..simulate import Prices, simulate
from ..timeline import Timeline
from .question import Question


@dataclass(frozen=True, eq=False)
class Candidate:
    """One lowered plan and its predicted timeline."""

    decisions: Decisions
    document: Document
    timeline: Timeline
    peak: int
    schedule: Schedule


Candidates = dict[Schedule, Candidate]


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

# How far ahead resident tensors are gathered, the most eager first; 0 takes the least memory.
AHEAD = (24, 12, 6, 3, 1)


def best_candidate(question: Question, decisions: Decisions, ideal: float) -> Candidate:
    """The lowered plan with the shortest simulated makespan among those that fit; the smallest if none does.

    Looking further is pointless once a schedule comes within 1 % of the model's own estimate, ``ideal`` seconds.
    """
    resident = _moves(question, decisions, resident=True)
    if not resident:
        candidates = {Schedule(): lower(question, decisions, Schedule())}
    else:
        candidates = _looked_ahead(question, decisions, ideal)
    best = _best(question, candidates)
    if best.peak <= question.capacity and _moves(question, decisions, resident=False):
        candidates |= _listed(question, decisions, best, AHEAD if resident else ())
    return _best(question, candidates)


def _listed(question: Question, decisions: Decisions, best: Candidate, ahead: Sequence[int]) -> Candidates:
    """The same in list-scheduled order: resident tensors gathered as far ahead of their use as in the best one, then at
    other distances, until no rank waits for more than 1 % of the time.
    """
    found: Candidates = {}
    for distance in dict.fromkeys((best.schedule.ahead, *ahead)):
        if question.clock.up or any(_busy(candidate) for candidate in found.values()):
            break
        listed = fitting(question, decisions, replace(best.schedule, ahead=distance, listed=True))
        if listed is not None:
            found[listed.schedule] = listed
    return found


def _busy(candidate: Candidate) -> bool:
    return candidate.timeline.makespan_s <= 1.01 * candidate.timeline.compute_s


def _looked_ahead(question: Question, decisions: Decisions, ideal: float) -> Candidates:
    """Gathers of resident tensors at several distances from their use, and before or after moves of fresh values."""
    least = lower(question, decisions, Schedule(0))
    candidates = {least.schedule: least}
    if least.peak > question.capacity:
        return candidates
    for ahead in () if question.clock.up else AHEAD:
        latest = fitting(question, decisions, Schedule(ahead))
        if latest is not None:
            candidates[latest.schedule] = latest
        if question.clock.up or (latest is not None and latest.timeline.makespan_s <= 1.01 * ideal):
            break
    if question.clock.up:
        return candidates
    eager = fitting(question, decisions, replace(_best(question, candidates).schedule, gathers_first=True))
    return candidates if eager is None else {**candidates, eager.schedule: eager}


def _best(question: Question, candidates: Candidates) -> Candidate:
    fitting = [c for c in candidates.values() if c.peak <= question.capacity]
    return (
        min(fitting, key=lambda c: c.timeline.makespan_s) if fitting else min(candidates.values(), key=lambda c: c.peak)
    )


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
    with question.clock.last_of_all():
        return _placed(question, decisions, schedule, _stepped(question, decisions, schedule))


def fitting(question: Question, decisions: Decisions, schedule: Schedule) -> Candidate | None:
    """The same, if it fits into memory. Where no places would do, none are looked for."""
    with question.clock.last_of_all():
        steps = _stepped(question, decisions, schedule)
        if least_arena(steps, question.rooms) > question.capacity:
            return None
        found = _placed(question, decisions, schedule, steps)
    return found if found.peak <= question.capacity else None


def least_peak(question: Question, decisions: Decisions, schedule: Schedule) -> int:
    """Bytes that the plan takes on a rank at least."""
    return least_arena(_stepped(question, decisions, schedule), question.rooms)


def needed(question: Question, candidate: Candidate) -> int:
    """Bytes that are enough for it if every device has as much."""
    if not question.rooms:
        return candidate.peak
    plenty = question.machine.with_memory({question.tier: PLENTY})
    return lower(replace(question, machine=plenty), candidate.decisions, candidate.schedule).peak


def _stepped(question: Question, decisions: Decisions, schedule: Schedule) -> Steps:
    """The steps of all ranks."""
    for op in question.program.operations:
        question.table.prove(op, decisions.strategies[op.name].cuts)
    program, listing = question.program, Listing(units_of(question.program, decisions))
    if schedule.listed:
        listing = listed(program, decisions, question.pricing, question.layouts)
        program = in_order_of(program, listing.units)
    return StepBuilder(program, decisions, listing, question.pricing, question.layouts, schedule).build()


def _placed(question: Question, decisions: Decisions, schedule: Schedule, steps: Steps) -> Candidate:
    arena, devices = place(steps, question.capacity, question.rooms), question.machine.devices
    emitted = emit(steps, arena, waits_of(steps, arena), question.tier, len(devices))
    most = max((mine.peak for mine in arena.apart.values()), default=arena.peak)
    rooms = workspaces(steps, devices, question.tier, most, question.capacity)
    document = _document(question, decisions, emitted, rooms, _peaks(question, arena, rooms))
    timeline = simulate(document, Prices(Resolved(document, question.program, emitted.regions), question.book))
    return Candidate(decisions, document, timeline, arena.peak, schedule)


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
