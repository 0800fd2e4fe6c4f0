"""What lowering is told: where tensors lie, how operations are sharded and in which pieces they are computed.

A piece is some of the points that each rank computes of an operation. It waits only for what it reads, and what it
leaves can be sent while the next one is computed. Which piece feeds which is nowhere written down: it follows from the
elements that they read and write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...program import Operation, Program
from ..strategy.layouts import Layout
from ..strategy.strategies import Strategy

Piece = tuple[Strategy, ...]
"""A piece by the tasks that compute it: mostly one, and one for each box where it lies apart."""
Pieces = tuple[Piece, ...]
"""All of an operation, in the order in which it is computed: together the points of its strategy, on every rank."""


@dataclass(frozen=True)
class Decisions:
    """What was decided: where source tensors lie, how operations are sharded, how partial outputs end.

    ``pieces``: of the operations that are not computed at once.
    """

    homes: Mapping[str, Layout]
    strategies: Mapping[str, Strategy]
    ends: Mapping[str, Layout]
    pieces: Mapping[str, Pieces] = field(default_factory=dict)

    def pieces_of(self, name: str) -> Pieces:
        """The pieces of an operation: itself where it has none."""
        return self.pieces.get(name) or ((self.strategies[name],),)

    def made(self, program: Program, tensor: str) -> Layout:
        """Where a tensor is before it is moved."""
        producer = program.producer.get(tensor)
        return self.homes[tensor] if producer is None else self.strategies[producer.name].writes

    def wanted(self, program: Program, tensor: str) -> tuple[Layout, ...]:
        """The layouts in which operations read a tensor."""
        readers = program.consumers[tensor]
        return tuple(self.strategies[op.name].needs[op.operands.index(tensor)] for op in readers)


@dataclass(frozen=True)
class Schedule:
    """How far ahead of use (in tasks that compute) resident tensors are gathered, and whether before fresh values.

    ``listed``: operations in list-scheduled order instead of the program's (`planner.lowering.order`). ``at_once``:
    values are sent when they are made, and not shortly before they are read: those that are read much later, as
    gradients are by the update of their weights, hold up no others that way, and take memory for longer.
    """

    ahead: int = 2
    gathers_first: bool = False
    listed: bool = False
    at_once: bool = False


@dataclass(frozen=True, eq=False)
class Unit:
    """One compute task to be, of piece number ``piece`` of an operation."""

    op: Operation
    piece: int
    strategy: Strategy


@dataclass(frozen=True)
class Listing:
    """Tasks in an order, and the seconds that they take in it, but for what is gathered of resident tensors.

    ``sent``: by tensor and the place of the task that left it there, the layouts that it is moved to, each with how
    many tasks come before that transfer.
    """

    units: tuple[Unit, ...]
    seconds: float = 0.0
    sent: Mapping[tuple[str, int], Sequence[tuple[Layout, int]]] = field(default_factory=dict)

    def before(self, tensor: str, writer: int, need: Layout) -> int:
        """How many tasks come before what a task left there is moved to a layout, at least."""
        return next((count for layout, count in self.sent.get((tensor, writer), ()) if need.within(layout)), writer + 1)


def units_of(program: Program, decisions: Decisions) -> tuple[Unit, ...]:
    """Operation after operation in the program's order, each piece after piece."""
    return tuple(
        Unit(op, number, strategy)
        for op in program.operations
        for number, piece in enumerate(decisions.pieces_of(op.name))
        for strategy in piece
    )
