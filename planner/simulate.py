"""The predicted timeline of a plan: every task of every rank on its lane, with the machine's rates.

A task starts when its lane is free and its waits are done; a transfer starts when all of its participants are ready.
On a machine without overlap all lanes of a rank are one, on which tasks come as `in_turn` says.
Nothing else costs time. The prices are those that the solver used, so a difference between objective and makespan is
overlap and order alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from ..errors import UsageError
from ..program import Operation, Program
from ..records import width_of
from ..space import Region
from ..space.projection import count_points, operand_images, write_image
from .format import Compute, Document, Resolved, Task, Transfer
from .format.events import Event as Event
from .machine import Machine
from .machine.embed import machine_from_json
from .strategy.cost import compute_seconds, machine_seconds
from .strategy.layouts import Layout, Layouts, Mesh
from .strategy.traffic import Move, Traffic


@dataclass(frozen=True)
class Timeline:
    """The simulated run. ``compute_s``: work of the busiest rank; ``exposed_transfer_s``: the rest of the makespan."""

    events: tuple[Event, ...]
    makespan_s: float
    compute_s: float

    @property
    def exposed_transfer_s(self) -> float:
        return max(0.0, self.makespan_s - self.compute_s)

    def of_rank(self, rank: int) -> Iterator[Event]:
        return (event for event in self.events if event.rank == rank)


class Work(NamedTuple):
    """Seconds of a shard; ``measured``: by the model of its kernel, which says more than the machine."""

    seconds: float
    measured: bool


class PriceBook:
    """Seconds of work and moves on one mesh of a machine; equal structures are priced once, across plans."""

    def __init__(self, machine: Machine, mesh: Mesh, devices: Sequence[int] | None = None) -> None:
        self.machine, self.traffic, self.layouts = machine, Traffic(mesh, machine, devices), Layouts(mesh)
        self._work: dict[tuple[str, Region], Work] = {}
        self._signatures: dict[str, str] = {}

    def signature(self, op: Operation, program: Program) -> str:
        """The operation without its names. One book serves one program."""
        if op.name not in self._signatures:
            self._signatures[op.name] = program.graph.structure(op)
        return self._signatures[op.name]

    def work(self, op: Operation, program: Program, signature: str, region: Region) -> Work:
        """What one shard of an operation takes."""
        key = (signature, region)
        if key not in self._work:
            self._work[key] = self._priced(op, program, region) if region else Work(0.0, False)
        return self._work[key]

    def _priced(self, op: Operation, program: Program, region: Region) -> Work:
        shapes = {name: program.tensor(name).shape for name in op.operands}
        priced = (count_points(op, region).value, operand_images(op, shapes, region), write_image(op, region).region)
        ranks = self.traffic.mesh.size
        seconds = compute_seconds(op, program, self.machine, *priced, ranks=ranks)
        return Work(seconds, seconds > machine_seconds(op, program, self.machine, *priced, ranks=ranks))


class Prices:
    """Seconds of a plan's tasks, from the document alone."""

    def __init__(self, resolved: Resolved, book: PriceBook | None = None) -> None:
        document = resolved.document
        self.resolved = resolved
        mesh = Mesh(tuple(document.mesh), tuple(document.mesh_axes))
        self.book = book or PriceBook(machine_from_json(document.machine), mesh, document.devices)
        self._compute: dict[tuple[str, str], tuple[Work, ...]] = {}
        self._moves: dict[tuple[object, ...], Move] = {}
        self._links: dict[tuple[object, ...], dict[str, int]] = {}

    def compute(self, task: Compute) -> tuple[Work, ...]:
        """Per rank what a compute task takes."""
        program = self.resolved.program
        op = program.op_by_name[task.op]
        key = (self.book.signature(op, program), task.shards)
        if key not in self._compute:
            shards = self.resolved.regions(task.shards)
            self._compute[key] = tuple(self.book.work(op, program, key[0], region) for region in shards)
        return self._compute[key]

    def move(self, task: Transfer) -> Move:
        """Traffic and time of a transfer."""
        tensor = self.resolved.program.tensor(task.tensor)
        width = width_of(self.resolved.program, tensor.name)
        key = (tensor.shape, width, task.have, task.need, task.ranks)
        if key not in self._moves:
            have, need = (self._layout(tensor.shape, name, task.ranks) for name in (task.have, task.need))
            self._moves[key] = self.book.traffic.move(have, need, width)
        return self._moves[key]

    def links(self, task: Transfer) -> dict[str, int]:
        """Bytes received from other ranks by kind of link, which hangs on their hosts alone."""
        document, machine = self.resolved.document, self.book.machine
        width = width_of(self.resolved.program, task.tensor)
        key = (width, task.have, task.need, task.ranks, task.monoid)
        if key not in self._links:
            found: dict[str, int] = {}
            hosts = [machine.host_of(device) for device in document.devices]
            kinds: dict[tuple[int, int], str] = {}
            for each in self.resolved.received(task):
                between = hosts[each.src], hosts[each.dst]
                if between not in kinds:
                    kinds[between] = machine.link_between(document.devices[each.src], document.devices[each.dst]).kind
                found[kinds[between]] = found.get(kinds[between], 0) + each.nbytes(width)
            self._links[key] = found
        return self._links[key]

    def _layout(self, shape: tuple[int, ...], layout: str, ranks: tuple[int, ...] | None) -> Layout:
        """Ranks that take no part have nothing and need nothing."""
        regions = self.resolved.regions(layout)
        if ranks is not None:
            regions = tuple(region if rank in ranks else Region() for rank, region in enumerate(regions))
        return self.book.layouts.of(shape, regions, self.resolved.layout(layout).parts)


