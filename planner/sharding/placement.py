"""Operations on groups of ranks, side by side: which group computes which, where some depend on none of the others.

List scheduling over groups that are alike: the operation with the longest way to the end goes next, to the group on
which it ends first, counting what has to be moved there. What has too little to run beside stays on all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...program import Operation, Program

FILLED = 0.5  # of the other groups, that makes an operation worth one of its own
ALL = -1
"""Instead of the number of a group: all ranks together."""


class Works(Protocol):
    """Seconds of operations on a group, or on all ranks."""

    @property
    def count(self) -> int:
        """How many groups there are."""
        ...

    def seconds(self, op: Operation, group: int) -> float: ...

    def crossing(self, tensor: str, reader: Operation, *, onto: bool) -> float:
        """No less than it takes to move what is computed on all ranks to a reader on a group (``onto``), or the other
        way round."""
        ...


class Costs(Works, Protocol):
    """And of moving what an operation reads to where it is computed."""

    def moving(self, tensor: str, made: int, reader: Operation, group: int) -> float:
        """To ``reader`` on a group, from where the tensor is made."""
        ...


@dataclass(frozen=True)
class Placement:
    """The group of every operation (ALL: all of them), and the seconds after which the last one ends."""

    groups: Mapping[str, int]
    seconds: float


def beside(program: Program, costs: Works) -> dict[str, int]:
    """0 for the operations that are worth a group of their own, ALL for the others.

    On one group an operation takes as much longer as there are groups; that pays where what neither depends on it nor
    it on that is enough to fill a good part of the others meanwhile.
    """
    seconds = np.array([costs.seconds(op, 0) for op in program.operations])
    before = _ancestors(program)
    others = seconds.sum() - seconds - before @ seconds - before.T @ seconds
    worth = others >= FILLED * (costs.count - 1) * seconds
    return {op.name: 0 if pays else ALL for op, pays in zip(program.operations, worth.tolist(), strict=True)}


def _ancestors(program: Program) -> NDArray[np.float64]:
    """[operation, operation] 1 where the first depends on the second."""
    place = {op.output: k for k, op in enumerate(program.operations)}
    found = np.zeros((len(place), len(place)), dtype=bool)
    for k, op in enumerate(program.operations):
        for j in {place[name] for name in op.operands if name in place}:
            found[k] |= found[j]
            found[k, j] = True
    return found.astype(np.float64)


def least_seconds(program: Program, costs: Works, apart: Mapping[str, int]) -> float:
    """No placement of this kind ends before: the longest chain with what has to be moved on it between groups and all
    ranks, and all work shared out evenly.

    ``apart``: ALL for operations that stay on all ranks, anything else for the others.
    """
    longest: dict[str, float] = {}
    load = 0.0
    for op in program.operations:
        group = ALL if apart[op.name] == ALL else 0
        seconds = costs.seconds(op, group)
        before = 0.0
        for name in (name for name in op.operands if name in longest):
            onto = group != ALL
            crosses = (apart[program.producer[name].name] != ALL) != onto
            before = max(before, longest[name] + (costs.crossing(name, op, onto=onto) if crosses else 0.0))
        longest[op.output] = before + seconds
        load += seconds if group == ALL else seconds / costs.count
    return max(load, max(longest.values(), default=0.0))


def placed(program: Program, costs: Costs, apart: Mapping[str, int]) -> Placement:
    """By list scheduling, one operation at a time or one branch at a time; ``apart`` as in `least_seconds`."""
    found = [_listed(program, costs, apart, units) for units in (_single(program), _branches(program, apart))]
    return min(found, key=lambda placement: placement.seconds)


Unit = tuple[Operation, ...]
"""Operations that go to one group, each of which reads the one before."""


def _single(program: Program) -> list[Unit]:
    return [(op,) for op in program.operations]


def _branches(program: Program, apart: Mapping[str, int]) -> list[Unit]:
    """Operations of which each is all that reads the one before, and reads no other that is computed."""
    found: list[Unit] = []
    last: dict[str, int] = {}
    for op in program.operations:
        made = {name for name in op.operands if name in program.producer}
        before = last.get(next(iter(made)), -1) if len(made) == 1 else -1
        alike = before >= 0 and apart[op.name] == apart[found[before][-1].name]
        if alike and len(program.consumers[found[before][-1].output]) == 1:
            found[before] = (*found[before], op)
        else:
            before = len(found)
            found.append((op,))
        last[op.output] = before
    return found


def _listed(program: Program, costs: Costs, apart: Mapping[str, int], units: Sequence[Unit]) -> Placement:
    lister = _Lister(program, costs, apart)
    for unit in lister.order(units):
        lister.place(unit)
    return Placement(lister.group, max(lister.made.values(), default=0.0))


@dataclass(eq=False)
class _Lister:
    program: Program
    costs: Costs
    apart: Mapping[str, int]
    free: list[float] = field(init=False)
    made: dict[str, float] = field(default_factory=dict)
    group: dict[str, int] = field(default_factory=dict)
    arrived: dict[tuple[str, int], float] = field(default_factory=dict)
    settled: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = [0.0] * self.costs.count

    def order(self, units: Sequence[Unit]) -> Sequence[Unit]:
        """Those with the longest way to the end first, which come after all that they depend on."""
        level: dict[str, float] = {}
        for op in reversed(self.program.operations):
            after = max((level[reader.name] for reader in self.program.consumers[op.output]), default=0.0)
            level[op.name] = after + self.costs.seconds(op, ALL if self.apart[op.name] == ALL else 0)
        place = {op.name: k for k, op in enumerate(self.program.operations)}
        return sorted(units, key=lambda unit: (-level[unit[0].name], place[unit[0].name]))

    def place(self, unit: Unit) -> None:
        """Where it ends first; among equals where more of what it reads is, then the first."""
        options = [ALL] if self.apart[unit[0].name] == ALL else range(self.costs.count)
        ends = {group: self._ends(unit, group) for group in options}
        here = {group: sum(self._place(name) == group for op in unit for name in op.operands) for group in options}
        chosen = min(options, key=lambda group: (ends[group][-1], -here[group], group))
        for op, end in zip(unit, ends[chosen], strict=True):
            for name in op.operands:
                self.arrived.setdefault((name, chosen), self._arrival(name, op, chosen))
                self.settled.setdefault(name, chosen)
            self.group[op.name], self.made[op.output] = chosen, end
        for group in range(self.costs.count) if chosen == ALL else (chosen,):
            self.free[group] = ends[chosen][-1]

    def _ends(self, unit: Unit, group: int) -> list[float]:
        """When its operations end on a group."""
        end = max(self.free) if group == ALL else self.free[group]
        found: list[float] = []
        inside: set[str] = set()
        for op in unit:
            arrivals = [self._arrival(name, op, group) for name in op.operands if name not in inside]
            end = max([end, *arrivals]) + self.costs.seconds(op, group)
            found.append(end)
            inside.add(op.output)
        return found

    def _place(self, name: str) -> int | None:
        """The group on which a tensor is; None while it may be on any."""
        producer = self.program.producer.get(name)
        return self.settled.get(name) if producer is None else self.group.get(producer.name)

    def _arrival(self, name: str, op: Operation, group: int) -> float:
        """When an operand is there. Inputs start where they are read first, resident tensors wherever they are read."""
        made = self._place(name)
        known = self.arrived.get((name, group))
        if known is not None or made is None or self.program.tensor(name).role in ("param", "state", "const"):
            return known or 0.0
        return self.made.get(name, 0.0) + (0.0 if made == group else self.costs.moving(name, made, op, group))
