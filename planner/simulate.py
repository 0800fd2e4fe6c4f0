"""The predicted timeline of a plan: every task of every rank on its lane, with the machine's rates.

A task starts when its lane is free and its waits are done; a transfer starts when all of its participants are ready.
Transfers that are under way at once on a link that devices have together divide it (`contention`).
Nothing else costs time. The prices are those that the solver used, so a difference between objective and makespan is
overlap and order alone.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import UsageError
from ..program import Operation
from ..records import width_of
from ..space import Region
from ..space.projection import operand_images
from .contention import Streams, streams_of
from .format import Compute, Copy, Document, Resolved, Task, Transfer
from .machine import Machine
from .machine.embed import machine_from_json
from .replay import Ends, Replay, Turn, Vector, in_turn
from .strategy.calls import Call, calls_of
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
        self._compute: dict[tuple[object, ...], tuple[Work, ...]] = {}
        self._points: dict[tuple[str, Region], dict[str, Region]] = {}
        self._seconds: dict[int, Any] = {}
        self._moves: dict[tuple[object, ...], Move] = {}
        self._links: dict[tuple[object, ...], dict[str, int]] = {}

    def compute(self, task: Compute) -> tuple[Work, ...]:
        """Per rank what a compute task takes."""
        program = self.resolved.program
        op = program.op_by_name[task.op]
        partial = self.resolved.buffers[task.write].record is not None
        onto = task.prior is not None
        call = self.calls.get(op.name)
        beside = () if call is None else tuple(tuple(self._shards[one.name]) for one in call.operations)
        key = (program.graph.structure(op), task.shards, partial, onto, beside)
        if key not in self._compute:
            points = Layout(tuple(op.extents.values()), self.resolved.regions(task.shards))
            work = self.book.works.each(op, program, points, partial=partial, onto=onto)
            if call is not None:
                work = self.book.works.shares(op, program, work, self._shares(op, call, task.shards))
            self._compute[key] = work
        return self._compute[key]

    @cached_property
    def calls(self) -> dict[str, Call]:
        """By operation the call of a library that may make its result with others."""
        found = calls_of(self.resolved.program, self.book.machine)
        return {op.name: call for call in found for op in call.operations}

    @cached_property
    def _shards(self) -> dict[str, list[str]]:
        """By operation what its tasks compute."""
        found = defaultdict[str, list[str]](list)
        for task in self.resolved.document.tasks:
            if isinstance(task, Compute):
                found[task.op].append(task.shards)
        return found

    def _shares(self, op: Operation, call: Call, shards: str) -> list[float]:
        """By rank how many shares of the call a task takes: all for itself, or as many as fall to each of those that
        have the same points."""
        found = []
        for rank, region in enumerate(self.resolved.regions(shards)):
            mine = self._read(op, region)
            alike = [
                any(
                    self._read(one, self.resolved.regions(other)[rank]) == mine
                    for other in self._shards.get(one.name, ())
                )
                for one in call.operations
            ]
            found.append(call.shares / max(1, sum(alike)))
        return found

    def _read(self, op: Operation, region: Region) -> dict[str, Region]:
        """What points read of each operand."""
        program = self.resolved.program
        key = program.graph.structure(op), region
        if key not in self._points:
            shapes = {name: program.tensor(name).shape for name in op.operands}
            images = operand_images(op, shapes, region)
            self._points[key] = {str(k): images[name].region for k, name in enumerate(op.operands)}
        return self._points[key]

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


def simulate(document: Document, prices: Prices | None = None) -> Timeline:
    """Predict the run of a plan that is well-formed. UsageError where tasks wait for one another for ever.

    One pass down the list, or more where a task waits for one further down, until nothing changes any more.
    """
    prices = prices or Prices(Resolved(document))
    overlap = prices.book.machine.device.overlap
    tasks = document.tasks if overlap else in_turn(document.tasks)
    turns = [Turn(task.id, task.lane, task.waits, task.ranks, isinstance(task, Transfer)) for task in tasks]
    takes = [_seconds(task, prices) for task in tasks]
    replay = Replay(turns, takes, _streams(tasks, prices), prices.resolved.size, overlap=overlap)
    starts, ends, late = replay.run({})
    for _ in tasks:
        if late is None:
            break
        before = ends
        starts, ends, late = replay.run(before)
        late = None if all((ends[task] == before[task]).all() for task in ends) else late
    if late is None:
        return _timeline(tasks, replay.classes, *replay.divided(starts, ends))
    raise UsageError(
        f"task {late[0]} waits for task {late[1]}, which is further down the list and waits for it",
        where="simulate",
        hint="tapestry check names the tasks of the cycle",
    )


def _timeline(
    tasks: Sequence[Task], classes: tuple[tuple[int, ...], ...], starts: Sequence[Vector], ends: Ends
) -> Timeline:
    busy = np.zeros(len(classes))
    runs = []
    for task, start in zip(tasks, starts, strict=True):
        end = ends[task.id]
        name = task.op if isinstance(task, Compute) else task.tensor
        runs.append(Run(task.id, task.lane, name, array("d", start.tobytes()), array("d", end.tobytes())))
        if isinstance(task, Compute):
            busy += end - start
    makespan = max((float(end.max()) for end in ends.values()), default=0.0)
    return Timeline(classes, tuple(runs), makespan, float(busy.max()))


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
    return streams_of(moves, prices.book.traffic)


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
