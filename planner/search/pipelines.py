"""Plans in which groups of ranks are the stages of a chain, and a batch goes through them in pieces.

Where stages end is chosen by the cost model (`sharding.stages`) and then moved while the simulated run gets shorter.
The order in which pieces are computed is that of list scheduling, as of any other plan.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from math import inf

from ...program import Program
from ..lowering.decisions import Decisions, Pieces, Schedule
from ..lowering.order import listed
from ..lowering.pieces import Cutter
from ..sharding.model import PICO, TIE, maximal
from ..sharding.solving import Solution
from ..sharding.stages import Chain, anchors, extents, independent, stages
from ..strategy.grouping import Grouping, groupings
from ..strategy.layouts import Layout
from .batches import batch_of
from .candidates import least_peak, lower
from .effort import WORTH
from .found import Found
from .groups import CUT_WITHIN, GroupCosts, Inner, within
from .question import Question

# A plan waits for transfers for at least this share of the run before stages, which move less, are looked at: where it
# crosses hosts, and within one.
WAITING_FAR, WAITING_NEAR = 0.05, 0.25
# Pieces that a batch is cut into, for each stage.
PIECES = (1, 2, 4, 8)
# Tasks of a plan at most, those in all trials of other ends of stages, and how often memory is asked for again where
# packing needed more.
TASKS = 4000
EFFORT = 6000
RETRIES = 3
# Times what a batch takes a stage at a time, if nothing waits: transfers between groups of several ranks wait for those
# within them, and the other way round (1.3 to 1.6 times were seen).
AMONG = 1.25
# Tenths of the memory of all stages for which a group is asked how it would be cut: each needs room for activations.
BUDGETS = (9, 6)
LISTED = Schedule(listed=True)


def pipelined(question: Question, best: Found, below: float) -> Found | None:
    """The shortest plan that takes less than ``below`` seconds with groups of ranks as stages, if there is one."""
    program = question.program
    if question.objective != "time" or question.pins or len(program.operations) > CUT_WITHIN:
        return None
    waiting = WAITING_FAR if question.mesh.size > question.machine.devices_per_host else WAITING_NEAR
    if best.candidate.timeline.exposed_transfer_s < waiting * best.makespan_s:
        return None
    found = None
    for grouping in groupings(question.mesh, question.machine):
        count = len(grouping.places)
        busiest = best.candidate.timeline.compute_s
        least = _among(grouping) * busiest * (1 + (count - 1) / (PIECES[-1] * count))  # with the shortest of bubbles
        if count > len(program.operations) or least >= WORTH * below or question.clock.up:
            continue
        other = _piped(question, best.candidate.decisions, grouping, below)
        if other is not None and other.makespan_s < WORTH * below:
            found, below = other, other.makespan_s
    return found


def _piped(question: Question, everywhere: Decisions, grouping: Grouping, below: float) -> Found | None:
    """The shortest plan with these groups as stages, in one number of pieces or another."""
    dims, found = batch_of(question.program, everywhere), None
    for inner in _inners(question, grouping, dims) if dims else ():
        question.say("stages")
        other = Pipeline(question, GroupCosts(question, grouping, everywhere, inner), dims).found(below)
        if other is not None:
            found, below = other, other.makespan_s
    return found


def _inners(question: Question, grouping: Grouping, dims: Mapping[str, str]) -> Iterator[Inner]:
    """The ways to cut what is on a group: pieces cut the batch and ranks all else; or, where pieces have nothing to do
    with one another, ranks cut them alike.
    """
    seen, apart = list[Inner](), grouping.inner.size > 1
    ways: list[Mapping[str, str]] = [{}] if independent(question.program, dims) or not apart else []
    for whole, share in product([*ways, dims] if apart else ways, BUDGETS if apart else BUDGETS[:1]):
        inner = within(question, grouping, len(grouping.places) * question.capacity * share // 10, whole)
        if inner is not None and _pieced_alike(inner, dims) and not any(inner.same(other) for other in seen):
            seen.append(inner)
            yield inner


def _pieced_alike(inner: Inner, dims: Mapping[str, str]) -> bool:
    """Whether a rank has the same part of a piece in all operations. If not, a piece would wait for all others."""
    cuts = ((dim, inner.cuts[name]) for name, dim in dims.items())
    return len({tuple(c.kind if c and c.dim == dim else None for c in mine) for dim, mine in cuts}) == 1


def _among(grouping: Grouping) -> float:
    """How much longer stages take than if no transfer waited for another, at least as far as was seen."""
    return AMONG if grouping.inner.size > 1 else 1


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A program whose stages are still to be chosen; ``dims``: of each operation that is cut in pieces."""

    question: Question
    costs: GroupCosts
    dims: Mapping[str, str]

    @property
    def program(self) -> Program:
        return self.question.program

    @cached_property
    def at(self) -> list[int]:
        """Of each operation the number of the one with which it is on a stage."""
        return anchors(self.program)

    def found(self, below: float) -> Found | None:
        """The shortest by simulation of those that the cost model says. More pieces are tried while that helps."""
        found, before = None, inf
        for share in PIECES:
            count = share * self.costs.count
            fine = count <= extents(self.program, self.dims) and count * len(self.program.operations) <= TASKS
            if not fine or self.question.clock.up:
                break
            chain = self.chain(count)
            ends = stages(chain, self.costs.count, self.question.capacity)
            if ends is None or self.least(chain, ends, count) >= WORTH * below:
                continue
            seconds = self.seconds(self.decisions(ends, count))
            if seconds >= WORTH * before:
                break
            other = self.fitting(ends, chain, count) if seconds < WORTH * below else None
            if other is not None:
                before = seconds
                if other[0].makespan_s < WORTH * below:
                    found, below = (*other, count), other[0].makespan_s
        return None if found is None else self.moved(*found)

    def least(self, chain: Chain, ends: Sequence[int], pieces: int) -> float:
        """Seconds that a run with these stages was never seen to take less than, told without any order of tasks."""
        return _among(self.costs.grouping) * chain.run(ends, pieces)

    def chain(self, pieces: int) -> Chain:
        """What operations take on a group. Starts of tasks and of transfers count for each piece."""
        start = self.question.machine.device.start_s(self.question.mesh.size)
        seconds, moving = ([0.0] * (max(self.at) + 1) for _ in range(2))
        resident: list[dict[str, int]] = [{} for _ in seconds]
        for k, op in zip(self.at, self.program.operations, strict=True):
            seconds[k] += self.costs.seconds(op, 0) + (pieces - 1) * start * (op.name in self.dims)
            moving[k] += sum(self._moving(op.output, need, pieces) for need in self._needs(op.output, 0))
            kept = [name for name in op.operands if self.program.tensor(name).role in ("param", "state", "const")]
            for name in kept:
                home = self.costs.inner.homes[name]
                resident[k][name] = home.storage_size * self.program.tensor(name).itemsize
        return Chain(seconds, self._crossing(len(seconds), pieces), resident, moving)

    def _crossing(self, count: int, pieces: int) -> list[float]:
        """Seconds of moving all that is there on one side of an end of stages and read on the other, for each end."""
        found = [0.0] * (count + 1)
        place = {op.name: at for at, op in zip(self.at, self.program.operations, strict=True)}
        for tensor in (t for t in self.program.tensors if t.role in ("input", "value")):
            makers = [op for op in (self.program.producer.get(tensor.name),) if op is not None]
            sides = [place[op.name] for op in (*makers, *self.program.consumers[tensor.name])]
            if len(set(sides)) > 1:
                seconds = max(self._moving(tensor.name, need, pieces) for need in self._needs(tensor.name, 1))
                for end in range(min(sides) + 1, max(sides) + 1):
                    found[end] += seconds
        return found

    def _moving(self, tensor: str, need: Layout, pieces: int) -> float:
        """Seconds of moving a tensor from the first group, in so many pieces where it is made so."""
        seconds, made = self.costs.priced(tensor, 0, need), self.program.producer.get(tensor)
        pieced = seconds and (made is None or made.name in self.dims)
        return seconds + (pieces - 1) * self.question.pricing.quickest[0] * bool(pieced)

    def _needs(self, tensor: str, group: int) -> list[Layout]:
        """What is asked for of a value or an input by its readers on a group."""
        readers = self.program.consumers[tensor]
        return maximal([self.costs.strategy(op, group).needs[op.operands.index(tensor)] for op in readers])

    def fitting(self, ends: tuple[int, ...], chain: Chain, pieces: int) -> tuple[Found, tuple[int, ...]] | None:
        """The plan with these stages; with others that take less memory where it does not fit."""
        capacity = self.question.capacity
        for _ in range(RETRIES):
            decisions = self.decisions(ends, pieces)
            peak = least_peak(self.question, decisions, LISTED)
            made = self.lowered(decisions) if peak <= self.question.capacity else None
            if made is not None and (peak := made.candidate.peak) <= self.question.capacity:
                return made, ends
            capacity -= peak - self.question.capacity
            other = stages(chain, self.costs.count, capacity)
            if other is None or other == ends or self.question.clock.up:
                return None
            ends = other
        return None

    def moved(self, best: Found, ends: tuple[int, ...], pieces: int) -> Found:
        """Ends of stages moved by an operation or a few while that helps."""
        tasks, seconds, chain = EFFORT, self.seconds(self.decisions(ends, pieces)), self.chain(pieces)
        improved = True
        while improved:
            improved = False
            for other in _neighbours(ends, max(self.at) + 1):
                if self.least(chain, other, pieces) >= WORTH * seconds:
                    continue
                tasks -= pieces * len(self.program.operations)
                if tasks <= 0 or self.question.clock.up:
                    return best
                listed_s = self.seconds(self.decisions(other, pieces))
                made = self.lowered(self.decisions(other, pieces)) if listed_s < WORTH * seconds else best
                if made.candidate.peak <= self.question.capacity and made.makespan_s < WORTH * best.makespan_s:
                    best, ends, seconds, improved = made, other, listed_s, True
                    break
        return best

    def decisions(self, ends: tuple[int, ...], pieces: int) -> Decisions:
        """With stages that end there, in so many pieces."""
        both = zip(self.at, self.program.operations, strict=True)
        groups = {op.name: bisect_right(ends, at) for at, op in both}
        decisions = self.costs.decisions(groups)
        return replace(decisions, pieces=self.pieces(decisions, pieces))

    def seconds(self, decisions: Decisions) -> float:
        """Of the run by list scheduling."""
        return listed(self.program, decisions, self.question.pricing, self.question.layouts).seconds

    def lowered(self, decisions: Decisions) -> Found:
        """The plan with such stages. No plan of the kind takes less than an equal share of the work."""
        candidate = lower(self.question, decisions, LISTED)
        objective = round(self.seconds(decisions) * TIE * PICO)
        least = sum(self.costs.seconds(op, 0) for op in self.program.operations) / self.costs.count
        bound = min(objective, round(least * TIE * PICO))
        return Found(candidate, {}, Solution("feasible", {}, objective, bound))

    def pieces(self, decisions: Decisions, count: int) -> dict[str, Pieces]:
        found = {}
        for name, dim in self.dims.items():
            op = self.program.op_by_name[name]
            pieces = Cutter(self.question.table, decisions, op).equal(dim, count)
            if pieces is not None:
                found[name] = pieces
        return found


def _neighbours(ends: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """Stages of which one ends a little earlier or later."""
    for step in (1, 2, 4):
        for k, end in enumerate(ends):
            for moved in (end - step, end + step):
                other = (*ends[:k], moved, *ends[k + 1 :])
                if all(a < b for a, b in pairwise([0, *other, count])):
                    yield other
