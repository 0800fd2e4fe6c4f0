"""From decisions to steps: a buffer for every layout a tensor takes, and the tasks that fill them, in one order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from ...program import Operation, Program, Tensor
from ...records import record_bytes, width_of
from ..sharding.model import maximal
from ..strategy.layouts import Layout, Layouts
from ..strategy.strategies import Strategy
from ..strategy.traffic import Traffic

COMPUTE, COMM = "compute", "comm"


@dataclass(frozen=True)
class Decisions:
    """What was decided: where source tensors lie, how operations are sharded, how partial outputs end."""

    homes: Mapping[str, Layout]
    strategies: Mapping[str, Strategy]
    ends: Mapping[str, Layout]


@dataclass(frozen=True)
class Schedule:
    """How far ahead of use (in operations) resident tensors are gathered, and whether before fresh values.

    ``listed``: operations in list-scheduled order instead of the program's (`planner.lowering.order`).
    """

    ahead: int = 2
    gathers_first: bool = False
    listed: bool = False


@dataclass(eq=False)
class Slot:
    """A buffer before it has an offset: ``layout`` is what it may store, ``initial`` what it holds before the run.

    ``record``: the dtypes of the partial results that it holds, where these are not elements of the tensor.
    """

    name: str
    tensor: Tensor
    layout: Layout
    initial: Layout | None = None
    keep: bool = False
    record: tuple[str, ...] | None = None

    @property
    def itemsize(self) -> int:
        return self.tensor.itemsize if self.record is None else record_bytes(self.record)


class Touch(NamedTuple):
    """What a step reads or writes of a slot."""

    slot: Slot
    layout: Layout
    writes: bool


@dataclass(frozen=True, eq=False, slots=True)
class ComputeStep:
    """An operation on the ranks that compute any of it, before its task has an id."""

    lane: ClassVar[str] = COMPUTE

    op: Operation
    strategy: Strategy
    reads: tuple[Slot, ...]
    write: Slot

    @property
    def touched(self) -> tuple[Touch, ...]:
        pairs = zip(self.reads, self.strategy.needs, strict=True)
        return (*(Touch(slot, need, False) for slot, need in pairs), Touch(self.write, self.strategy.writes, True))

    @property
    def ranks(self) -> tuple[int, ...] | None:
        """Those that compute any point of it; None: all."""
        return self.strategy.ranks


@dataclass(frozen=True, eq=False, slots=True)
class MoveStep:
    """A transfer among the ranks that have or need any of it, before its task has an id.

    ``kind`` names the collective, ``monoid`` what folds the contributions of a partial value. ``written`` is what
    ``target`` lacks of ``need``: all of it, unless the target is the source.
    """

    lane: ClassVar[str] = COMM

    tensor: Tensor
    source: Slot
    target: Slot
    have: Layout
    need: Layout
    written: Layout
    kind: str
    monoid: str | None

    @property
    def touched(self) -> tuple[Touch, ...]:
        return Touch(self.source, self.have, False), Touch(self.target, self.written, True)

    @property
    def ranks(self) -> tuple[int, ...] | None:
        """Those that have or need anything of it, which all meet; None: all."""
        if self.have.ranks is None or self.need.ranks is None:
            return None
        found = tuple(sorted({*self.have.ranks, *self.need.ranks}))
        return None if len(found) == len(self.have.regions) else found


Step = ComputeStep | MoveStep


@dataclass(eq=False)
class _Move:
    """A pending transfer of a tensor to one needed layout."""

    tensor: Tensor
    need: Layout
    target: Slot
    slot: int


@dataclass(eq=False)
class Steps:
    """The whole lowered program: slots, steps in order, where outputs and states end."""

    slots: list[Slot] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    outputs: dict[str, Slot] = field(default_factory=dict)
    states: dict[str, Slot] = field(default_factory=dict)


class StepBuilder:
    """Builds `Steps`: one pass over the operations."""

    def __init__(
        self, program: Program, decisions: Decisions, traffic: Traffic, layouts: Layouts, schedule: Schedule
    ) -> None:
        self.program, self.decisions, self.traffic, self.layouts = program, decisions, traffic, layouts
        self.schedule = schedule
        self.result = Steps()
        self.home: dict[str, Slot] = {}
        self.have: dict[str, Layout] = {}
        self.copies: dict[str, list[tuple[Layout, Slot]]] = {}
        self.pending: dict[int, list[_Move]] = {}
        self.index = {op.name: k for k, op in enumerate(program.operations)}

    def build(self) -> Steps:
        for tensor in self.program.of_role("input", "param", "state", "const"):
            self._settle(tensor, self.decisions.homes[tensor.name], -1)
        for k, op in enumerate(self.program.operations):
            self._emit_moves(k)
            self._emit_compute(op)
            self._settle(self.program.tensor(op.output), self.decisions.strategies[op.name].writes, k)
        self._emit_moves(len(self.program.operations))
        self._finish()
        return self.result

    def _settle(self, tensor: Tensor, have: Layout, made: int) -> None:
        """Register where a tensor is, and schedule the moves its consumers need."""
        self.have[tensor.name] = have
        needs = self._needs(tensor)
        moved = maximal([need for _, need in needs if not have.satisfies(need)])
        grown = self._in_place(tensor, have, moved)
        if made < 0:
            keep = tensor.role in ("param", "state", "const") or tensor.name in self.program.outputs
            self.home[tensor.name] = self._slot(tensor.name, tensor, grown or have, have, keep)
        elif grown is not None:
            self.home[tensor.name].layout = grown
        self.copies[tensor.name] = []
        for number, need in enumerate(moved):
            target = self.home[tensor.name] if need is grown else self._slot(f"{tensor.name}>{number}", tensor, need)
            self.copies[tensor.name].append((need, target))
            first = min(at for at, other in needs if other.within(need))
            slot = max(0, first - self.schedule.ahead) if made < 0 else max(made + 1, first - 3)
            self.pending.setdefault(slot, []).append(_Move(tensor, need, target, first))

    def _needs(self, tensor: Tensor) -> list[tuple[int, Layout]]:
        """(operation index, layout) of every consumer, the end of the program included."""
        found = []
        end = len(self.program.operations)
        for op in self.program.consumers[tensor.name]:
            strategy = self.decisions.strategies[op.name]
            found.append((self.index[op.name], strategy.needs[op.operands.index(tensor.name)]))
        if tensor.name in self.decisions.ends and self.have[tensor.name].parts is not None:
            found.append((end, self.decisions.ends[tensor.name]))
        # The new value of a state ends where the state started.
        found += [(end, self.have[state]) for state, value in self.program.states if value == tensor.name]
        return found

    def _in_place(self, tensor: Tensor, have: Layout, moved: list[Layout]) -> Layout | None:
        """A needed layout so little larger than the home that the home is laid out for it (a halo), without a copy."""
        if tensor.role in ("param", "state", "const") or have.parts is not None:
            return None
        near = [need for need in moved if have.within(need) and need.storage_size <= 1.5 * have.storage_size]
        return near[0] if near else None

    def _slot(
        self, name: str, tensor: Tensor, layout: Layout, initial: Layout | None = None, keep: bool = False
    ) -> Slot:
        slot = Slot(name, tensor, layout, initial, keep)
        self.result.slots.append(slot)
        return slot

    def _emit_moves(self, k: int) -> None:
        moves = self.pending.pop(k, [])
        early = 0 if self.schedule.gathers_first else 1
        moves.sort(key=lambda move: (early if move.tensor.role != "value" else 1 - early, move.slot))
        for move in moves:
            self._emit_move(move)

    def _emit_move(self, move: _Move) -> None:
        source, have = self.home[move.tensor.name], self.have[move.tensor.name]
        written = move.need
        if move.target is source:
            written = self._difference(move.need, have)
        kind = self.traffic.move(have, move.need, width_of(self.program, move.tensor.name)).kind
        monoid = self._monoid(move.tensor)
        self.result.steps.append(MoveStep(move.tensor, source, move.target, have, move.need, written, kind, monoid))

    def _monoid(self, tensor: Tensor) -> str | None:
        """What folds the contributions of a partial value."""
        return self.program.producer[tensor.name].monoid if self.have[tensor.name].parts is not None else None

    def _difference(self, need: Layout, have: Layout) -> Layout:
        return self.layouts.of(need.shape, have.lacking(need))

    def _emit_compute(self, op: Operation) -> None:
        strategy = self.decisions.strategies[op.name]
        reads = tuple(self._source(name, need) for name, need in zip(op.operands, strategy.needs, strict=True))
        out = self.program.tensor(op.output)
        write = self._slot(out.name, out, strategy.writes, keep=out.name in self.program.outputs)
        if strategy.writes.parts is not None:
            write.record = self.program.records.get(out.name)
        self.home[out.name] = write
        self.result.steps.append(ComputeStep(op, strategy, reads, write))

    def _source(self, name: str, need: Layout) -> Slot:
        """The buffer of a tensor that holds a needed layout."""
        if self.have[name].satisfies(need):
            return self.home[name]
        return next(slot for layout, slot in self.copies[name] if need.within(layout))

    def _finish(self) -> None:
        for name in self.program.outputs:
            slot = self._final(name)
            slot.keep = True
            self.result.outputs[name] = slot
        for state, value in self.program.states:
            self.result.states[state] = self._source(value, self.have[state])
            self.result.states[state].keep = True

    def _final(self, name: str) -> Slot:
        if self.have[name].parts is None:
            return self.home[name]
        end = self.decisions.ends[name]
        return next(slot for layout, slot in self.copies[name] if end.within(layout))
