"""One rank: its memory, its tasks bound to it, and what goes in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..dtypes import numpy_dtype
from ..planner.format import Buffer, Compute, Copy, Resolved, Task, Transfer
from ..space import Box
from .chains import Links, chains_from
from .device import Bound, Chain, Device, Evaluation, Runner, Stored, Within, kernels_of, nothing
from .faults import Place, demand
from .memory import Memory
from .neighbours import neighbours
from .result import name_of
from .steady import steady_buffers
from .stores.arrays import Array
from .transport.movement import Movement
from .transport.transport import Transport
from .whole import whole_array


def place_of(resolved: Resolved, task: Task, rank: int) -> Place:
    """What errors of a task on a rank name."""
    tensor = resolved.program.op_by_name[task.op].output if isinstance(task, Compute) else task.tensor
    return Place(rank, task.id, name_of(task), tensor)


class Rank:
    """Memory and bound tasks of one rank. ``lanes`` off: all tasks run one after another, as if on one lane.
    ``joins`` off: the device does every task by itself.
    """

    def __init__(
        self,
        device: Device,
        resolved: Resolved,
        number: int,
        *,
        poison: bool = False,
        lanes: bool = True,
        joins: bool = True,
    ) -> None:
        self.device, self.resolved, self.number, self.lanes = device, resolved, number, lanes
        self.joins = joins and device.joins
        self.memory = Memory(device, resolved, number, poison=poison)
        self.tasks = list(resolved.tasks_of(number))
        self.bound: dict[int, Bound] = {}
        self.steady = steady_buffers(resolved.document, resolved.program)

    def load(self, inputs: Mapping[str, Array]) -> None:
        """Fill the initial buffers from whole arrays."""
        for buffer in self.resolved.document.buffers:
            if buffer.initial is not None:
                self.filling(buffer, whole_array(self.resolved.program.tensor(buffer.tensor), inputs))()

    def filling(self, buffer: Buffer, whole: Stored) -> Runner:
        """Fills a buffer that holds something before the run with its part of a whole array."""
        stored = self.memory[buffer.name]
        if buffer.initial is None or stored is None:
            return nothing
        return self.device.copy(whole, stored, self.resolved.regions(buffer.initial)[self.number])

    def bind(self, transport: Transport | None = None) -> None:
        """Bind the tasks to memory; transfers too where a transport is given that needs this rank alone."""
        memories = {} if transport is None else transport.reached(self.memory)
        tags = {task.id: k for k, task in enumerate(self.resolved.document.tasks)}
        for lane, room in self.memory.rooms.items():
            self.device.work_in(lane if self.lanes else "", room)
        joined = self._joined() if self.joins else {}
        for task in self.tasks:
            place = place_of(self.resolved, task, self.number)
            with place:
                if task.id in joined:
                    self.bound[task.id] = _bound(task, place, joined[task.id])
                elif not isinstance(task, Transfer):
                    self.bound[task.id] = _bound(task, place, self._runner(task))
                elif transport is not None:
                    movement = Movement.of(self.resolved, task, memories, tags[task.id])
                    self.bound[task.id] = Bound(task, place, transport.bind(movement))
        if self.joins:
            self._at_once()

    def _at_once(self) -> None:
        """Runners that have nothing to do with each other, and stand beside each other, as one."""
        for group in list(neighbours(self.tasks, self.bound, self.resolved, self.device)):
            *others, last = (task for done in group for task in done.tasks)
            for task in others:
                self.bound[task.id] = _bound(task, self.bound[task.id].place, Within(last.op))
            run = self.device.at_once([done.run for done in group])
            self.bound[last.id] = _bound(last, self.bound[last.id].place, run)

    def _joined(self) -> dict[int, Runner]:
        """The runners of tasks that the device does together: the longest chains, from the first task on."""
        links, found = Links.of(self.resolved.document), dict[int, Runner]()
        for first, chain in chains_from(self.tasks, links).items():
            for end in range(len(chain), 1, -1) if first not in found else ():
                tasks = chain[:end]
                run = self._together(tasks, links.stored(tasks))
                if run is not None:
                    last = tasks[-1]
                    found |= {task.id: Within(last.op) for task in tasks[:-1]} | {last.id: run}
                    break
        return found

    def _together(self, tasks: Sequence[Compute], stored: frozenset[str]) -> Runner | None:
        evaluations = []
        with place_of(self.resolved, tasks[-1], self.number):
            for task in tasks:
                if not self.resolved.regions(task.shards)[self.number]:
                    return None
                evaluations.append(self._evaluation(task))
            names = frozenset(
                one.op.output for one, task in zip(evaluations, tasks, strict=True) if task.write in stored
            )
            return self.device.joined(Chain(tuple(evaluations), names))

    def run(self, task: Compute | Copy) -> None:
        """Run a task now. TaskError naming rank, task and tensor if it fails."""
        bound = self.bound[task.id]
        with bound.place:
            bound.run()

    def _runner(self, task: Compute | Copy) -> Runner:
        return self._compute(task) if isinstance(task, Compute) else self._copy(task)

    def _copy(self, task: Copy) -> Runner:
        region = self.resolved.regions(task.need)[self.number]
        if not region:
            return nothing
        return self.device.copy(self._buffer(task.source), self._buffer(task.target), region)

    def _compute(self, task: Compute) -> Runner:
        if not self.resolved.regions(task.shards)[self.number]:
            return nothing
        evaluation = self._evaluation(task)
        if task.prior is None:
            return self.device.compute(evaluation)
        return self.device.fold_onto(evaluation, self._buffer(task.prior))

    def _evaluation(self, task: Compute) -> Evaluation:
        program = self.resolved.program
        op = program.op_by_name[task.op]
        points = self.resolved.regions(task.shards)[self.number]
        reads = {}
        for name, buffer in zip(op.operands, task.reads, strict=True):
            tensor = program.tensor(name)
            reads[name] = self.memory[buffer] or nothing_of(tensor.shape, numpy_dtype(tensor.dtype))
        lane = task.lane if self.lanes else ""
        place = place_of(self.resolved, task, self.number)
        steady = frozenset(name for name, buffer in zip(op.operands, task.reads, strict=True) if buffer in self.steady)
        return Evaluation(program, op, points, reads, self._buffer(task.write), lane, place, steady)

    def _buffer(self, name: str) -> Stored:
        return demand(self.memory[name], f"buffer {name}", rank=self.number)


def _bound(task: Task, place: Place, run: Runner) -> Bound:
    return Bound(task, place, run, kernels_of(run))


def nothing_of(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Stored:
    """A buffer that stores no element: every read of it must be guarded away."""
    return Stored(np.empty((0,) * len(shape), dtype), Box.of_shape((0,) * len(shape)).grid())
