"""The predicted timeline of a plan: every task of every rank on its lane, with the machine's rates.

A task starts when its lane is free and its waits are done; a transfer starts when all of its participants are ready.
Transfers that are under way at once on a link that devices have together divide it (`contention`).
On a machine without overlap all lanes of a rank are one, on which tasks come as `in_turn` says.
Nothing else costs time. The prices are those that the solver used, so a difference between objective and makespan is
overlap and order alone.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np
from msgspec import structs

from ..errors import UsageError
from ..records import width_of
from ..space import Region
from .contention import Divided, Streams, meet
from .format import Compute, Copy, Document, Resolved, Task, Transfer
from .machine import Machine
from .machine.embed import machine_from_json
from .strategy.first_traffic import FirstTraffic
from .strategy.layouts import Layout, Layouts
from .strategy.mesh import Mesh
from .strategy.traffic import Move, Traffic
from .strategy.work import Work, Works
from .timeline import Run, Timeline


class PriceBook:
    """Seconds of work and moves on one mesh of a machine; equal structures are priced once, across plans.

    ``by_host``: senders are chosen by the hosts of the ranks, as in all plans that are made now. ``frugal``: see
    `Traffic`.
    """

    def __init__(
        self,
        machine: Machine,
        mesh: Mesh,
        devices: Sequence[int] | None = None,
        *,
        by_host: bool = True,
        frugal: bool = False,
    ) -> None:
        self.machine, self.layouts, self.works = machine, Layouts(mesh), Works(machine, mesh.size, devices)
        self.traffic = (Traffic if by_host else FirstTraffic)(mesh, machine, devices, frugal=frugal)

    @staticmethod
    def of(document: Document) -> PriceBook:
        """As the document's machine, mesh and senders are."""
        mesh = Mesh(tuple(document.mesh), tuple(document.mesh_axes), tuple(document.weights or ()))
        by_host = document.senders == "by_host"
        return PriceBook(machine_from_json(document.machine), mesh, document.devices, by_host=by_host)


