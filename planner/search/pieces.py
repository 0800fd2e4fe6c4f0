"""Pieces where ranks wait for transfers: operations beside an exposed transfer are cut, and what is shorter is kept.

Solver and refinement choose layouts as if every operation were computed at once. Here each operation that waits for
what is moved to it, and each whose result is moved while nothing is computed, is tried in pieces: in equal ones, or
first what ranks hold. Every trial is lowered and simulated, so that the start of each task and transfer counts. Copies
of a repeated layer are cut alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from ...program import Operation, Program
from ..lowering.decisions import Decisions, Pieces
from ..lowering.pieces import Cutter
from ..lowering.steps import COMPUTE
from ..sharding.model import Model
from ..sharding.nodes import OperationNode, SourceNode
from .candidates import Candidate, best_candidate, decide, fitting
from .found import Found
from .question import Question
from .sketch import sketched

# Lowered operations in all trials together, and trials at most, or waits that are looked at.
EFFORT, TRIALS = 1500, 40
# Shares of the makespan: waiting that is worth a trial, and what a plan in pieces has to take off.
WAITING, WORTH = 0.01, 0.995
# Ways to cut beside one wait that are lowered.
LOWERED = 3
# How many times as long as the best a plan may be that is tried in pieces.
LONGER = 1.6
# How many pieces are tried; first FIRST of them, or as few as that where little is left to be moved.
COUNTS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
FIRST = 4


@dataclass(frozen=True)
class Equal:
    """As many equal pieces along a dimension."""

    dim: str
    count: int

    def cut(self, cutter: Cutter) -> Pieces | None:
        return cutter.equal(self.dim, self.count) if self.count > 1 else None


@dataclass(frozen=True)
class HeldFirst:
    """First what ranks hold of an operand, then the rest in so many pieces along a dimension."""

    operand: int
    dim: str
    count: int

    def cut(self, cutter: Cutter) -> Pieces | None:
        return cutter.held_first(cutter.op.operands[self.operand], self.dim, self.count)

    def first(self, cutter: Cutter) -> HeldFirst:
        """In as many pieces as are tried first: a border is one."""
        halo = cutter.mostly_held(cutter.op.operands[self.operand], self.dim)
        return replace(self, count=1) if halo else self


@dataclass(frozen=True)
class SentFirst:
    """First what other ranks read of the result."""

    dim: str

    def cut(self, cutter: Cutter) -> Pieces | None:
        return cutter.sent_first(self.dim)


Cutting = Equal | HeldFirst | SentFirst
Cuttings = Mapping[int, Cutting]
"""By the node that stands for an operation and its copies in other layers."""


@dataclass(frozen=True, eq=False)
class _State:
    """A choice with the pieces that go with it, lowered."""

    found: Found
    cuttings: Cuttings

    @property
    def seconds(self) -> float:
        return self.found.makespan_s


@dataclass(frozen=True)
class _Way:
    """Cuts of operations, under a choice; ``ops``: those beside one wait, in the order in which they are computed."""

    choice: dict[int, int]
    cuttings: Cuttings
    ops: tuple[Operation, ...]

    def counted(self, count: int) -> _Way:
        """The same in another number of pieces."""
        cuttings = {
            node: cutting if isinstance(cutting, SentFirst) else replace(cutting, count=count)
            for node, cutting in self.cuttings.items()
        }
        return replace(self, cuttings=cuttings)


def promising(found: Found, best: Found) -> bool:
    """Whether an answer that waits for its transfers might be shorter in pieces than the best so far."""
    return found is not best and found.least_s < WORTH * best.makespan_s and found.makespan_s < LONGER * best.makespan_s


class PieceSearch:
    """Cuts operations of an answer into pieces, as long as that makes it shorter."""

    def __init__(self, question: Question, model: Model) -> None:
        self.question, self.model, self.program = question, model, question.program
        self.stands: dict[str, int] = {}
        self.members: dict[int, list[Operation]] = {}
        for k, node in enumerate(model.nodes):
            if isinstance(node, OperationNode):
                self.stands[node.name] = model.tied_to[k]
                self.members.setdefault(model.tied_to[k], []).append(node.op)
        self.sources = {node.name: k for k, node in enumerate(model.nodes) if isinstance(node, SourceNode)}
        self.cutters: dict[tuple[object, ...], Cutter] = {}
        self.sketches: dict[tuple[_State, tuple[str, ...]], float] = {}
        self.trials = min(TRIALS, EFFORT // question.toil)
        self.waits = TRIALS // question.crowd

    def run(self, found: Found) -> Found:
        """The answer itself where no pieces make it shorter."""
        question = self.question
        if not question.pieces or not question.machine.device.overlap or question.mesh.size == 1:
            return found
        best = _State(found, {})
        improved = True
        while improved and self.trials > 0 and not question.clock.up and best.found.least_s < WORTH * best.seconds:
            improved = False
            for site in self._sites(best.found.candidate)[: self.waits]:
                better = self._better(best, site)
                if better is not best:
                    best, improved = better, True
                    break
        return self._scheduled(best).found if best.cuttings else found

    def _sites(self, candidate: Candidate) -> list[str]:
        """The operations beside a wait, the longest waits first; one of each repeated layer."""
        waits: dict[int, float] = {}
        names: dict[int, str] = {}
        for op, seconds in waited(candidate, self.program):
            node = self.stands[op]
            names.setdefault(node, op)
            waits[node] = waits.get(node, 0.0) + seconds
        least = WAITING * candidate.timeline.makespan_s
        worth = [node for node, seconds in waits.items() if seconds > least]
        return [names[node] for node in sorted(worth, key=lambda node: -waits[node])]

    def _better(self, state: _State, site: str) -> _State:
        """The shortest of what can be cut at an operation: the most promising by a sketch are lowered."""
        ways = takewhile(lambda _: not self.question.clock.up, self._ways(state, site))
        gains = [(self._gain(state, way), way) for way in ways]
        ranked = sorted((pair for pair in gains if pair[0] > 0), key=lambda pair: -pair[0])
        best = state
        for _, way in ranked[:LOWERED]:
            counted, gain = self._counted(state, way)
            if gain > (1 - WORTH) / 2 * state.seconds:
                tried = self._tried(state, counted)
                best = tried if tried is not None and tried.seconds < best.seconds else best
        return best if best.seconds < WORTH * state.seconds else state

    def _counted(self, state: _State, way: _Way) -> tuple[_Way, float]:
        """More pieces while that saves more, or fewer; and what it saves."""
        counts = [cutting.count for cutting in way.cuttings.values() if not isinstance(cutting, SentFirst)]
        best, gain = way, self._gain(state, way)
        at = COUNTS.index(counts[0]) if counts else 0
        for others in (COUNTS[at + 1 :], COUNTS[:at][::-1]) if counts else ():
            start = best
            for count in others:
                other = way.counted(count)
                if (more := self._gain(state, other)) <= gain:
                    break
                best, gain = other, more
            if best is not start:
                break
        return best, gain

    def _gain(self, state: _State, way: _Way) -> float:
        """Seconds that it saves by a sketch, in all copies together; 0 where it cannot be cut so."""
        decisions = self._cut(state, way, way.ops)
        if decisions is None:
            return 0.0
        copies = min(len(self.members[node]) for node in way.cuttings)
        return copies * (self._before(state, way.ops) - sketched(self.question, decisions, way.ops))

    def _before(self, state: _State, ops: tuple[Operation, ...]) -> float:
        """Seconds that some operations take by a sketch as they are."""
        key = (state, tuple(op.name for op in ops))
        if key not in self.sketches:
            self.sketches[key] = sketched(self.question, state.found.candidate.decisions, ops)
        return self.sketches[key]

    def _cut(self, state: _State, way: _Way, ops: Sequence[Operation]) -> Decisions | None:
        """What is decided with some operations cut; None where one of them cannot be."""
        decisions = state.found.candidate.decisions
        if way.choice is not state.found.choice:
            decisions = decide(self.model.nodes, self.model, way.choice)
        cuttings, pieces = {**state.cuttings, **way.cuttings}, dict[str, Pieces]()
        for op in ops:
            cutting = cuttings.get(self.stands[op.name])
            cut = None if cutting is None else cutting.cut(self._cutter(decisions, op))
            if cut is not None:
                pieces[op.name] = cut
            elif cutting is not None:
                return None
        return replace(decisions, pieces=pieces)

    def _tried(self, state: _State, way: _Way) -> _State | None:
        """Lowered and simulated; None where it cannot be cut so, does not fit, takes longer, or no trial is left."""
        if self.trials <= 0 or self.question.clock.up:
            return None
        decisions = self._cut(state, way, self.program.operations)
        if decisions is None:
            return None
        self.trials -= 1
        found = state.found
        candidate = fitting(self.question, decisions, found.candidate.schedule, state.seconds)
        if candidate is None:
            return None
        return _State(Found(candidate, way.choice, found.solution), {**state.cuttings, **way.cuttings})

    def _cutter(self, decisions: Decisions, op: Operation) -> Cutter:
        """One for all copies of an operation that are sharded alike and read from the same layouts."""
        made = [decisions.made(self.program, name) for name in op.operands]
        wanted = decisions.wanted(self.program, op.output)
        key = (self.question.table.signature(op), decisions.strategies[op.name], *made, *wanted)
        if key not in self.cutters:
            self.cutters[key] = Cutter(self.question.table, decisions, op)
        return self.cutters[key]

    def _ways(self, state: _State, site: str) -> Iterator[_Way]:
        """To cut an operation, those that it reads moved results of, and both alike."""
        op, node = self.program.op_by_name[site], self.stands[site]
        choice, decisions = state.found.choice, state.found.candidate.decisions
        cutter, sent, moved = self._cutter(decisions, op), self._sent(decisions, op), self._moved(decisions, op)
        first = {k: [HeldFirst(k, dim, FIRST).first(cutter) for dim in _dims_of(op, k)] for k in moved}
        halos = {k: [cutting for cutting in found if cutting.count == 1] for k, found in first.items()}
        for dim in _dims(op):
            if sent or any(dim in _dims_of(op, k) and not halos[k] for k in moved):
                yield _Way(choice, {node: Equal(dim, FIRST)}, (op,))
        for operand in moved:
            for cutting in halos[operand] or first[operand]:
                yield _Way(choice, {node: cutting}, (op,))
            yield from self._with_producer(choice, op, operand, halos[operand])
            if not halos[operand]:
                yield from self._other_homes(choice, op, operand)

    def _sent(self, decisions: Decisions, op: Operation) -> bool:
        """Whether what an operation writes is moved."""
        made = decisions.strategies[op.name].writes
        wanted = decisions.wanted(self.program, op.output)
        return made.parts is not None or not all(made.satisfies(need) for need in wanted)

    def _moved(self, decisions: Decisions, op: Operation) -> list[int]:
        """The operands that are not read where they are made."""
        needs = zip(op.operands, decisions.strategies[op.name].needs, strict=True)
        return [k for k, (name, need) in enumerate(needs) if not decisions.made(self.program, name).satisfies(need)]

    def _with_producer(
        self, choice: dict[int, int], op: Operation, operand: int, halos: Sequence[HeldFirst]
    ) -> Iterator[_Way]:
        """``halos``: the ways to compute first what needs no border of the operand."""
        producer = self.program.producer.get(op.operands[operand])
        if producer is None or self.stands[producer.name] == self.stands[op.name]:
            return
        node, before, both = self.stands[op.name], self.stands[producer.name], (producer, op)
        for dim in _dims(producer):
            carried = [*_carried(producer, dim, op, operand)]
            if not halos:
                yield _Way(choice, {before: Equal(dim, FIRST)}, both)
                for read in carried:
                    yield _Way(choice, {before: Equal(dim, FIRST), node: Equal(read, FIRST)}, both)
            for halo in halos:
                if halo.dim in carried:
                    yield _Way(choice, {before: SentFirst(dim)}, both)
                    yield _Way(choice, {before: SentFirst(dim), node: halo}, both)

    def _other_homes(self, choice: dict[int, int], op: Operation, operand: int) -> Iterator[_Way]:
        """Where a tensor starts says what is held first."""
        source = self.sources.get(op.operands[operand])
        if source is None:
            return
        source = self.model.tied_to[source]
        for option in range(len(self.model.nodes[source].labels)):
            if option != choice[source]:
                for dim in _dims_of(op, operand):
                    cutting = HeldFirst(operand, dim, FIRST)
                    yield _Way({**choice, source: option}, {self.stands[op.name]: cutting}, (op,))

    def _scheduled(self, state: _State) -> _State:
        """Under the best schedule for pieces, where there is time to look for it."""
        found = state.found
        if self.trials <= 0 or self.question.clock.up:
            return state
        candidate = best_candidate(self.question, found.candidate.decisions, found.candidate.timeline.compute_s)
        if candidate.peak > self.question.capacity or candidate.timeline.makespan_s >= state.seconds:
            return state
        return _State(Found(candidate, found.choice, found.solution), state.cuttings)


def waited(candidate: Candidate, program: Program) -> Iterator[tuple[str, float]]:
    """Operations that wait on some rank, and those whose results are moved after all is computed, with seconds."""
    timeline = candidate.timeline
    last = [0.0] * len(timeline.classes)
    for run in timeline.runs:
        if run.lane == COMPUTE:
            gaps = [
                start - before if end > start else 0.0
                for start, end, before in zip(run.starts, run.ends, last, strict=True)
            ]
            last = [max(pair) for pair in zip(last, run.ends, strict=True)]
            if max(gaps) > 0:
                yield run.name, max(gaps)
    computed = max(last)
    late = [run.name for run in timeline.runs if run.lane != COMPUTE and max(run.ends) > computed]
    for name in dict.fromkeys(late):
        if name in program.producer:
            yield program.producer[name].name, timeline.makespan_s - computed


def _dims(op: Operation) -> list[str]:
    """The dimensions along which results may be made one after another."""
    return [dim.name for dim in op.dims if dim.cut and dim.extent > 1 and dim.name in op.parallel_dims]


def _dims_of(op: Operation, operand: int) -> list[str]:
    """Those of them along which an operand is read."""
    read = {name for read in op.reads if read.tensor == op.operands[operand] for row in read.index for name in row.dims}
    return [dim for dim in _dims(op) if dim in read]


def _carried(producer: Operation, dim: str, op: Operation, operand: int) -> Iterator[str]:
    """The dimensions of a reader that run along the axis of its operand that a dimension of the producer runs along."""
    axes = [axis for axis, row in enumerate(producer.write) if dim in row.dims]
    rows = [read.index[axis] for read in op.reads if read.tensor == op.operands[operand] for axis in axes]
    yield from dict.fromkeys(name for row in rows for name in _dims(op) if name in row.dims)
