"""From decisions to steps: a buffer for every layout a tensor takes, and the tasks that fill them, in one order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ...program import Operation, Tensor
from ...records import record_bytes
from ..strategy.layouts import Layout
from ..strategy.strategies import Strategy
from ..strategy.traffic import Traffic
from .decisions import Schedule, Unit
from .needs import Moved, Needed, Needs
from .parts import Part

if TYPE_CHECKING:
    from .replacements import Replacements

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
    touched: tuple[Touch, ...] = field(init=False)

    def __post_init__(self) -> None:
        found = [Touch(slot, need, False) for slot, need in zip(self.reads, self.strategy.needs, strict=True)]
        if self.onto is not None:
            found.append(Touch(self.onto, self.strategy.writes, False))
        found.append(Touch(self.write, self.strategy.writes, True))
        object.__setattr__(self, "touched", tuple(found))

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
    touched: tuple[Touch, ...] = field(init=False)

    def __post_init__(self) -> None:
        touched = Touch(self.source, self.have, False), Touch(self.target, self.written, True)
        object.__setattr__(self, "touched", touched)

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

    @cached_property
    def used(self) -> tuple[dict[int, int], dict[int, int]]:
        """By the identity of a slot the first and the last step that touches it. Of steps that are complete."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for position, step in enumerate(self.steps):
            for slot, _, _ in step.touched:
                key = id(slot)
                last[key] = position
                if key not in first:
                    first[key] = position
        return first, last

    @cached_property
    def replacements(self) -> Replacements:
        """Which slots may share a place. Of steps that are complete."""
        from .replacements import replacements  # which speaks of the steps that are declared here

        return replacements(self)


class StepBuilder:
    """Builds `Steps` under a schedule: one pass over the operations."""

    def __init__(self, needs: Needs, traffic: Traffic, schedule: Schedule) -> None:
        self.program, self.decisions, self.layouts = needs.program, needs.decisions, needs.layouts
        self.needs, self.traffic, self.schedule = needs, traffic, schedule
        self.result = Steps()
        self.home: dict[str, Slot] = {}
        self.homes: dict[str, dict[int, Slot]] = {}
        self.have: dict[str, Layout] = {}
        self.copies: dict[str, list[Slot]] = {}
        self.pending: dict[int, list[_Move]] = {}
        self.listing, self.units, self.units_of = needs.listing, needs.listing.units, needs.units_of

    def build(self) -> Steps:
        for tensor in self.program.of_role("input", "param", "state", "const"):
            found = self.needs.of(tensor)
            keep = tensor.role != "input" or tensor.name in self.program.outputs
            self.home[tensor.name] = self._slot(tensor.name, tensor, found.grown or found.have, found.have, keep)
            self._settle(tensor, found)
        for k, unit in enumerate(self.units):
            self._emit_moves(k)
            self._emit_compute(k, unit)
            if k == self.units_of[unit.op.name][0][0]:
                out = self.program.tensor(unit.op.output)
                found = self.needs.of(out)
                if found.grown is not None:
                    self.home[out.name].layout = found.grown
                self._settle(out, found)
        self._emit_moves(len(self.units))
        self._finish()
        return self.result

    def _settle(self, tensor: Tensor, found: Needed) -> None:
        """Register where a tensor is, and schedule the moves its consumers need."""
        self.have[tensor.name], self.copies[tensor.name] = found.have, []
        for moved in found.moved:
            target = self.home[tensor.name] if moved.home else self._copy(tensor, moved.need)
            self.copies[tensor.name].append(target)
            self._schedule(tensor, moved, target)

    def _copy(self, tensor: Tensor, need: Layout) -> Slot:
        return self._slot(f"{tensor.name}>{len(self.copies[tensor.name])}", tensor, need)

    def _schedule(self, tensor: Tensor, moved: Moved, target: Slot) -> None:
        at_once = self.schedule.at_once or moved.pieces
        for part in moved.parts:
            if part.after < 0:
                slot = max(0, part.first - self.schedule.ahead)
            else:
                slot = self.listing.before(tensor.name, part.after, part.need) if at_once else part.first - 3
                slot = max(part.after + 1, min(slot, part.first))
            self.pending.setdefault(slot, []).append(_Move(tensor, part, target))

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
        width, name = self.needs.width(move.tensor.name), move.tensor.name
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
            self._make_homes(op, out, self.decisions.strategies[op.name].writes)
        home = self.homes.get(out.name, {}).get(k, self.home[out.name])
        if strategy.turns is None:
            self.result.steps.append(ComputeStep(op, strategy, reads, home))
            return
        from .ring import TurnSteps  # which is made of the steps that are declared here

        turned = TurnSteps(self.program, self.traffic, op, strategy, strategy.turns, reads, home)
        self.result.slots += turned.slots
        self.result.steps += turned.steps()

    def _make_homes(self, op: Operation, out: Tensor, whole: Layout) -> None:
        """The buffer of a value; one for each piece, where it is read piece by piece."""
        if self.needs.read_apart(op):
            units = self.units_of[op.name]
            slots = {k: self._slot(f"{out.name}.{unit.piece}", out, unit.strategy.writes) for k, unit in units}
            self.homes[out.name], self.home[out.name] = slots, slots[units[0][0]]
        else:
            self.home[out.name] = self._slot(out.name, out, whole, keep=out.name in self.program.outputs)
        for slot in {**self.homes.get(out.name, {}), -1: self.home[out.name]}.values() if whole.parts else ():
            slot.record = self.program.records.get(out.name)

    def _source(self, name: str, need: Layout) -> Slot:
        """The buffer of a tensor that holds a needed layout."""
        copy = self.needs.copy(name, need)
        if copy >= 0:
            return self.copies[name][copy]
        slots = self.homes[name].values() if name in self.homes else ()
        return next((slot for slot in slots if need.within(slot.layout)), self.home[name])

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
        return self.copies[name][self.needs.copy(name, self.decisions.ends[name])]
