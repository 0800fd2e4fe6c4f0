"""Memory for kernels to work in: behind the buffers, as much as some task of the lane wants, or as there is left.

The tasks of a lane run one after another, so one place is enough for all of them. No buffer ever lies there: what a
task leaves would have to be waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...blocks import BLOCKS
from ...program import Block
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
    """Bytes for the kernel of a task, and for what is laid out around it."""
    made = step.strategy.writes.storage_size * step.write.itemsize
    kernel = kernel_class(step.op)
    return _around(step, made) + max(device.workspace_bytes(kernel, made) for device in devices)


def _around(step: ComputeStep, made: int) -> int:
    """Records that are folded onto others, and the fold of both; operands and result of a function of dense arrays."""
    found = [] if step.onto is None else [made, made]
    body = step.op.body
    if isinstance(body, Block) and BLOCKS[body.kernel].bodies is not None:
        pairs = zip(step.reads, step.strategy.needs, strict=True)
        found += [made, *(need.storage_size * slot.itemsize for slot, need in pairs)]
    return sum(-(-nbytes // ALIGN) * ALIGN for nbytes in found)
