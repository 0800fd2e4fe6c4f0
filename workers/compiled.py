"""A plan made ready to be run many times: loaded and bound once, then a step a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from ..errors import UsageError
from ..planner.format import Buffer, Resolved
from ..planner.format.checked import Checked
from .device import Device, Packed, Runner, Stored, in_order
from .devices import AUTO, chosen_device, open_device
from .engines.replayed import Replayed
from .rank import Rank
from .stores.arrays import Array
from .stores.inputs import checked_inputs
from .transport.counting import demand_planned, planned_bytes
from .transport.in_process import InProcess
from .transport.movement import Movement
from .whole import empty_whole, whole_array


class Compiled:
    """A checked plan on a device, all ranks in this process: params stay, states go on from step to step.

    ``step({"x": ..., "y": ...})`` takes the program's inputs as whole arrays and gives its outputs; `states` are what
    the last step left. A step decides and binds nothing. Bytes that ranks receive are counted where tasks are asked for
    one by one: in every step, on a GPU in the first, whose tasks are then replayed as one CUDA graph. Use it as a
    context, or `close` it, to give the memory back.
    """

    def __init__(self, plan: Checked, values: Mapping[str, Any], *, device: str = AUTO, poison: bool = False) -> None:
        """``values``: params and states by name, whole arrays. ``device`` and ``poison`` as in `tapestry.workers.run`.

        Raises UsageError for a value that is missing, unknown or does not fit, and what `run` raises while it binds.
        """
        given: object = plan
        if not isinstance(given, Checked):
            raise UsageError("the plan was not checked", hint="Plan.compile checks it")
        self._plan = given.resolved
        values = checked_inputs(self._plan.program, values, "param", "state")
        self._device = open_device(chosen_device(device, self._plan.document.machine))
        try:
            numbers = range(self._plan.size)
            self._ranks = [Rank(self._device, self._plan, k, poison=poison, lanes=False) for k in numbers]
            self._load(values)
        except BaseException:
            self._device.close()
            raise

    def _load(self, values: Mapping[str, Array]) -> None:
        plan, program = self._plan, self._plan.program
        first = [buffer for buffer in plan.document.buffers if buffer.initial is not None]
        kept = [buffer for buffer in first if program.tensor(buffer.tensor).role != "input"]
        fed = [buffer for buffer in first if program.tensor(buffer.tensor).role == "input"]
        in_order(self._copies(kept, {b.tensor: whole_array(program.tensor(b.tensor), values) for b in kept}))()
        self._inputs = {tensor.name: empty_whole(tensor) for tensor in program.of_role("input")}
        self._feed = in_order(self._copies(fed, self._inputs))
        for rank in self._ranks:
            rank.bind()
        self._order = Replayed(plan, self._ranks)
        self._step: Runner = self._one_by_one
        self._planned = planned_bytes(plan, range(plan.size))
        self._outputs = {name: self._gathered(name, buffer) for name, buffer in plan.document.outputs.items()}
        starts = {buffer.tensor: buffer for buffer in kept}
        ends = {starts[name].name: plan.buffers[end] for name, end in plan.document.states.items()}
        self._carry = in_order([run for rank in self._ranks for run in _carried(self._device, plan, rank, ends)])
        self._started = {name: self._gathered(name, starts[name].name) for name in plan.document.states}

    def _copies(self, buffers: Iterable[Buffer], wholes: Mapping[str, Stored]) -> list[Runner]:
        """Whole arrays into the buffers that begin with them, on every rank."""
        return [rank.filling(buffer, wholes[buffer.tensor]) for rank in self._ranks for buffer in buffers]

    def _gathered(self, tensor: str, buffer: str) -> tuple[Array, Runner]:
        """A whole array, and what fills it from a buffer of all ranks."""
        memories = {rank.number: rank.memory for rank in self._ranks}
        target = empty_whole(self._plan.program.tensor(tensor))
        movement = Movement.to_rank_0(self._plan, tensor, buffer, memories, target, 0)
        return target.array, InProcess(self._device).bind(movement)

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """One step: the outputs by name, arrays of their own. UsageError for inputs that do not fit.

        BytesDiffer and TaskError as in `tapestry.workers.run`; the states are lost where a task failed.
        """
        for name, value in checked_inputs(self._plan.program, inputs, "input").items():
            self._inputs[name].array[...] = value
        received = self._order.transport.received
        received.clear()
        with self._device.running():
            self._feed()
            self._step()
            found = self._read(self._outputs)
            self._carry()
            self._device.synchronise()
        if self._step == self._one_by_one:
            if Counter(received) != self._planned:
                demand_planned(self._plan, received, range(self._plan.size))
            self._step = self._device.repeated(self._one_by_one)
        return found

    def _one_by_one(self) -> None:
        for place, run in self._order.steps:
            with place:
                run()

    def _read(self, gathered: Mapping[str, tuple[Array, Runner]]) -> dict[str, Array]:
        for _, run in gathered.values():
            run()
        self._device.synchronise()
        return {name: array.copy() for name, (array, _) in gathered.items()}

    @property
    def states(self) -> dict[str, Array]:
        """The states that the program updates, as the next step begins with them."""
        return self._read(self._started)

    def close(self) -> None:
        """Give the memory back. No step may follow."""
        self._device.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _carried(device: Device, plan: Resolved, rank: Rank, ends: Mapping[str, Buffer]) -> list[Runner]:
    """States from where a step leaves them to where the next one finds them (``ends``: the first by the second).

    All are set aside before any is put down: the memory in which one begins may be that in which another ends.
    """
    aside, put = [], []
    for start, end in ends.items():
        source, target = rank.memory[end.name], rank.memory[start]
        initial = plan.buffers[start].initial
        if start == end.name or source is None or target is None or initial is None:
            continue
        region = plan.regions(initial)[rank.number]
        packed = Packed(device.take(region.size, source.array.dtype, None), region)
        aside.append(device.pack(source, packed))
        put.append(device.unpack(packed, target))
    return [*aside, *put]
