"""From decisions to steps: a buffer for every layout a tensor takes, and the tasks that fill them, in one order."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, NamedTuple

from ...program import Operation, Program, Tensor
from ...records import record_bytes, width_of
from ..sharding.model import maximal
from ..strategy.layouts import Layout, Layouts, united
from ..strategy.strategies import Strategy
from ..strategy.traffic import Traffic
from .decisions import Decisions, Listing, Schedule, Unit
from .parts import Part, Reader, Written, apart, by_piece, parts, written_by

COMPUTE, COMM = "compute", "comm"


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
    onto: Slot | None = None

    @property
    def touched(self) -> tuple[Touch, ...]:
        pairs = zip(self.reads, self.strategy.needs, strict=True)
        prior = () if self.onto is None else (Touch(self.onto, self.strategy.writes, False),)
        written = Touch(self.write, self.strategy.writes, True)
        return (*(Touch(slot, need, False) for slot, need in pairs), *prior, written)

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
    """A pending transfer of a part of a tensor."""

    tensor: Tensor
    part: Part
    target: Slot


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
        self,
        program: Program,
        decisions: Decisions,
        listing: Listing,
        traffic: Traffic,
        layouts: Layouts,
        schedule: Schedule,
    ) -> None:
        self.program, self.decisions, self.traffic, self.layouts = program, decisions, traffic, layouts
        self.schedule = schedule
        self.result = Steps()
        self.home: dict[str, Slot] = {}
        self.homes: dict[str, dict[int, Slot]] = {}
        self.have: dict[str, Layout] = {}
        self.copies: dict[str, list[tuple[Layout, Slot]]] = {}
        self.pending: dict[int, list[_Move]] = {}
        self.listing, self.units = listing, listing.units
        self.units_of: dict[str, list[tuple[int, Unit]]] = {}
        for k, unit in enumerate(self.units):
            self.units_of.setdefault(unit.op.name, []).append((k, unit))
        self.states_of: dict[str, list[str]] = {}  # by their new value
        for state, value in program.states:
            self.states_of.setdefault(value, []).append(state)

    def build(self) -> Steps:
        for tensor in self.program.of_role("input", "param", "state", "const"):
            have = self.decisions.homes[tensor.name]
            self._settle(tensor, have, [Written(-1, have)])
        for k, unit in enumerate(self.units):
            self._emit_moves(k)
            self._emit_compute(k, unit)
            mine = self.units_of[unit.op.name]
            if k == mine[0][0]:
                written = written_by([(at, u.piece, u.strategy.writes) for at, u in mine], self.layouts)
                whole = self.decisions.strategies[unit.op.name].writes
                self._settle(self.program.tensor(unit.op.output), whole, written)
        self._emit_moves(len(self.units))
        self._finish()
        return self.result

    def _settle(self, tensor: Tensor, have: Layout, written: list[Written]) -> None:
        """Register where a tensor is, and schedule the moves its consumers need."""
        self.have[tensor.name] = have
        lacking = [reader for reader in self._readers(tensor) if not have.satisfies(reader.need)]
        by_op: dict[str, list[Layout]] = {}
        for reader in lacking:
            by_op.setdefault(reader.op, []).append(reader.need)
        moved = maximal([self._moved_for(tensor, have, op, needs) for op, needs in by_op.items()])
        grown = next((need for need in moved if self._grows(tensor, have, need)), None)
        if written[0].at < 0:
            keep = tensor.role in ("param", "state", "const") or tensor.name in self.program.outputs
            self.home[tensor.name] = self._slot(tensor.name, tensor, grown or have, have, keep)
        elif grown is not None:
            self.home[tensor.name].layout = grown
        self.copies[tensor.name] = []
        served: dict[Layout, list[Reader]] = {need: [] for need in moved}
        for reader in lacking:
            served[next(need for need in moved if reader.need.within(need))].append(reader)
        for need in moved:
            groups = by_piece(served[need], self.layouts)
            for mine in ([] if need is grown else apart(need, groups, self.layouts)) or [need]:
                target = self.home[tensor.name] if need is grown else self._copy(tensor, mine)
                within = [group for group in groups if group.need.within(mine)]
                self._move_to(tensor, mine, within, written, target)

    def _moved_for(self, tensor: Tensor, have: Layout, op: str, needs: list[Layout]) -> Layout:
        """What an operation reads that is moved for it: nothing for the pieces that read what is there, unless that
        is where it is moved to.
        """
        if op in self.decisions.pieces:
            strategy = self.decisions.strategies[op]
            whole = strategy.needs[self.program.op_by_name[op].operands.index(tensor.name)]
            if self._grows(tensor, have, whole):
                return whole
        return united(needs, self.layouts)

    def _copy(self, tensor: Tensor, need: Layout) -> Slot:
        copies = self.copies[tensor.name]
        copies.append((need, self._slot(f"{tensor.name}>{len(copies)}", tensor, need)))
        return copies[-1][1]

    def _move_to(
        self, tensor: Tensor, need: Layout, groups: list[Reader], written: list[Written], target: Slot
    ) -> None:
        if target is self.home[tensor.name]:
            self.copies[tensor.name].append((need, target))
            if len(written) > 1:
                need = self.layouts.without(need, self.have[tensor.name])
        at_once = self.schedule.at_once or len(written) > 1 or any(group.piece for group in groups)
        for part in parts(need, groups, written, self.layouts):
            if part.after < 0:
                slot = max(0, part.first - self.schedule.ahead)
            else:
                slot = self.listing.before(tensor.name, part.after, part.need) if at_once else part.first - 3
                slot = max(part.after + 1, min(slot, part.first))
            self.pending.setdefault(slot, []).append(_Move(tensor, part, target))

    def _readers(self, tensor: Tensor) -> list[Reader]:
        """What every task needs that reads it, and the end of the program."""
        found = []
        end = len(self.units)
        for op in self.program.consumers[tensor.name]:
            operand = op.operands.index(tensor.name)
            found += [Reader(k, u.strategy.needs[operand], op.name, u.piece) for k, u in self.units_of[op.name]]
        if tensor.name in self.decisions.ends and self.have[tensor.name].parts is not None:
            found.append(Reader(end, self.decisions.ends[tensor.name], "@end"))
        # The new value of a state ends where the state started.
        states = self.states_of.get(tensor.name, ())
        return found + [Reader(end, self.have[state], f"@{state}") for state in states]

    def _grows(self, tensor: Tensor, have: Layout, need: Layout) -> bool:
        """Whether a needed layout is so little larger than the home that the home is laid out for it (a halo), without
        a copy.
        """
        if tensor.role in ("param", "state", "const") or have.parts is not None:
            return False
        return have.within(need) and need.storage_size <= 1.5 * have.storage_size

    def _slot(
        self, name: str, tensor: Tensor, layout: Layout, initial: Layout | None = None, keep: bool = False
    ) -> Slot:
        slot = Slot(name, tensor, layout, initial, keep)
        self.result.slots.append(slot)
        return slot

    def _emit_moves(self, k: int) -> None:
        moves = self.pending.pop(k, [])
        early = 0 if self.schedule.gathers_first else 1
        moves.sort(key=lambda move: (early if move.tensor.role != "value" else 1 - early, move.part.first))
        for move in moves:
            self._emit_move(move)

    def _emit_move(self, move: _Move) -> None:
        """A transfer, or one after another: what is on the way is in the target, or beside it where it has more."""
        width, name = width_of(self.program, move.tensor.name), move.tensor.name
        source = self.homes.get(name, {}).get(move.part.after, self.home[name])
        monoid = self._monoid(move.tensor)
        for have, need in pairwise(self.traffic.path(move.part.have, move.part.need, width)):
            inside = need is move.part.need or (need.parts is None and need.within(move.part.need))
            target = move.target if inside else self._slot(f"{name}~", move.tensor, need)
            if need.parts is not None:
                target.record = self.program.records.get(name)
            written = self.layouts.without(need, have) if target is source else need
            kind = self.traffic.direct(have, need, width).kind
            self.result.steps.append(MoveStep(move.tensor, source, target, have, need, written, kind, monoid))
            source, monoid = target, monoid if need.parts is not None else None

    def _monoid(self, tensor: Tensor) -> str | None:
        """What folds the contributions of a partial value."""
        return self.program.producer[tensor.name].monoid if self.have[tensor.name].parts is not None else None

    def _emit_compute(self, k: int, unit: Unit) -> None:
        op, strategy = unit.op, unit.strategy
        reads = tuple(self._source(name, need) for name, need in zip(op.operands, strategy.needs, strict=True))
        out = self.program.tensor(op.output)
        if out.name not in self.home:
            self._make_homes(out, self.units_of[op.name], self.decisions.strategies[op.name].writes)
        home = self.homes.get(out.name, {}).get(k, self.home[out.name])
        if strategy.turns is None:
            self.result.steps.append(ComputeStep(op, strategy, reads, home))
            return
        from .ring import TurnSteps  # which is made of the steps that are declared here

        turned = TurnSteps(self.program, self.traffic, op, strategy, strategy.turns, reads, home)
        self.result.slots += turned.slots
        self.result.steps += turned.steps()

    def _make_homes(self, out: Tensor, units: list[tuple[int, Unit]], whole: Layout) -> None:
        """The buffer of a value; one for each piece, where it is read piece by piece."""
        if self._read_apart(out, units, whole):
            slots = {k: self._slot(f"{out.name}.{unit.piece}", out, unit.strategy.writes) for k, unit in units}
            self.homes[out.name], self.home[out.name] = slots, slots[units[0][0]]
        else:
            self.home[out.name] = self._slot(out.name, out, whole, keep=out.name in self.program.outputs)
        for slot in {**self.homes.get(out.name, {}), -1: self.home[out.name]}.values() if whole.parts else ():
            slot.record = self.program.records.get(out.name)

    def _read_apart(self, out: Tensor, units: list[tuple[int, Unit]], whole: Layout) -> bool:
        """Whether every task that reads a value where it is made reads of one piece only."""
        several = len({unit.piece for _, unit in units}) < len(units)  # tasks of a piece
        if len(units) == 1 or several or out.name in self.states_of or out.name in self.program.outputs:
            return False
        needs = list(dict.fromkeys(reader.need for reader in self._readers(out)))
        written = [unit.strategy.writes for _, unit in units]
        if sum(piece.everything.size for piece in written) > whole.everything.size:  # folded of several pieces
            return False
        there = [need for need in needs if whole.satisfies(need)]
        moved = [need for need in needs if need not in there]
        read_apart = all(any(need.within(piece) for piece in written) for need in there)
        return read_apart and not any(self._grows(out, whole, need) for need in moved)

    def _source(self, name: str, need: Layout) -> Slot:
        """The buffer of a tensor that holds a needed layout."""
        if self.have[name].satisfies(need):
            slots = self.homes.get(name, {}).values()
            return next((slot for slot in slots if need.within(slot.layout)), self.home[name])
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