class Prices:
    """Seconds of a plan's tasks, from the document alone."""

    def __init__(self, resolved: Resolved, book: PriceBook | None = None) -> None:
        document = resolved.document
        self.resolved = resolved
        self.book = book or PriceBook.of(document)
        self._compute: dict[tuple[str, str, bool, bool], tuple[Work, ...]] = {}
        self._seconds: dict[int, Any] = {}
        self._moves: dict[tuple[object, ...], Move] = {}
        self._links: dict[tuple[object, ...], dict[str, int]] = {}

    def compute(self, task: Compute) -> tuple[Work, ...]:
        """Per rank what a compute task takes."""
        program = self.resolved.program
        op = program.op_by_name[task.op]
        partial = self.resolved.buffers[task.write].record is not None
        onto = task.prior is not None
        key = (program.graph.structure(op), task.shards, partial, onto)
        if key not in self._compute:
            points = Layout(tuple(op.extents.values()), self.resolved.regions(task.shards))
            self._compute[key] = self.book.works.each(op, program, points, partial=partial, onto=onto)
        return self._compute[key]

    def seconds(self, task: Compute) -> Any:
        """The same as a vector, one object for equal tasks."""
        work = self.compute(task)
        if id(work) not in self._seconds:
            self._seconds[id(work)] = np.array([shard.seconds for shard in work])
        return self._seconds[id(work)]

    def move(self, task: Transfer) -> Move:
        """Traffic and time of a transfer."""
        tensor = self.resolved.program.tensor(task.tensor)
        width = width_of(self.resolved.program, tensor.name)
        key = (tensor.shape, width, task.have, task.need, task.ranks)
        if key not in self._moves:
            have, need = (self._layout(tensor.shape, name, task.ranks) for name in (task.have, task.need))
            self._moves[key] = self.book.traffic.direct(have, need, width)
        return self._moves[key]

    def links(self, task: Transfer) -> dict[str, int]:
        """Bytes received from other ranks by kind of link, which hangs on where their devices are alone."""
        width = width_of(self.resolved.program, task.tensor)
        key = (width, task.have, task.need, task.ranks, task.monoid)
        if key not in self._links:
            self._links[key] = self._by_link(task)
        return self._links[key]

    def _by_link(self, task: Transfer) -> dict[str, int]:
        machine, nearest = self.book.machine, 0
        found: dict[str, int] = {}
        if self.resolved.document.senders == "by_host":
            scopes = self.resolved.levels[0]
            for scope, nbytes in zip(scopes, self.resolved.received_by_level(task), strict=True):
                if nbytes:
                    kind = machine.link_of(scope).kind
                    found[kind] = found.get(kind, 0) + nbytes
            return found
        for scope, size in machine.reaches:
            groups = [device // size for device in self.resolved.document.devices]
            within = sum(n for way, n in self.resolved.received(task, groups).items() if way.one_host)
            if within > nearest:
                kind = machine.link_of(scope).kind
                found[kind] = found.get(kind, 0) + within - nearest
                nearest = within
        return found

    def _layout(self, shape: tuple[int, ...], layout: str, ranks: tuple[int, ...] | None) -> Layout:
        """Ranks that take no part have nothing and need nothing."""
        regions = self.resolved.regions(layout)
        if ranks is not None:
            regions = tuple(region if rank in ranks else Region() for rank, region in enumerate(regions))
        return self.book.layouts.of(shape, regions, self.resolved.layout(layout).parts)


Vector = Any  # seconds, per class of ranks
Ends = Mapping[int, Vector]
"""Task -> when it ends; 0 where it does not run."""


def simulate(document: Document, prices: Prices | None = None) -> Timeline:
    """Predict the run of a plan that is well-formed. UsageError where tasks wait for one another for ever.

    One pass down the list, or more where a task waits for one further down, until nothing changes any more. Ranks on
    which all tasks take the same time are one class, and go through it as one.
    """
    replay = _Replay(document, prices or Prices(Resolved(document)))
    starts, ends, late = replay.run({})
    for _ in document.tasks:
        if late is None:
            break
        before = ends
        starts, ends, late = replay.run(before)
        late = None if all((ends[task] == before[task]).all() for task in ends) else late
    if late is None:
        return replay.timeline(*replay.divided(starts, ends))
    raise UsageError(
        f"task {late[0]} waits for task {late[1]}, which is further down the list and waits for it",
        where="simulate",
        hint="tapestry check names the tasks of the cycle",
    )


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


class _Replay:
    """The tasks of a plan with what they take, for the classes of ranks on which that is the same."""

    def __init__(self, document: Document, prices: Prices) -> None:
        self.overlap = prices.book.machine.device.overlap
        self.tasks = document.tasks if self.overlap else in_turn(document.tasks)
        size = prices.resolved.size
        takes = [_seconds(task, prices) for task in self.tasks]
        members = [None if task.ranks is None else _mask(task.ranks, size) for task in self.tasks]
        self.classes = _classes(size, [*takes, *(mask for mask in members if mask is not None)])
        first = np.array([ranks[0] for ranks in self.classes])
        self.takes = [seconds if np.ndim(seconds) == 0 else seconds[first] for seconds in takes]
        self.members = [None if mask is None else mask[first] for mask in members]
        self.streams = _streams(self.tasks, prices)

    def run(self, before: Ends) -> tuple[list[Vector], dict[int, Vector], tuple[int, int] | None]:
        """Per task its starts, by number its ends, and a task with one that it waits for further down the list.

        ``before``: when tasks end that have not been come to yet, as the pass before found it.
        """
        nothing = np.zeros(len(self.classes))
        lanes: dict[str, Vector] = {}
        starts, ends, late = [], dict[int, Vector](), None
        for task, seconds, members in zip(self.tasks, self.takes, self.members, strict=True):
            lane = task.lane if self.overlap else ""
            start = lanes.get(lane, nothing)
            late = next(((task.id, wait) for wait in task.waits if wait not in ends), late)
            for wait in task.waits:
                start = np.maximum(start, ends[wait] if wait in ends else before.get(wait, nothing))
            if isinstance(task, Transfer):  # one meeting of all that take part
                start = np.full_like(nothing, start.max(where=True if members is None else members, initial=0.0))
            end = start + seconds
            if members is not None:
                start, end = np.where(members, start, 0.0), np.where(members, end, 0.0)
                lanes[lane] = np.where(members, end, lanes.get(lane, nothing))
            else:
                lanes[lane] = end
            starts.append(start)
            ends[task.id] = end
        return starts, ends, late

    def divided(self, starts: list[Vector], ends: dict[int, Vector]) -> tuple[list[Vector], dict[int, Vector]]:
        """The starts and ends, where transfers meet on links that devices share as they are when they divide them."""
        if not self.streams or not meet(self.streams, starts, [ends[task.id] for task in self.tasks]):
            return starts, ends
        tasks = self.tasks if self.overlap else [structs.replace(task, lane="") for task in self.tasks]
        starts, last = Divided(tasks, self.takes, self.members, self.streams, len(self.classes)).run()
        return starts, {task.id: end for task, end in zip(self.tasks, last, strict=True)}

    def timeline(self, starts: Sequence[Vector], ends: Ends) -> Timeline:
        busy = np.zeros(len(self.classes))
        runs = []
        for task, start in zip(self.tasks, starts, strict=True):
            end = ends[task.id]
            name = task.op if isinstance(task, Compute) else task.tensor
            runs.append(Run(task.id, task.lane, name, array("d", start.tobytes()), array("d", end.tobytes())))
            if isinstance(task, Compute):
                busy += end - start
        makespan = max((float(end.max()) for end in ends.values()), default=0.0)
        return Timeline(self.classes, tuple(runs), makespan, float(busy.max()))


def _mask(ranks: Sequence[int], size: int) -> Vector:
    mask = np.zeros(size, dtype=bool)
    mask[list(ranks)] = True
    return mask


def _classes(size: int, columns: Sequence[Vector]) -> tuple[tuple[int, ...], ...]:
    """The ranks in classes on which each column has one value; what has one value everywhere tells none apart."""
    label = np.zeros(size, dtype=np.int64)
    for column in {id(column): column for column in columns if np.ndim(column)}.values():
        values, code = np.unique(column, return_inverse=True)
        if len(values) > 1:
            label = np.unique(label * len(values) + code, return_inverse=True)[1]
    found: dict[int, list[int]] = {}
    for rank, number in enumerate(label.tolist()):
        found.setdefault(number, []).append(rank)
    return tuple(tuple(ranks) for ranks in found.values())


def _seconds(task: Task, prices: Prices) -> Vector:
    """What a task takes on each rank; one number for a transfer, which is one meeting."""
    if isinstance(task, Compute):
        return prices.seconds(task)
    return prices.move(task).seconds if isinstance(task, Transfer) else _copy_seconds(task, prices)


def _streams(tasks: Sequence[Task], prices: Prices) -> Streams:
    """Of the transfers that stream over links that devices have together. Plans that do not say who sends have none."""
    if not prices.book.traffic.shared or prices.resolved.document.senders != "by_host":
        return {}
    moves = {k: prices.move(task) for k, task in enumerate(tasks) if isinstance(task, Transfer)}
    found = {k: tuple(prices.book.traffic.streams(move)) for k, move in moves.items()}
    return {k: levels for k, levels in found.items() if any(level.users for level in levels)}


def _copy_seconds(task: Copy, prices: Prices) -> Vector:
    """A copy between tiers runs at the slower of the two tiers' rates."""
    resolved = prices.resolved
    width, record = width_of(resolved.program, task.tensor), resolved.buffers[task.source].record
    nbytes = np.array([region.size for region in resolved.regions(task.need)], dtype=np.float64)
    each = width.complete if record is None else width.partial
    names = resolved.buffers[task.source].tier, resolved.buffers[task.target].tier
    rates = []
    for kind in prices.book.machine.devices:
        source, target = map(kind.tier, names)
        rates.append(min(source.read_gb_per_s, target.write_gb_per_s) * 1e9)
    return nbytes * each / np.array([rates[kind] for kind in prices.book.works.kinds])
