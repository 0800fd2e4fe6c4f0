"""A plan made ready to be run many times: loaded and bound once, then a step a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ..dtypes import numpy_dtype
from ..errors import UsageError
from ..planner.format.checked import Checked
from ..program import Tensor
from ..space import Box
from .between import carrying, filling, first_buffers
from .device import Runner, Stored, in_order
from .devices import AUTO, chosen_device, open_device, warn_of_other_hardware
from .engines.replayed import Replayed
from .feeding import Feed
from .rank import Rank
from .stores.arrays import Array
from .stores.inputs import checked_inputs
from .tensors import host_array, is_host, maker
from .transport.counting import demand_planned, planned_bytes
from .transport.in_process import InProcess
from .transport.movement import Movement
from .whole import empty_whole, whole_array


class Compiled:
    """A checked plan on a device, all ranks in this process: params stay, states go on from step to step.

    ``step({"x": ..., "y": ...})`` takes the program's inputs as whole arrays and gives its outputs; `states` are what
    the last step left. Inputs may be tensors of any library that speaks DLPack (torch, CuPy): large ones are read where
    they lie, and outputs are tensors of the same kind on the same device, as states are of the kind of the values that
    it was made with. A step decides and binds nothing. Bytes that ranks receive are counted where tasks are asked for
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
        self._plan, self._like = given.resolved, maker(values.values())
        values = checked_inputs(self._plan.program, values, "param", "state", elsewhere=True)
        machine = self._plan.document.machine
        chosen = chosen_device(device, machine)
        warn_of_other_hardware(chosen, machine)
        self._device = open_device(chosen)
        try:
            numbers = range(self._plan.size)
            lanes = self._plan.size == 1  # others take turns
            self._ranks = [Rank(self._device, self._plan, k, poison=poison, lanes=lanes) for k in numbers]
            self._load(values)
        except BaseException:
            self._device.close()
            raise

    def _load(self, values: Mapping[str, Any]) -> None:
        plan, program = self._plan, self._plan.program
        kept = first_buffers(plan, "const", "param", "state")
        wholes = {buffer.tensor: self._whole(program.tensor(buffer.tensor), values) for buffer in kept}
        in_order(filling(self._ranks, kept, wholes))()
        inputs = program.of_role("input")
        self._feeds = {tensor.name: Feed(plan, self._device, self._ranks, tensor) for tensor in inputs}
        for rank in self._ranks:
            rank.bind()
        self._order = Replayed(plan, self._ranks)
        self._replay = self._device.in_turn(self._order.steps)
        self._counts, self._kept = True, False
        self._planned = planned_bytes(plan, range(plan.size))
        self._outputs = {name: self._gathered(name, buffer) for name, buffer in plan.document.outputs.items()}
        starts = {buffer.tensor: buffer.name for buffer in kept}
        self._carry = in_order([run for rank in self._ranks for run in carrying(self._device, plan, rank)])
        self._started = {name: self._gathered(name, starts[name]) for name in plan.document.states}

    def _whole(self, tensor: Tensor, values: Mapping[str, Any]) -> Stored:
        """A param, state or constant, where the device can read it."""
        if tensor.name not in values or is_host(values[tensor.name]):
            return whole_array(tensor, values)
        adopted = self._device.adopt(values[tensor.name], numpy_dtype(tensor.dtype))
        array = host_array(values[tensor.name]) if adopted is None else adopted
        return Stored(array, Box.of_shape(tensor.shape).grid())

    def _gathered(self, tensor: str, buffer: str) -> tuple[Array, Runner]:
        """A whole array, and what fills it from a buffer of all ranks."""
        memories = {rank.number: rank.memory for rank in self._ranks}
        target = empty_whole(self._plan.program.tensor(tensor))
        movement = Movement.to_rank_0(self._plan, tensor, buffer, memories, target, 0)
        return target.array, InProcess(self._device).bind(movement)

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One step: the outputs by name, arrays of their own. UsageError for inputs that do not fit.

        BytesDiffer and TaskError as in `tapestry.workers.run`; the states are lost where a task failed.
        """
        given = checked_inputs(self._plan.program, inputs, "input", elsewhere=True)
        feed = in_order([self._feeds[name].of(value) for name, value in given.items()])
        like = maker(inputs.values())
        with self._device.running():
            feed()
            self._step()
            found = self._read(self._outputs)
            self._carry()
            self._device.synchronise()
        return {name: like(array) for name, array in found.items()}

    def _step(self) -> None:
        """All tasks. From the second step on as the device keeps them."""
        received = self._order.transport.received
        received.clear()
        self._replay(0.0)
        if self._counts and Counter(received) != self._planned:
            demand_planned(self._plan, received, range(self._plan.size))
        if not self._kept:
            self._counts, self._kept = not self._replay.keep(timed=False), True

    def _read(self, gathered: Mapping[str, tuple[Array, Runner]]) -> dict[str, Array]:
        for _, run in gathered.values():
            run()
        self._device.synchronise()
        return {name: array.copy() for name, (array, _) in gathered.items()}

    @property
    def states(self) -> dict[str, Any]:
        """The states that the program updates, as the next step begins with them."""
        return {name: self._like(array) for name, array in self._read(self._started).items()}

    def close(self) -> None:
        """Give the memory back. No step may follow."""
        self._device.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
