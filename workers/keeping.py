"""What a step that fails would lose of the states: set aside ahead of one that may fail, put back after one that did.

A step loses a state where it writes into the memory in which that state begins: in its place, or because nothing reads
it any more. It may fail where an index of the data may be outside of its axis, and where a function of the user's is
called (a declared block kernel). Indices that are inputs of the step are looked at: where all of them are inside,
nothing is set aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ..blocks import BLOCKS
from ..expr import Read
from ..planner.format import Buffer, Compute, Resolved
from ..program import Block, Program
from ..selection import demands, uncast
from .between import first_buffers
from .device import Device, Packed, Runner, in_order, nothing
from .rank import Rank


class Keeping:
    """Of the ranks of one process."""

    def __init__(self, plan: Resolved, device: Device, ranks: Sequence[Rank]) -> None:
        self._plan, self._device, self._ranks = plan, device, ranks
        self._lost = overwritten(plan)
        self._looked_up = indices_given(plan.program)
        self._bound: tuple[Runner, Runner] | None = None

    @contextmanager
    def around(self, inputs: Mapping[str, Any]) -> Iterator[bool]:
        """A step with these inputs, of which is said whether it may fail: if it does, states are put back."""
        back, may_fail = nothing, self._may_fail(inputs)
        if self._lost and may_fail:
            if self._bound is None:
                self._bound = self._ways()
            aside, back = self._bound
            aside()
        try:
            yield may_fail
        except Exception:
            with suppress(Exception):  # a device that fails for good has no states any more
                back()
                self._device.synchronise()
            raise

    def _may_fail(self, inputs: Mapping[str, Any]) -> bool:
        given = self._looked_up
        return given is None or not all(_inside(inputs[name], extent) for name, extent in given.items())

    def _ways(self) -> tuple[Runner, Runner]:
        """There and back. Memory is taken beside that of the plan."""
        aside, back = [], []
        for rank in self._ranks:
            for buffer in self._lost:
                stored = rank.memory[buffer.name]
                if stored is None or buffer.initial is None:
                    continue
                region = self._plan.regions(buffer.initial)[rank.number]
                packed = Packed(self._device.take(region.size, stored.array.dtype, None), region)
                aside.append(self._device.pack(stored, packed))
                back.append(self._device.unpack(packed, stored))
        return in_order(aside), in_order(back)


def _inside(values: Any, extent: int) -> bool:
    """Whether all values are indices of an axis; of NumPy's arrays, or of another library's tensors."""
    return 0 in values.shape or (int(values.min()) >= 0 and int(values.max()) < extent)


def overwritten(plan: Resolved) -> list[Buffer]:
    """The buffers in which states begin, and into which a step writes."""
    tasks = plan.document.tasks
    names = {task.write if isinstance(task, Compute) else task.target for task in tasks}
    written = [plan.buffers[name] for name in names]
    return [buffer for buffer in first_buffers(plan, "state") if any(buffer.meets(other) for other in written)]


def indices_given(program: Program) -> dict[str, int] | None:
    """The inputs whose values are looked up, each with the least extent of what they are indices of. None where a step
    may fail whatever its inputs are.
    """
    roles = {tensor.name: tensor.role for tensor in program.tensors}
    found: dict[str, int] = {}
    for op in program.operations:
        if isinstance(op.body, Block):
            bodies = BLOCKS[op.body.kernel].bodies
            if bodies is not None and bodies.home:
                return None
            continue
        for value, extent in demands(op.body):
            index = uncast(value)
            if not isinstance(index, Read) or roles[index.tensor] != "input":
                return None
            found[index.tensor] = min(extent, found.get(index.tensor, extent))
    return found
