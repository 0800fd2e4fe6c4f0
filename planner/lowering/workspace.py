"""Memory for kernels to work in: behind the buffers, as much as some task of the lane wants, or as there is left.

The tasks of a lane run one after another, so one place is enough for all of them. No buffer ever lies there: what a
task leaves would have to be waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..format import Workspace
from ..machine import DeviceModel
from ..strategy.cost import kernel_class
from .memory import ALIGN
from .steps import COMPUTE, ComputeStep, Steps


def workspaces(
    steps: Steps, devices: Sequence[DeviceModel], tier: str, peak: int, capacity: int
) -> dict[str, Workspace]:
    """By lane, where the buffers end at ``peak``, and a tier holds ``capacity`` bytes."""
    if not any(device.workspaces for device in devices):
        return {}
    found = (_wanted(step, devices) for step in steps.steps if isinstance(step, ComputeStep))
    offset = -(-peak // ALIGN) * ALIGN
    nbytes = min(max(found, default=0), capacity - offset)
    return {COMPUTE: Workspace(tier, offset, nbytes)} if nbytes > 0 else {}


def _wanted(step: ComputeStep, devices: Sequence[DeviceModel]) -> int:
    """Bytes for the kernel of a task, and for records that are folded onto others: those, and the fold of both."""
    made = step.strategy.writes.storage_size * step.write.itemsize
    beside = 0 if step.onto is None else 2 * made
    return beside + max(device.workspace_bytes(kernel_class(step.op), made) for device in devices)
