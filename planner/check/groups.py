"""Ranks that run the same tasks are proved together, and what their tasks touch is one column for all of them.

Which ranks those are follows from the tasks' own lists of ranks. Lanes and waits are then the same on each rank of a
group, so that a circle of waits, or its absence, on one is that of all. Regions may differ from rank to rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..format.document import Compute, Task, Transfer
from .case import Case
from .columns import Columns
from .shape import Shape


@dataclass(frozen=True, eq=False)
class Group:
    """Ranks with the same tasks, by position in the plan's list and in its order."""

    number: int
    ranks: tuple[int, ...]
    tasks: tuple[int, ...]


class Touch(NamedTuple):
    """A task reads or writes these elements of a buffer: a column of regions."""

    buffer: str
    write: bool
    regions: int


class Groups:
    """All ranks of a case in groups, in the order of their first ranks."""

    def __init__(self, case: Case) -> None:
        self.case, self.columns = case, Columns(case.algebra.budget)
        case.algebra.budget.grant(sum(len(case.participants(task)) for task in case.tasks))
        self.all, self._members = _grouped(case)
        self.of_rank = {rank: (group, k) for group in self.all for k, rank in enumerate(group.ranks)}
        self._regions: dict[tuple[str, int], int] = {}
        self._touches: dict[tuple[int, int], tuple[Touch, ...]] = {}

    def __len__(self) -> int:
        return len(self.all)

    def of(self, position: int) -> tuple[Group, ...]:
        """The groups that run a task; it runs on every rank of each."""
        return self._members[position]

    def regions(self, layout: str, group: Group) -> int:
        """The column of a layout's regions on a group's ranks."""
        key = layout, group.number
        if key not in self._regions:
            regions = self.case.layouts[layout]
            self._regions[key] = self.columns.number(regions[rank] for rank in group.ranks)
        return self._regions[key]

    def held(self, buffer: str, group: Group) -> int:
        """The column of what a buffer is laid out for."""
        return self.regions(self.case.buffers[buffer].layout, group)

    def parts(self, layout: str, group: Group) -> int:
        """The column of the part numbers of a partial layout."""
        parts = self.case.document.layouts[layout].parts or ()
        return self.columns.number(parts[rank] for rank in group.ranks)

    def touches(self, position: int, group: Group) -> tuple[Touch, ...]:
        """What a task touches on the ranks of a group that runs it. What is empty on all of them is left out."""
        key = position, group.number
        if key not in self._touches:
            touched = self._touched(self.case.tasks[position], group)
            self._touches[key] = tuple(touch for touch in touched if not self.columns.empty(touch.regions))
        return self._touches[key]

    def _touched(self, task: Task, group: Group) -> list[Touch]:
        algebra, apply = self.case.algebra, self.columns.apply
        if isinstance(task, Compute):
            shape, points = self.case.shape_of(task), self.regions(task.shards, group)
            reads = [Touch(name, False, apply(_read, (points,), shape, k)) for k, name in enumerate(task.reads)]
            image = apply(shape.image, (points,))
            prior = [] if task.prior is None else [Touch(task.prior, False, image)]
            return [*reads, *prior, Touch(task.write, True, image)]
        need = self.regions(task.need, group)
        if isinstance(task, Transfer):
            have = self.regions(task.have, group)
            written = apply(algebra.minus, (need, have)) if task.source == task.target else need
            asked = apply(algebra.meet, (have,), self.case.wanted(task))
            return [Touch(task.source, False, asked), Touch(task.target, True, written)]
        return [Touch(task.source, False, need), Touch(task.target, True, need)]


def _read(points: int, shape: Shape, operand: int) -> int:
    return shape.reads(points)[operand]


def _grouped(case: Case) -> tuple[list[Group], list[tuple[Group, ...]]]:
    """The groups, and for each task those that run it."""
    sets: dict[tuple[int, ...], int] = {}
    for task in case.tasks:
        if task.ranks is not None:
            sets.setdefault(task.ranks, len(sets))
    member: list[list[int]] = [[] for _ in case.everyone]
    for ranks, number in sets.items():
        for rank in ranks:
            member[rank].append(number)
    together: dict[tuple[int, ...], list[int]] = {}
    for rank, numbers in enumerate(member):
        together.setdefault(tuple(numbers), []).append(rank)
    runs: list[list[int]] = [[] for _ in range(len(sets))]
    for k, signature in enumerate(together):
        for number in signature:
            runs[number].append(k)
    tasks: list[list[int]] = [[] for _ in together]
    every = list(range(len(together)))
    for position, task in enumerate(case.tasks):
        mine = every if task.ranks is None else runs[sets[task.ranks]]
        case.algebra.budget.spend(len(mine), "tasks of many groups of ranks")
        for k in mine:
            tasks[k].append(position)
    groups = [Group(k, tuple(ranks), tuple(tasks[k])) for k, ranks in enumerate(together.values())]
    everybody = tuple(groups)
    some = [tuple(groups[k] for k in mine) for mine in runs]
    return groups, [everybody if task.ranks is None else some[sets[task.ranks]] for task in case.tasks]
