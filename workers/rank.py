"""One rank: its memory, its tasks bound to it, and what goes in and comes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..dtypes import numpy_dtype
from ..errors import TapestryError
from ..planner.format import Compute, Copy, Resolved, Task, Transfer
from ..program import Tensor
from ..space import Box, Region
from .faults import TaskError
from .memory import Arena
from .numpy.binding import bind_compute
from .numpy.folding import Array
from .numpy.loops import Runner
from .numpy.scratch import Scratch
from .numpy.transfer import demand, move, region_pairs
from .numpy.views import Stored


def name_of(task: Task) -> str:
    """How traces and errors call a task."""
    return (
        task.op
        if isinstance(task, Compute)
        else f"{task.kind} {task.tensor}"
        if isinstance(task, Transfer)
        else task.tensor
    )


def tensor_of(resolved: Resolved, task: Task) -> str:
    return resolved.program.op_by_name[task.op].output if isinstance(task, Compute) else task.tensor


class Rank:
    """Memory and bound tasks of one rank. Tasks of one lane share ``scratch``."""

    def __init__(
        self, resolved: Resolved, number: int, *, poison: bool = False, scratch: Scratch | None = None
    ) -> None:
        self.resolved, self.number = resolved, number
        self.arena = Arena(resolved, number, poison=poison)
        self.tasks = list(resolved.tasks_of(number))
        self._scratch: dict[str, Scratch] = {}
        self._shared = scratch
        self._runners: dict[int, Runner] = {}

    # -- inputs and outputs ----------------------------------------------------------------------------------------

    def load(self, inputs: Mapping[str, Array]) -> None:
        """Fill the initial buffers from whole arrays."""
        for buffer in self.resolved.document.buffers:
            stored = self.arena[buffer.name]
            if buffer.initial is None or stored is None:
                continue
            tensor = self.resolved.program.tensor(buffer.tensor)
            move(whole_array(tensor, inputs), stored, self.resolved.regions(buffer.initial)[self.number])

    def piece(self, tensor: str, buffer: str) -> tuple[Region, Stored | None]:
        """What this rank holds of a finished tensor."""
        return final_regions(self.resolved, tensor, buffer)[self.number], self.arena[buffer]

    # -- tasks -----------------------------------------------------------------------------------------------------

    def bind(self) -> None:
        """Bind every compute and copy task to memory."""
        for task in self.tasks:
            if not isinstance(task, Transfer):
                self.runner(task)

    def runner(self, task: Compute | Copy) -> Runner:
        if task.id not in self._runners:
            with self.failing(task):
                self._runners[task.id] = self._bound(task)
        return self._runners[task.id]

    def run(self, task: Compute | Copy) -> None:
        """Run a task now. TaskError naming rank, task and tensor if it fails."""
        runner = self.runner(task)
        with self.failing(task), np.errstate(all="ignore"):
            runner()

    def failing(self, task: Task) -> Failing:
        """Turns an error inside into a TaskError of this rank and task."""
        return Failing(self.number, task, tensor_of(self.resolved, task))

    def _bound(self, task: Compute | Copy) -> Runner:
        if isinstance(task, Compute):
            return self._bound_compute(task)
        region = self.resolved.regions(task.need)[self.number]
        source, target = self.arena[task.source], self.arena[task.target]
        if not region:
            return _nothing
        source, target = demand(source, f"buffer {task.source}"), demand(target, f"buffer {task.target}")
        pairs = [(target.array[to], source.array[from_]) for from_, to in region_pairs(region, source, target)]

        def run() -> None:
            for to, from_ in pairs:
                np.copyto(to, from_)

        return run

    def _bound_compute(self, task: Compute) -> Runner:
        program = self.resolved.program
        op = program.op_by_name[task.op]
        points = self.resolved.regions(task.shards)[self.number]
        if not points:
            return _nothing
        stored = {}
        for tensor, buffer in zip(op.operands, task.reads, strict=True):
            dtype = numpy_dtype(program.tensor(tensor).dtype)
            stored[tensor] = self.arena[buffer] or nothing_of(program.tensor(tensor).shape, dtype)
        write = demand(self.arena[task.write], f"buffer {task.write}")
        return bind_compute(program, op, points, stored, write, self.scratch(task.lane))

    def scratch(self, lane: str) -> Scratch:
        return self._shared or self._scratch.setdefault(lane, Scratch())


def nothing_of(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Stored:
    """A buffer that stores no element: every read of it must be guarded away."""
    return Stored(np.empty((0,) * len(shape), dtype), Box.of_shape((0,) * len(shape)).grid())


def _nothing() -> None:
    """The task of a rank whose shard is empty."""


class Failing:
    """Context in which an error becomes a TaskError."""

    def __init__(self, rank: int, task: Task, tensor: str) -> None:
        self.rank, self.task, self.tensor = rank, task, tensor

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, TaskError):
            what = str(error) if isinstance(error, TapestryError) else f"{type(error).__name__}: {error}"
            raise TaskError(
                what, rank=self.rank, task=self.task.id, name=name_of(self.task), tensor=self.tensor
            ) from error


def whole_array(tensor: Tensor, inputs: Mapping[str, Array]) -> Stored:
    """A whole tensor as a stored array: an input, or a constant's data."""
    dtype = numpy_dtype(tensor.dtype)
    if tensor.name in inputs:
        value = np.asarray(inputs[tensor.name])
    else:
        value = np.asarray(tensor.data or (), dtype=_wide_of(dtype)).astype(dtype)
    return Stored(value.reshape(tensor.shape), Box.of_shape(tensor.shape).grid())


def _wide_of(dtype: np.dtype[np.generic]) -> type:
    return {"b": bool, "i": int}.get(dtype.kind, float)


def results(resolved: Resolved) -> Iterator[tuple[str, str]]:
    """(tensor, buffer) of every output and state."""
    yield from resolved.document.outputs.items()
    yield from resolved.document.states.items()


def final_regions(resolved: Resolved, tensor: str, buffer: str) -> tuple[Region, ...]:
    """Where a finished tensor is, per rank: an output all over its buffer, a state where it was at the start."""
    starts = {b.tensor: b.initial for b in resolved.document.buffers if b.initial is not None}
    is_state = tensor in resolved.document.states and tensor in starts
    return resolved.regions(starts[tensor] if is_state else resolved.buffers[buffer].layout)


def gather(resolved: Resolved, ranks: list[Rank]) -> dict[str, Array]:
    """Whole outputs and states from the memories of all ranks."""
    found: dict[str, Array] = {}
    for tensor, buffer in results(resolved):
        target = empty_whole(resolved.program.tensor(tensor))
        for rank in ranks:
            region, stored = rank.piece(tensor, buffer)
            if stored is not None:
                move(stored, target, region)
        found[tensor] = target.array
    return found


def empty_whole(tensor: Tensor) -> Stored:
    return Stored(np.zeros(tensor.shape, numpy_dtype(tensor.dtype)), Box.of_shape(tensor.shape).grid())
