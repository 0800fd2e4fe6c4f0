"""Grouped convolutions in programs: recognised by their index expressions, timed by the model that tunes the kernels.

What the kernels compute is recognised, whatever the names: channels last, f16 or bf16, as many channels out as in, a
group width the kernels know. Anything else is left to the roofline of `cost`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ...expr import Affine, Call, Floor, Read
from ...kernels.convolution.forward_walk import walk
from ...kernels.convolution.problem import DTYPES, BadConvolution, ConvolutionProblem
from ...kernels.cost.gpu import known_gpu
from ...kernels.cost.model import predicted_s
from ...program import Block, Operation, Program
from ...space import Region
from ...space.projection import Image
from ..machine import DeviceModel


@dataclass(frozen=True)
class Grouped:
    """y[n, p, q, k] = sum[j, r, s] x[n, stride p + dilation r - .., .., k // width * width + j] w[k, r, s, j]."""

    x: str
    w: str
    width: int
    filter_size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]


def seconds(
    op: Operation, program: Program, device: DeviceModel, points: int, reads: Mapping[str, Image], written: Region
) -> float | None:
    """Seconds of one shard by the kernels' cost model; None for what the kernels do not compute, or on another device.

    The model's bandwidth is the one it was measured with: a device described as faster or slower is faster or slower.
    """
    gpu, found = known_gpu(device.name), grouped(op)
    if gpu is None or found is None:
        return None
    problem = _problem(found, op, program, points, reads, written)
    if problem is None:
        return None
    walked = walk(problem).problem
    return predicted_s(walked, "forward", gpu) * gpu.copy_bytes_per_s / (device.compute_tier.read_gb_per_s * 1e9)


@lru_cache(maxsize=65536)
def grouped(op: Operation) -> Grouped | None:
    """The convolution that an operation is, if the kernels compute it."""
    if isinstance(op.body, Block) or op.monoid != "sum" or op.where or len(op.dims) != 7 or len(op.write) != 4:
        return None
    body = op.body
    if not isinstance(body, Call) or body.function != "multiply":
        return None
    both = [arg for arg in body.args if isinstance(arg, Read) and len(arg.index) == 4]
    for x, w in (both, both[::-1]) if len(both) == 2 else ():
        if found := _matched(op, x, w):
            return found
    return None


def _matched(op: Operation, x: Read, w: Read) -> Grouped | None:
    """x and w in their roles: the rows of both indices have to be those of a convolution, to the letter."""
    plain = [_dim(row) for row in (*op.write, *w.index, x.index[0])]
    n, p, q, k, k_again, r, s, j, n_again = plain
    if None in plain or (n, k) != (n_again, k_again) or {r, s, j} != set(op.reduce_dims) or w.guard or x.fill != 0:
        return None
    rows, columns = _steps(x.index[1], p, r), _steps(x.index[2], q, s)
    width = op.dim(str(j)).extent
    channel = Affine.dim(str(k)) // width * width + Affine.dim(str(j))
    alone = width == 1 and x.index[3] == Affine.dim(str(k))
    if rows is None or columns is None or not (alone or x.index[3] == channel):
        return None
    size = (op.dim(str(r)).extent, op.dim(str(s)).extent)
    return Grouped(x.tensor, w.tensor, width, size, (rows[0], columns[0]), (rows[1], columns[1]))


def _dim(row: Affine) -> str | None:
    """The dimension that a row is, and nothing else."""
    atom = row.terms[0][0] if len(row.terms) == 1 and row.terms[0][1] == 1 and not row.const else None
    return None if isinstance(atom, Floor) else atom


def _steps(row: Affine, out: str | None, tap: str | None) -> tuple[int, int] | None:
    """(stride, dilation) of `stride out + dilation tap + constant`. A step over an extent of 1 may be missing."""
    if not row.is_affine or not row.dims <= {out, tap}:
        return None
    return max(1, row.coefficient(str(out))), max(1, row.coefficient(str(tap)))


Extents = tuple[int, int, int, int]


def _problem(
    found: Grouped, op: Operation, program: Program, points: int, reads: Mapping[str, Image], written: Region
) -> ConvolutionProblem | None:
    """One shard as a problem of its own: its rows of x are all there is, the rest is padding."""
    x, y = _box(reads[found.x].region), _box(written)
    (r, s), (sy, sx), (dy, dx) = found.filter_size, found.stride, found.dilation
    types = {program.tensor(name).dtype for name in (found.x, found.w, op.output)}
    # A cut of a reduction or of a group is another operation.
    if x is None or y is None or len(types) > 1 or points != written.size * r * s * found.width or x[3] != y[3]:
        return None
    rows = (y[1] - 1) * sy + (r - 1) * dy + 1 - x[1]
    columns = (y[2] - 1) * sx + (s - 1) * dx + 1 - x[2]
    dtype = types.pop()
    if dtype not in DTYPES or y[3] % found.width:
        return None
    padding = (rows // 2, rows - rows // 2, columns // 2, columns - columns // 2)
    groups = y[3] // found.width
    try:
        return ConvolutionProblem(*x, groups, r, s, found.stride, found.dilation, padding, dtype)
    except BadConvolution:
        return None


def _box(region: Region) -> Extents | None:
    """Extents of a region that is one box, strided or not."""
    if len(region.grids) != 1 or len(region.grids[0].axes) != 4:
        return None
    n, h, w, c = (axis.size for axis in region.grids[0].axes)
    return (n, h, w, c)
