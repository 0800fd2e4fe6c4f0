"""What elementwise and row kernels cost: bytes, arithmetic, and seconds from a machine's ceilings.

Both are bound by memory when they are large: bytes read and written once, at the rate of a copy. Small ones are bound
by the launch and by filling the GPU; arithmetic counts where a byte carries much of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...expr import FUNCTIONS, Call, Expr, walk
from ..cost.gpu import fitted
from .loop import Loop, footprint
from .plan import Plan


@dataclass(frozen=True)
class ElementwiseFit:
    """Of an empty kernel; of a copy; and the share of the copy's rate that each kind of fetch reaches.

    `data/gpus.json` says where they come from.
    """

    launch_s: float
    in_flight_bytes: float
    vector: float
    uniform: float
    tile: float
    gather: float
    row: float
    reread: float


FIT = fitted(ElementwiseFit, "elementwise")


@dataclass(frozen=True)
class Ceilings:
    """A GPU: bytes read plus written per second by a copy, scalar operations per second, seconds of an empty kernel,
    and bytes that must be in flight for the copy's rate (rate times latency).
    """

    bytes_per_s: float
    operations_per_s: float
    launch_s: float = FIT.launch_s
    in_flight_bytes: float = FIT.in_flight_bytes


@dataclass(frozen=True)
class Work:
    """Bytes moved once, and operations as `tapestry.expr.FUNCTIONS` charges them."""

    bytes: int
    operations: int


def operations(body: Expr) -> int:
    """Operations of one point, each function at its charge."""
    return sum(FUNCTIONS[node.function].flops for node in walk(body) if isinstance(node, Call))


def map_work(loop: Loop) -> Work:
    """The work of a map."""
    return Work(sum(footprint(loop)), loop.points * operations(loop.body))


def row_work(program: Any) -> Work:
    """The work of a `tapestry.kernels.normalization.program.RowProgram`."""
    points = program.rows * program.width
    charged = sum(operations(stage.body) + 1 for stage in program.stages if not stage.whole_row)
    return Work(program.bytes_moved, points * charged)


def seconds(work: Work, ceilings: Ceilings, share: float = 1.0) -> float:
    """launch + the longer of moving (at a share of the copy's rate, after filling the pipeline) and computing."""
    moving = (work.bytes + ceilings.in_flight_bytes) / (share * ceilings.bytes_per_s)
    return ceilings.launch_s + max(moving, work.operations / ceilings.operations_per_s)


def map_seconds(loop: Loop, plan: Plan, ceilings: Ceilings) -> float:
    """A planned map: the share of the rate is that of its slowest large operand."""
    large = [load for load in plan.loads if load.layout.elements * 4 >= loop.points]
    reached = {"vector": FIT.vector, "uniform": FIT.uniform, "tile": FIT.tile, "gather": FIT.gather}
    share = min([reached[load.kind] for load in large], default=FIT.vector)
    return seconds(map_work(loop), ceilings, share)


def row_seconds(plan: Any, ceilings: Ceilings) -> float:
    """A planned row program (`RowPlan`); rows that do not stay in registers are read again by every stage."""
    return seconds(row_work(plan.program), ceilings, FIT.row if plan.held else FIT.reread)
