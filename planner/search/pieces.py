"""Pieces where ranks wait for transfers: operations beside an exposed transfer are cut, and what is shorter is kept.

Solver and refinement choose layouts as if every operation were computed at once. Here each operation that waits for
what is moved to it, and each whose result is moved while nothing is computed, is tried in pieces: in equal ones, or
first what ranks hold. Every trial is lowered and simulated, so that the start of each task and transfer counts. Copies
of a repeated layer are cut alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile

from ...program import Operation, Program
from ..lowering.decisions import Decisions, Pieces
from ..lowering.pieces import Cutter
from ..lowering.steps import COMPUTE
from ..sharding.model import Model
from ..sharding.nodes import OperationNode, SourceNode
from .candidates import Candidate, best_candidate, decide, fitting
from .cuttings import Cutting, Equal, HeldFirst, MadeFirst, ReadFirst, SentFirst, carried, dims, dims_of
from .found import Found
from .question import Question
from .sketch import sketched
from .whole import whole_again

# Lowered operations in all trials together, one trial of few ranks in any case; and trials at most, or waits that are
# looked at.
EFFORT, TRIALS = 1500, 40
# Shares of the makespan: waiting that is worth a trial, and what a plan in pieces has to take off.
WAITING, WORTH = 0.01, 0.995
# Ways to cut beside one wait that are lowered.
LOWERED = 3
# Operations one behind the other that are computed first at the border, for what the last of them sends.
DEEP = 5
# How many times as long as the best a plan may be that is tried in pieces.
LONGER = 1.6
# How many pieces are tried; first FIRST of them, or as few as that where little is left to be moved.
COUNTS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
FIRST = 4


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
    """Cuts of operations, under a choice; ``ops``: those beside one wait, in the order in which they are computed.
    ``whole``: what is cut no longer.
    """

    choice: dict[int, int]
    cuttings: Cuttings
    ops: tuple[Operation, ...]
    whole: frozenset[int] = frozenset()

    def beside(self, others: Cuttings) -> Cuttings:
        """The cuts of a state with these."""
        kept = {node: cutting for node, cutting in others.items() if node not in self.whole}
        return {**kept, **self.cuttings}

    def counted(self, count: int) -> _Way:
        """The same in another number of pieces."""
        cuttings = {
            node: replace(cutting, count=count) if isinstance(cutting, Equal | HeldFirst) else cutting
            for node, cutting in self.cuttings.items()
        }
        return replace(self, cuttings=cuttings)


_Ways = Callable[[_State, str], Iterator[_Way]]


def promising(found: Found, best: Found) -> bool:
    """Whether an answer that waits for its transfers might be shorter in pieces than the best so far."""
    return found is not best and found.least_s < WORTH * best.makespan_s and found.makespan_s < LONGER * best.makespan_s


class PieceSearch:
    """Cuts operations of an answer into pieces, as long as that makes it shorter."""

    def __init__(self, question: Question, model: Model) -> None:
        self.question, self.model, self.program = question, model, question.program
        self.place = {op.name: k for k, op in enumerate(question.program.operations)}
        self.stands: dict[str, int] = {}
        self.members: dict[int, list[Operation]] = {}
        for k, node in enumerate(model.nodes):
            if isinstance(node, OperationNode):
                self.stands[node.name] = model.tied_to[k]
                self.members.setdefault(model.tied_to[k], []).append(node.op)
        self.sources = {node.name: k for k, node in enumerate(model.nodes) if isinstance(node, SourceNode)}
        self.cutters: dict[tuple[object, ...], Cutter] = {}
        self.sketches: dict[tuple[_State, tuple[str, ...]], float] = {}
        self.trials = min(TRIALS, max(EFFORT // question.toil, int(question.crowd == 1)))
        self.waits = TRIALS // question.crowd

    def run(self, found: Found) -> Found:
        """The answer itself where no pieces make it shorter."""
        question = self.question
        if not question.pieces or not question.machine.device.overlap or question.mesh.size == 1:
            return found
        first = _State(found, {})
        best = self._improved(first, self._ways)
        # Which borders are computed first decides what is worth a trial next, so that neither leads to the other.
        if any(True for site in self._sites(found.candidate)[: self.waits] for _ in self._deeper(first, site)):
            deeper = self._improved(
                first, lambda state, site: chain(self._ways(state, site), self._deeper(state, site))
            )
            best = min(best, deeper, key=lambda state: state.seconds)
            further = self._improved(
                first,
                lambda state, site: chain(
                    self._ways(state, site), self._deeper(state, site), self._further(state, site)
                ),
            )
            best = min(best, further, key=lambda state: state.seconds)
        return whole_again(question, self._scheduled(best).found) if best.cuttings else found

    def _improved(self, best: _State, ways: _Ways) -> _State:
        """Site after site, as long as that makes it shorter."""
        improved = True
        while improved and self.trials > 0 and not self.question.clock.up and best.found.least_s < WORTH * best.seconds:
            improved = False
            for site in self._sites(best.found.candidate)[: self.waits]:
                better = self._better(best, ways(best, site))
                if better is not best:
                    best, improved = better, True
                    break
        return best

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

    def _better(self, state: _State, ways: Iterator[_Way]) -> _State:
        """The shortest of these: the most promising by a sketch are lowered."""
        gains = [(self._gain(state, way), way) for way in takewhile(lambda _: not self.question.clock.up, ways)]
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
        counts = [cutting.count for cutting in way.cuttings.values() if isinstance(cutting, Equal | HeldFirst)]
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
        soon = self._soon(way.beside(state.cuttings), way.ops)
        return copies * (self._before(state, way.ops) - sketched(self.question, decisions, way.ops, soon))

    def _before(self, state: _State, ops: tuple[Operation, ...]) -> float:
        """Seconds that some operations take by a sketch as they are."""
        key = (state, tuple(op.name for op in ops))
        if key not in self.sketches:
            soon = self._soon(state.cuttings, ops)
            self.sketches[key] = sketched(self.question, state.found.candidate.decisions, ops, soon)
        return self.sketches[key]

    def _soon(self, cuttings: Cuttings, ops: Sequence[Operation]) -> set[str]:
        """The operations of which first what is sent is computed, or what that is made of; and what goes on with what
        is not waited for."""
        found = {op.name for op in ops if isinstance(cuttings.get(self.stands[op.name]), SentFirst | ReadFirst)}
        for op in ops:
            cutting = cuttings.get(self.stands[op.name])
            if isinstance(cutting, MadeFirst) and op.operands[cutting.operand] in self.program.producer:
                found |= {op.name, self.program.producer[op.operands[cutting.operand]].name}
        return found

    def _cut(self, state: _State, way: _Way, ops: Sequence[Operation]) -> Decisions | None:
        """What is decided with some operations cut; None where one of them cannot be."""
        decisions = state.found.candidate.decisions
        if way.choice is not state.found.choice:
            decisions = decide(self.model.nodes, self.model, way.choice)
        cuttings, pieces = way.beside(state.cuttings), dict[str, Pieces]()
        soon = self._soon(cuttings, ops)
        for op in reversed(ops):
            cutting = cuttings.get(self.stands[op.name])
            if isinstance(cutting, ReadFirst):
                readers = [each for each in self.program.consumers[op.output] if each.name in soon & pieces.keys()]
                needs = [
                    task.needs[reader.operands.index(op.output)]
                    for reader in readers
                    for task in pieces[reader.name][0]
                ]
                cut = self._cutter(decisions, op).read_first(needs, cutting.dim) if needs else None
            elif cutting is None or isinstance(cutting, MadeFirst):
                continue
            else:
                cut = cutting.cut(self._cutter(decisions, op))
            if cut is None:
                return None
            pieces[op.name] = cut
        for op in ops:
            cutting = cuttings.get(self.stands[op.name])
            if isinstance(cutting, MadeFirst):
                producer = self.program.producer.get(op.operands[cutting.operand])
                if producer is None or producer.name not in pieces:
                    return None
                made = [task.writes for task in pieces[producer.name][0]]
                cutter = self._cutter(decisions, op)
                cut = cutter.made_first(cutter.op.operands[cutting.operand], made, cutting.dim)
                if cut is None:
                    return None
                pieces[op.name] = cut
        return replace(decisions, pieces=pieces)

    def _tried(self, state: _State, way: _Way) -> _State | None:
        """Lowered and simulated; None where it cannot be cut so, does not fit, takes longer, or no trial is left."""
        if self.trials <= 0 or self.question.clock.up:
            return None
        decisions = self._cut(state, way, self.program.operations)
        if decisions is None:
            return None
        self.trials -= 1
        found, cuttings = state.found, way.beside(state.cuttings)
        schedule = found.candidate.schedule
        if any(isinstance(cutting, ReadFirst | MadeFirst) for cutting in cuttings.values()):
            schedule = replace(schedule, listed=True)  # else all of an operation is computed before the next one
        candidate = fitting(self.question, decisions, schedule, state.seconds)
        return None if candidate is None else _State(Found(candidate, way.choice, found.solution), cuttings)

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
        first = {k: [HeldFirst(k, dim, FIRST).first(cutter) for dim in dims_of(op, k)] for k in moved}
        halos = {k: [cutting for cutting in found if cutting.count == 1] for k, found in first.items()}
        for dim in dims(op):
            if sent or any(dim in dims_of(op, k) and not halos[k] for k in moved):
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
        for dim in dims(producer):
            along = [*carried(producer, dim, op, operand)]
            if not halos:
                yield _Way(choice, {before: Equal(dim, FIRST)}, both)
                for read in along:
                    yield _Way(choice, {before: Equal(dim, FIRST), node: Equal(read, FIRST)}, both)
            for halo in halos:
                if halo.dim in along:
                    yield _Way(choice, {before: SentFirst(dim)}, both)
                    yield _Way(choice, {before: SentFirst(dim), node: halo}, both)

    def _deeper(self, state: _State, site: str) -> Iterator[_Way]:
        """Where an operation waits for a border: what sends it, and those before that, compute the border first."""
        op, node = self.program.op_by_name[site], self.stands[site]
        decisions = state.found.candidate.decisions
        cutter = self._cutter(decisions, op)
        for operand in self._moved(decisions, op):
            producer = self.program.producer.get(op.operands[operand])
            if producer is None or self.stands[producer.name] == node:
                continue
            read = {dim for dim in dims_of(op, operand) if cutter.mostly_held(cutter.op.operands[operand], dim)}
            before = self.stands[producer.name]
            for dim in dims(producer):
                if read.intersection(carried(producer, dim, op, operand)):
                    for others, cuttings in self._chains(producer, dim, {node, before}):
                        first = {before: SentFirst(dim), **cuttings}
                        yield _Way(state.found.choice, first, (*others, producer, op), whole=frozenset({node}))

    def _chains(
        self, last: Operation, along: str, beside: set[int]
    ) -> Iterator[tuple[tuple[Operation, ...], Cuttings]]:
        """What an operation sends first is made first by those before it, too: by one, by two and so on, each the
        latest of those that the one after it reads."""
        found: tuple[Operation, ...] = ()
        cuttings: dict[int, Cutting] = {}
        reader = last
        for _ in range(DEEP - 1):
            made = [
                (k, self.program.producer[name])
                for k, name in enumerate(reader.operands)
                if name in self.program.producer
            ]
            if not made:
                return
            operand, op = max(made, key=lambda pair: self.place[pair[1].name])
            node = self.stands[op.name]
            rows = [dim for dim in dims(op) if along in carried(op, dim, reader, operand)]
            if not rows or node in beside or node in cuttings:
                return
            found, reader, along = (op, *found), op, rows[0]
            cuttings[node] = ReadFirst(along)
            yield found, dict(cuttings)

    def _further(self, state: _State, site: str) -> Iterator[_Way]:
        """Where an operation waits for a border: it and those after it compute first what needs none."""
        op, decisions = self.program.op_by_name[site], state.found.candidate.decisions
        cutter = self._cutter(decisions, op)
        for operand in self._moved(decisions, op):
            for dim in dims_of(op, operand):
                if cutter.mostly_held(cutter.op.operands[operand], dim):
                    first = {self.stands[site]: HeldFirst(operand, dim, 1)}
                    for others, cuttings in self._following(op, dim):
                        yield _Way(state.found.choice, {**first, **cuttings}, (op, *others))

    def _following(self, first: Operation, along: str) -> Iterator[tuple[tuple[Operation, ...], Cuttings]]:
        """What an operation makes while it waits for a border is read by those after it, too: by one, by two and so on,
        each the first that reads the result of the one before."""
        found: tuple[Operation, ...] = ()
        cuttings: dict[int, Cutting] = {}
        made = first
        for _ in range(DEEP - 1):
            readers = sorted(self.program.consumers[made.output], key=lambda each: self.place[each.name])
            if not readers:
                return
            op, node = readers[0], self.stands[readers[0].name]
            operand = op.operands.index(made.output)
            rows = [*carried(made, along, op, operand)]
            if not rows or node == self.stands[first.name] or node in cuttings:
                return
            found, made, along = (*found, op), op, rows[0]
            cuttings[node] = MadeFirst(operand, along)
            yield found, dict(cuttings)

    def _other_homes(self, choice: dict[int, int], op: Operation, operand: int) -> Iterator[_Way]:
        """Where a tensor starts says what is held first."""
        source = self.sources.get(op.operands[operand])
        if source is None:
            return
        source = self.model.tied_to[source]
        for option in range(len(self.model.nodes[source].labels)):
            if option != choice[source]:
                for dim in dims_of(op, operand):
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
