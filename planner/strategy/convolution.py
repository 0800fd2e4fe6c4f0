"""Grouped convolutions in programs, timed by the model that tunes the kernels.

What the kernels compute is timed so, whatever the names: channels last, f16 or bf16, as many channels out as in, a
group width the kernels know. Anything else is left to the roofline of `cost`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...convolution import Convolution, convolution
from ...kernels.convolution.problem import DTYPES, BadConvolution, ConvolutionProblem
from ...kernels.cost.cudnn import ours_s
from ...kernels.cost.gpu import known_gpu, measured_as
from ...program import Operation, Program
from ...space import Region
from ...space.projection import Image
from ..machine import DeviceModel


def seconds(
    op: Operation, program: Program, device: DeviceModel, points: int, reads: Mapping[str, Image], written: Region
) -> float | None:
    """Seconds of one shard by the kernels' cost model; None for what the kernels do not compute, or on another device.

    The model's bandwidth is the one it was measured with: a device described as faster or slower is faster or slower.
    """
    known, found = known_gpu(device.name), convolution(op, program)
    if known is None or found is None or not found.channels_last or found.per != found.width:
        return None
    problem = _problem(found, op, program, points, reads, written)
    if problem is None:
        return None
    gpu = measured_as(known)
    return ours_s(problem, "forward", gpu) * gpu.copy_bytes_per_s / (device.compute_tier.read_gb_per_s * 1e9)


Extents = tuple[int, int, int, int]


def _problem(
    found: Convolution, op: Operation, program: Program, points: int, reads: Mapping[str, Image], written: Region
) -> ConvolutionProblem | None:
    """One shard as a problem of its own: its rows of x are all there is, the rest is padding."""
    x, y = _box(reads[found.image].region), _box(written)
    rows, columns = found.rows, found.columns
    r, s = op.extents[rows.tap], op.extents[columns.tap]
    types = {program.tensor(name).dtype for name in (found.image, found.filters, op.output)}
    # A cut of a reduction or of a group is another operation.
    if x is None or y is None or len(types) > 1 or points != written.size * r * s * found.width or x[3] != y[3]:
        return None
    high = (y[1] - 1) * rows.step + (r - 1) * rows.gap + 1 - x[1]
    wide = (y[2] - 1) * columns.step + (s - 1) * columns.gap + 1 - x[2]
    dtype = types.pop()
    if dtype not in DTYPES or y[3] % found.width:
        return None
    padding = (high // 2, high - high // 2, wide // 2, wide - wide // 2)
    groups = y[3] // found.width
    try:
        steps, gaps = (rows.step, columns.step), (rows.gap, columns.gap)
        return ConvolutionProblem(*x, groups, r, s, steps, gaps, padding, dtype)
    except BadConvolution:
        return None


def _box(region: Region) -> Extents | None:
    """Extents of a region that is one box, strided or not."""
    if len(region.grids) != 1 or len(region.grids[0].axes) != 4:
        return None
    n, h, w, c = (axis.size for axis in region.grids[0].axes)
    return (n, h, w, c)
