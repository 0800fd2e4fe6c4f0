"""The order of operations by list scheduling: what waits for a transfer lets others go first.

Ranks that compute the same operations have one compute lane and one lane of transfers together: one for all ranks where
no operation leaves a rank idle. Among the operations whose producers are scheduled, the one that can start first goes
next; on a tie the one with the longest way to the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...program import Operation, Program
from ...records import width_of
from ..sharding.model import maximal
from ..strategy.layouts import Layout
from ..strategy.traffic import Traffic
from .decisions import Decisions
from .sides import told_apart


@dataclass(eq=False)
class _Lanes:
    """When each lane is free, by class of ranks, and when each layout of each tensor is there."""

    compute: list[float]
    comm: list[float]
    made: dict[str, float] = field(default_factory=dict)
    moved: dict[str, list[tuple[Layout, float]]] = field(default_factory=dict)


class _Lister:
    def __init__(self, program: Program, decisions: Decisions, traffic: Traffic) -> None:
        self.program, self.decisions, self.traffic = program, decisions, traffic
        self.moves = {
            tensor.name: self._moves(tensor.name) for tensor in program.tensors if tensor.role in ("value", "input")
        }
        self.level = self._levels()
        strategies = decisions.strategies.values()
        self.sides = told_apart((s.ranks for s in strategies), max((len(s.shards) for s in strategies), default=1))

    def _on(self, *ranks: tuple[int, ...] | None) -> list[int]:
        """The numbers of the classes that some of these sets of ranks (None: all) reach."""
        everyone = any(some is None for some in ranks)
        some = {rank for few in ranks if few is not None for rank in few}
        return [k for k, members in enumerate(self.sides) if everyone or not members.isdisjoint(some)]

    def _moves(self, name: str) -> list[tuple[Layout, float]]:
        """The layouts a tensor is moved to, with seconds."""
        have = self.decisions.made(self.program, name)
        needs = [self._need(op, name) for op in self.program.consumers[name]]
        width = width_of(self.program, name)
        return [
            (need, self.traffic.move(have, need, width).seconds)
            for need in maximal([n for n in needs if not have.satisfies(n)])
        ]

    def _need(self, op: Operation, name: str) -> Layout:
        return self.decisions.strategies[op.name].needs[op.operands.index(name)]

    def _levels(self) -> dict[str, float]:
        """Seconds from the start of each operation to the end of the program, along the longest way."""
        level: dict[str, float] = {}
        for op in reversed(self.program.operations):
            after = max((level[reader.name] for reader in self.program.consumers[op.output]), default=0.0)
            moved = max((seconds for _, seconds in self.moves[op.output]), default=0.0)
            level[op.name] = self.decisions.strategies[op.name].slowest + moved + after
        return level

    def order(self) -> list[Operation]:
        lanes = _Lanes([0.0] * len(self.sides), [0.0] * len(self.sides))
        on = {name: self._on(strategy.ranks) for name, strategy in self.decisions.strategies.items()}
        for tensor in self.program.of_role("input"):
            self._produce(tensor.name, 0.0, lanes)
        waiting = {op.name: sum(n in self.program.producer for n in op.operands) for op in self.program.operations}
        position = {op.name: k for k, op in enumerate(self.program.operations)}
        ready = [op for op in self.program.operations if not waiting[op.name]]
        found = []
        while ready:
            free = {op.name: max(lanes.compute[k] for k in on[op.name]) for op in ready}
            start = {op.name: max(free[op.name], self._available(op, lanes)) for op in ready}
            chosen = min(ready, key=lambda op: (start[op.name], -self.level[op.name], position[op.name]))
            ready.remove(chosen)
            found.append(chosen)
            end = start[chosen.name] + self.decisions.strategies[chosen.name].slowest
            for side in on[chosen.name]:
                lanes.compute[side] = end
            self._produce(chosen.output, end, lanes)
            for reader in self.program.consumers[chosen.output]:
                waiting[reader.name] -= 1
                if not waiting[reader.name]:
                    ready.append(reader)
        return found

    def _produce(self, name: str, at: float, lanes: _Lanes) -> None:
        lanes.made[name] = at
        lanes.moved[name] = []
        for need, seconds in self.moves[name]:
            sides = self._on(self.decisions.made(self.program, name).ranks, need.ranks)
            end = max(at, *(lanes.comm[side] for side in sides)) + seconds
            for side in sides:
                lanes.comm[side] = end
            lanes.moved[name].append((need, end))

    def _available(self, op: Operation, lanes: _Lanes) -> float:
        """When all operands are there; resident ones always are (they are gathered ahead)."""
        latest = 0.0
        for name in op.operands:
            if name not in lanes.made:
                continue
            need = self._need(op, name)
            moved = next((end for layout, end in lanes.moved[name] if need.within(layout)), lanes.made[name])
            latest = max(latest, lanes.made[name] if self.decisions.made(self.program, name).satisfies(need) else moved)
        return latest


def reordered(program: Program, decisions: Decisions, traffic: Traffic) -> Program:
    """The same program with its operations in list-scheduled order."""
    return replace(program, operations=tuple(_Lister(program, decisions, traffic).order()))