Ends = Mapping[int, Mapping[int, float]]
"""Task -> rank -> when it ends."""


def simulate(document: Document, prices: Prices | None = None) -> Timeline:
    """Predict the run of a plan that is well-formed. UsageError where tasks wait for one another for ever.

    One pass down the list, or more where a task waits for one further down, until nothing changes any more.
    """
    prices = prices or Prices(Resolved(document))
    timeline, ends, late = _pass(document, prices, {})
    for _ in document.tasks:
        if late is None:
            return timeline
        before = ends
        timeline, ends, late = _pass(document, prices, before)
        late = late if ends != before else None
    if late is None:
        return timeline
    raise UsageError(
        f"task {late[0]} waits for task {late[1]}, which is further down the list and waits for it",
        where="simulate",
        hint="tapestry check names the tasks of the cycle",
    )


def _pass(document: Document, prices: Prices, before: Ends) -> tuple[Timeline, Ends, tuple[int, int] | None]:
    """The timeline, when tasks end, and a task with one that it waits for further down the list.

    ``before``: when tasks end that have not been come to yet, as the pass before found it.
    """
    resolved, overlap = prices.resolved, prices.book.machine.device.overlap
    lane_free: list[dict[str, float]] = [{} for _ in range(resolved.size)]
    ends: dict[int, Mapping[int, float]] = {}
    busy, events, late = [0.0] * resolved.size, [], None
    for task in document.tasks if overlap else in_turn(document.tasks):
        late = next(((task.id, wait) for wait in task.waits if wait not in ends), late)
        waited = [ends.get(wait) or before.get(wait, {}) for wait in task.waits]
        lane = task.lane if overlap else ""
        ready = {rank: _ready(lane, rank, lane_free[rank], waited) for rank in resolved.participants(task)}
        starts, ends[task.id] = _span(task, ready, prices)
        name = task.op if isinstance(task, Compute) else task.tensor
        for rank, end in ends[task.id].items():
            lane_free[rank][lane] = end
            if isinstance(task, Compute):
                busy[rank] += end - starts[rank]
            if end > starts[rank]:
                events.append(Event(rank, task.lane, task.id, name, starts[rank], end))
    makespan = max((end for at in ends.values() for end in at.values()), default=0.0)
    return Timeline(tuple(events), makespan, max(busy, default=0.0)), ends, late


def in_turn(tasks: Sequence[Task]) -> list[Task]:
    """The tasks one after another: always the first of the list that waits for none, on its lane or by its waits, that
    has not come yet. Tasks that wait for one another for ever come last, in the order of the list.
    """
    place = {task.id: k for k, task in enumerate(tasks)}
    last: dict[str, int] = {}
    left, after = [0] * len(tasks), [list[int]() for _ in tasks]
    for k, task in enumerate(tasks):
        earlier = {place[wait] for wait in task.waits} | ({last[task.lane]} if task.lane in last else set())
        last[task.lane], left[k] = k, len(earlier)
        for other in earlier:
            after[other].append(k)
    ready = [k for k, count in enumerate(left) if not count]
    found: dict[int, Task] = {}
    while ready:
        k = heappop(ready)
        found[k] = tasks[k]
        for later in after[k]:
            left[later] -= 1
            if not left[later]:
                heappush(ready, later)
    return [*found.values(), *(task for k, task in enumerate(tasks) if k not in found)]


def _ready(lane: str, rank: int, lanes: dict[str, float], waited: Sequence[Mapping[int, float]]) -> float:
    return max(lanes.get(lane, 0.0), *(at.get(rank, 0.0) for at in waited), 0.0)


def _span(task: Task, ready: dict[int, float], prices: Prices) -> tuple[dict[int, float], dict[int, float]]:
    """Start and end per rank; a transfer is one meeting of all."""
    if isinstance(task, Compute):
        seconds = prices.compute(task)
        return ready, {rank: start + seconds[rank].seconds for rank, start in ready.items()}
    if isinstance(task, Transfer):
        start = max(ready.values(), default=0.0)
        end = start + prices.move(task).seconds
        return dict.fromkeys(ready, start), dict.fromkeys(ready, end)
    return ready, {rank: start + _copy_seconds(task, rank, prices) for rank, start in ready.items()}


def _copy_seconds(task: Task, rank: int, prices: Prices) -> float:
    """A copy between tiers runs at the slower of the two tiers' rates."""
    assert not isinstance(task, Compute)
    resolved = prices.resolved
    width, record = width_of(resolved.program, task.tensor), resolved.buffers[task.source].record
    nbytes = resolved.regions(task.need)[rank].size * (width.complete if record is None else width.partial)
    source = prices.book.machine.device.tier(resolved.buffers[task.source].tier)
    target = prices.book.machine.device.tier(resolved.buffers[task.target].tier)
    return nbytes / (min(source.read_gb_per_s, target.write_gb_per_s) * 1e9)
