"""A plan made ready to be run many times: loaded and bound once, then a step a call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Literal, Self

from ..dtypes import numpy_dtype
from ..errors import UsageError
from ..planner.format.checked import Checked
from ..program import Tensor
from ..space import Box
from .between import carrying, filling, first_buffers
from .device import DType, Runner, Stored, in_order
from .devices import AUTO, chosen_device, open_device, warn_of_other_hardware
from .engines.held import Held, held
from .feeding import Feed
from .keeping import Keeping
from .stores.inputs import checked_inputs, read_of
from .tensors import host_array, is_host, maker, sample
from .transport.counting import demand_planned, planned_bytes
from .whole import whole_array


class Compiled:
    """A checked plan on a device, made ready once: params stay, states go on from step to step.

    ``step({"x": ..., "y": ...})`` takes the program's inputs as whole arrays and gives its outputs; `states` are what
    the last step left. Inputs may be tensors of any library that speaks DLPack (torch, CuPy): large ones are read where
    they lie, and outputs are tensors of the same kind on the same device, as states are of the kind of the values that
    it was made with. A step decides and binds nothing. Bytes that ranks receive are counted where tasks are asked for
    one by one: in every step, on a GPU in the first, whose tasks are then replayed as one CUDA graph. Use it as a
    context, or `close` it, to give the memory back.
    """

    def __init__(
        self,
        plan: Checked,
        values: Mapping[str, Any],
        *,
        device: str = AUTO,
        engine: Literal["local", "torchrun"] | str = "local",
        poison: bool = False,
    ) -> None:
        """``values``: params and states by name, whole arrays. ``device`` and ``poison`` as in `tapestry.workers.run`.

        engine "local" holds all ranks in this process. With "torchrun", in a script that torchrun started with one
        process a rank, every process holds its own: all of them make the same calls with the same values, and outputs
        and states come to rank 0; elsewhere a step gives none.

        What a checkpoint holds beside them is left out, and a warning (`Unread`) names it. Raises UsageError for a
        value that is missing, an input, or does not fit, and what `run` raises while it binds.
        """
        given: object = plan
        if not isinstance(given, Checked):
            raise UsageError("the plan was not checked", hint="Plan.compile checks it")
        self._plan, self._like = given.resolved, sample(values.values())
        program = self._plan.program
        values = read_of(program, values, "what was given", "param", "state")
        values = checked_inputs(program, values, "param", "state", elsewhere=True)
        machine = self._plan.document.machine
        chosen = chosen_device(device, machine)
        warn_of_other_hardware(chosen, machine)
        self._device = open_device(chosen)
        self._held: Held | None = None
        try:
            self._held = held(engine, self._device, self._plan, poison=poison)
            with self._held.watched():
                self._load(self._held, values)
        except BaseException:
            self._close(failed=True)
            raise

    def _load(self, held: Held, values: Mapping[str, Any]) -> None:
        plan, program, ranks = self._plan, self._plan.program, held.ranks
        kept = first_buffers(plan, "const", "param", "state")
        wholes = {buffer.tensor: self._whole(program.tensor(buffer.tensor), values) for buffer in kept}
        in_order(filling(ranks, kept, wholes))()
        inputs = program.of_role("input")
        self._feeds = {tensor.name: Feed(plan, self._device, ranks, tensor) for tensor in inputs}
        self._counts, self._kept = True, False
        self._planned = planned_bytes(plan, held.numbers)
        self._gathered: dict[tuple[str, str, bool], tuple[Any | None, Runner]] = {}
        self._starts = {buffer.tensor: buffer.name for buffer in kept}
        self._keeping = Keeping(plan, self._device, ranks)
        self._carry = in_order([run for rank in ranks for run in carrying(self._device, plan, rank)])

    def _whole(self, tensor: Tensor, values: Mapping[str, Any]) -> Stored:
        """A param, state or constant, where the device can read it."""
        if tensor.name not in values or is_host(values[tensor.name]):
            return whole_array(tensor, values)
        adopted = self._device.adopt(values[tensor.name], numpy_dtype(tensor.dtype))
        array = host_array(values[tensor.name]) if adopted is None else adopted
        return Stored(array, Box.of_shape(tensor.shape).grid())

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One step: the outputs by name, arrays of their own. UsageError for inputs that do not fit.

        BytesDiffer, TaskError and PeerFailed as in `tapestry.workers.run`. States are what they were before a step that
        an index outside of its axis, or a function of one's own, made fail: the next step may follow. With "torchrun"
        all processes hear of it, one by a TaskError and the others by PeerFailed.
        """
        held = self._open()
        given = checked_inputs(self._plan.program, inputs, "input", elsewhere=True)
        with held.watched():
            feed = in_order([self._feeds[name].of(value) for name, value in given.items()])
            with self._device.running(), self._keeping.around(given) as may_fail:
                feed()
                self._step(held, may_fail=may_fail)
                found = self._read(held, self._plan.document.outputs, sample(inputs.values()))
                self._carry()
                held.wait()
                self._device.synchronise()
        return found

    def _open(self) -> Held:
        if self._held is None:
            raise UsageError("the compiled plan is closed")
        return self._held

    def _step(self, held: Held, *, may_fail: bool) -> None:
        """All tasks. From the second step on as the device keeps them."""
        received = held.transport.received
        received.clear()
        held.replay(0.0)
        held.settle(may_fail=may_fail)
        if self._counts and Counter(received) != self._planned:
            demand_planned(self._plan, received, held.numbers)
        if not self._kept:
            self._counts, self._kept = not held.keep(), True

    def _read(self, held: Held, buffers: Mapping[str, str], like: Any | None) -> dict[str, Any]:
        """Tensors from the buffers of all ranks, of the kind of another: on the GPU where that lies there."""
        near = {name: like is not None and self._device.near(like, self._dtype(name)) for name in buffers}
        arrays = {}
        held.wait()
        for name, buffer in buffers.items():
            key = name, buffer, near[name]
            if key not in self._gathered:
                self._gathered[key] = held.gathered(name, buffer, near=near[name])
            arrays[name], run = self._gathered[key]
            run()
        held.wait()
        self._device.synchronise()
        here = {name: array for name, array in arrays.items() if array is not None}
        return {name: self._device.given(a, like) if near[name] else maker(like)(a.copy()) for name, a in here.items()}

    def _dtype(self, tensor: str) -> DType:
        found: DType = numpy_dtype(self._plan.program.tensor(tensor).dtype)
        return found

    @property
    def states(self) -> dict[str, Any]:
        """The states that the program updates, as the next step begins with them."""
        held, starts = self._open(), {name: self._starts[name] for name in self._plan.document.states}
        with held.watched():
            return self._read(held, starts, self._like)

    def close(self) -> None:
        """Give the memory back. No step may follow."""
        self._close(failed=False)

    def _close(self, *, failed: bool) -> None:
        held, self._held = self._held, None
        if held is None or held.leave(failed=failed):
            self._device.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close(failed=error is not None)
