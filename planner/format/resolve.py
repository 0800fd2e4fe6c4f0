"""A plan document made usable: the program rebuilt, layouts parsed, templates expanded per rank, all lazily."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

import msgspec

from ...expr import MONOIDS
from ...program import Program
from ...records import width_of
from ...serialize import program_from_json
from ...space import Grid, Region, parse_region
from .document import Buffer, Compute, Document, LayoutText, Task, Transfer
from .messages import Message, Way, moves, received
from .senders import Groups, among, levels_of, moves_by_host

if TYPE_CHECKING:
    from ..machine import Machine, Scope


class Resolved:
    """Reads of one document, cached. It trusts the document; `planner.check` is what proves it.

    A caller that has the program already may hand it over, and so with regions of layouts; they must be those of the
    document.
    """

    def __init__(
        self,
        document: Document,
        program: Program | None = None,
        regions: Mapping[str, tuple[Region, ...]] | None = None,
    ) -> None:
        self.document = document
        if program is not None:
            self.__dict__["program"] = program
        self._regions: dict[str, tuple[Region, ...]] = dict(regions or {})
        self._storage: dict[str, tuple[Grid | None, ...]] = {}
        self._messages: dict[tuple[str, str, str, tuple[int, ...], bool], list[Message]] = {}

    @cached_property
    def program(self) -> Program:
        return program_from_json(self.document.program)

    @cached_property
    def size(self) -> int:
        """Number of ranks."""
        return prod(self.document.mesh)

    @cached_property
    def levels(self) -> tuple[tuple[Scope, ...], Groups]:
        """How near the devices of the ranks are to one another."""
        return levels_of(self._machine.reaches, self.document.devices)

    @cached_property
    def _machine(self) -> Machine:
        from ..machine.embed import machine_from_json  # here, because few who read a plan ask

        return machine_from_json(self.document.machine)

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """Per rank as which of the machine's others its device is described, counted from 1; 0: as none of them."""
        if not self.document.machine.get("others"):
            return (0,) * len(self.document.devices)
        return tuple(map(self._machine.kind_of, self.document.devices))

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        return {buffer.name: buffer for buffer in self.document.buffers}

    @cached_property
    def computing(self) -> dict[str, list[Compute]]:
        """The tasks of every operation, in the order of the list."""
        found: dict[str, list[Compute]] = {}
        for task in self.document.tasks:
            if isinstance(task, Compute):
                found.setdefault(task.op, []).append(task)
        return found

    def computed(self, op: str) -> tuple[Region, ...]:
        """Per rank the points of an operation that some task computes there."""
        first, *others = (self.regions(task.shards) for task in self.computing[op])
        return tuple(map(Region.union, zip(first, *others, strict=True))) if others else first

    def layout(self, name: str) -> LayoutText:
        return self.document.layouts[name]

    def regions(self, layout: str) -> tuple[Region, ...]:
        """One region per rank."""
        if layout not in self._regions:
            self._regions[layout] = tuple(_parse(text) for text in self.document.layouts[layout].regions)
        return self._regions[layout]

    def storage(self, buffer: str) -> tuple[Grid | None, ...]:
        """Per rank the grid that the buffer stores densely, None where it stores nothing."""
        layout = self.buffers[buffer].layout
        if layout not in self._storage:
            self._storage[layout] = tuple(region.storage() for region in self.regions(layout))
        return self._storage[layout]

    def participants(self, task: Task) -> tuple[int, ...]:
        return tuple(range(self.size)) if task.ranks is None else task.ranks

    def tasks_of(self, rank: int) -> Iterator[Task]:
        """The tasks of one rank, in list order (the order on each lane)."""
        return (task for task in self.document.tasks if task.ranks is None or rank in task.ranks)

    def messages(self, task: Transfer) -> list[Message]:
        """The data movement of a transfer: see `planner.format.messages`. In-place transfers have no local moves."""
        ranks = self.participants(task)
        key = (task.have, task.need, task.monoid or "", ranks, task.source == task.target)
        if key not in self._messages:
            self._messages[key] = self._derive(task)
        return self._messages[key]

    def received(self, task: Transfer, hosts: Sequence[int]) -> Mapping[Way, int]:
        """Bytes that ranks receive from one another in a transfer, without a list of its messages: as much by any rule
        of who sends, by the first as this says.
        """
        held, needed, parts, records = self._ends(task)
        width = width_of(self.program, task.tensor)
        onward = self.layout(task.need).parts
        if onward is not None:
            apart = (received(*ends, hosts, parts, records=records) for ends in among(held, needed, onward))
            found: Counter[Way] = Counter()
            for way, n in (each for group in apart for each in group.items()):
                found[way] += n * width.partial
            return found
        counted = received(held, needed, hosts, parts, records=records)
        return {way: n * (width.partial if way.partial else width.complete) for way, n in counted.items()}

    def received_by_level(self, task: Transfer) -> tuple[int, ...]:
        """The same by level of `levels`, where senders are chosen by hosts."""
        from .loads import IN, loads_of  # here, because it loads NumPy, which reading a plan does without

        held, needed, parts, records = self._ends(task)
        onward = self.layout(task.need).parts
        loads = loads_of(held, needed, self.levels[1], parts, records=records, onward=onward)
        return tuple(loads.nbytes(width_of(self.program, task.tensor))[IN].sum(axis=1).tolist())

    def _derive(self, task: Transfer) -> list[Message]:
        held, needed, parts, records = self._ends(task)
        if self.document.senders is msgspec.UNSET:
            found = moves(held, needed, parts, records=records)
        else:
            onward = self.layout(task.need).parts
            found = moves_by_host(held, needed, self.levels[1], parts, records=records, onward=onward)
        return [m for m in found if m.remote] if parts is None and task.source == task.target else found

    def _ends(self, task: Transfer) -> tuple[list[Region], list[Region], tuple[int, ...] | None, bool]:
        """What ranks hold and need, nothing where they take no part; part numbers; whether records are moved whole."""
        members = set(self.participants(task))
        held = [region if rank in members else Region() for rank, region in enumerate(self.regions(task.have))]
        needed = [region if rank in members else Region() for rank, region in enumerate(self.regions(task.need))]
        parts = self.layout(task.have).parts
        return held, needed, parts, parts is not None and task.monoid is not None and MONOIDS[task.monoid].packed

    def moved_bytes(self, task: Transfer) -> int:
        """Bytes that ranks receive from other ranks in one transfer."""
        return sum(self.received(task, [0] * self.size).values())


_cache: dict[str, Region] = {}


def _parse(text: str) -> Region:
    """Parse once per text: repeated layouts share their regions, so identity comparisons are quick."""
    if text not in _cache:
        if len(_cache) > 100_000:
            _cache.clear()
        _cache[text] = parse_region(text)
    return _cache[text]
