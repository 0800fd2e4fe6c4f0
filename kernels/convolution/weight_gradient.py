"""The weight gradient of a grouped convolution: its sources, specialised, and its launches.

    dw[k, r, s, j] = sum over n, p, q of dy[n, p, q, k] * x[n, p * stride_y + r * dilation_y - top,
                                                            q * stride_x + s * dilation_x - left, group(k) * width + j]

Two kernels: the first leaves one f32 partial for every split of the output rows, the second adds them in a fixed order,
so that a configuration gives the same bits on every run.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import Any

from ..dimensions.declarations import declarations
from ..errors import WrongValue
from .forward import HALVES, kernel_text
from .launch import View, tensor_map
from .problem import ConvolutionProblem
from .weight_gradient_configuration import Cut, WeightGradientConfiguration, legal, live_rows, reads_by_copy_engine
from .weight_gradient_dimensions import plain_specification, specification

FOLD_BATCH, MOST_FOLD_WARPS = 8, 16  # of fold.cu
PLAIN_FOLD_THREADS = 256  # of direct_weight_gradient.cu
PLAIN_LANES, PLAIN_POSITIONS = 32, 8


@dataclass(frozen=True)
class Launch:
    """One kernel's grid, threads, arguments after the pointers, and dynamic shared memory."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    shared: int = 0


def source(problem: ConvolutionProblem, chosen: WeightGradientConfiguration) -> str:
    """The CUDA source of both kernels of a configuration.

    Problems that differ in extents, padding or channels alone share one source.
    """
    constants = {
        "all_rows": problem.r,
        "filter_columns": problem.s,
        "stride_y": problem.stride[0],
        "stride_x": problem.stride[1],
        "dilation_y": problem.dilation[0],
        "dilation_x": problem.dilation[1],
        "width": problem.width,
    }
    half = f"namespace tapestry::parameters {{ using Half = {HALVES[problem.dtype]}; }}"
    tiled = ("weight_gradient_place.cu", "weight_gradient.cu", "fold.cu")
    files = ("direct_weight_gradient.cu",) if chosen.direct else tiled
    head = ["#include <tapestry/numeric.cuh>", _declared(problem, chosen, constants), half]
    return "\n".join([*head, *(kernel_text(name) for name in files)])


def _declared(problem: ConvolutionProblem, chosen: WeightGradientConfiguration, constants: dict[str, int]) -> str:
    if chosen.direct:
        return declarations(plain_specification(problem.width, constants))
    cut = Cut(problem, chosen)
    return declarations(specification(cut, constants | _tile_constants(cut)))


def _tile_constants(cut: Cut) -> dict[str, int]:
    chosen = cut.configuration
    return {
        "filter_rows": cut.filter_rows,
        "channel_block": chosen.channel_block,
        "units": chosen.units,
        "images": chosen.images,
        "x_columns": cut.x_columns,
        "out_blocks": chosen.out_blocks,
        "share": chosen.share,
        "stages": chosen.stages,
        "residents": chosen.residents,
    }


def kernel_name(chosen: WeightGradientConfiguration) -> str:
    """The first kernel's name in the source."""
    return "direct_weight_gradient" if chosen.direct else "weight_gradient"


def fold_name(partial: bool) -> str:
    """The second kernel's name: it leaves f32, or rounds to the problem's type."""
    return "fold_partials" if partial else "fold_rounded"


def workspace_bytes(problem: ConvolutionProblem, chosen: WeightGradientConfiguration) -> int:
    """Bytes of the partials between the two kernels."""
    values = problem.weight_elements if chosen.direct else 4 * Cut(problem, chosen).quadruples
    return 4 * values * chosen.splits


def first_launch(
    problem: ConvolutionProblem, chosen: WeightGradientConfiguration, x: View, dy: View, workspace: int
) -> Launch:
    """The launch that leaves the partials in `workspace`."""
    if chosen.direct:
        return _plain_launch(problem, chosen, x, dy, workspace)
    cut = Cut(problem, chosen)
    box = (chosen.images, 1, cut.x_columns)
    x_map = tensor_map(x, box, chosen.channel_block)
    dy_map = tensor_map(dy, (chosen.images, 1, 8 * chosen.units), chosen.channel_block)
    rows = live_rows(problem)
    shape = struct.pack(
        "<8i", problem.h, rows.start, len(rows), problem.padding[0], problem.padding[2], cut.column_tiles,
        *divmod(cut.work, chosen.splits),
    )  # fmt: skip
    grid = (cut.channel_blocks, chosen.splits, chosen.row_parts)
    return Launch(grid, (cut.threads,), (x_map, dy_map, workspace, shape), cut.shared_bytes)


def _plain_launch(
    problem: ConvolutionProblem, chosen: WeightGradientConfiguration, x: View, dy: View, workspace: int
) -> Launch:
    top, _, left, _ = problem.padding
    numbers = (problem.h, problem.w, problem.p, problem.q, problem.n, problem.c, top, left)
    extents = struct.pack("<8i6q", *numbers, *x.strides, *dy.strides)
    grid = (-(-problem.c // PLAIN_LANES), problem.r * problem.s, chosen.splits)
    return Launch(grid, (PLAIN_LANES, PLAIN_POSITIONS), (x.pointer, dy.pointer, workspace, extents))


def second_launch(problem: ConvolutionProblem, chosen: WeightGradientConfiguration, workspace: int, out: int) -> Launch:
    """The launch that adds the partials into `out`, dense [k, r, s, c / groups]."""
    if chosen.direct:
        elements = problem.weight_elements
        grid = (-(-elements // PLAIN_FOLD_THREADS),)
        return Launch(grid, (PLAIN_FOLD_THREADS,), (workspace, chosen.splits, elements, out))
    grid = (Cut(problem, chosen).quadruples // 32,)
    warps = min(MOST_FOLD_WARPS, -(-chosen.splits // FOLD_BATCH))
    return Launch(grid, (32 * warps,), (workspace, chosen.splits, problem.c, out))


def require(problem: ConvolutionProblem, chosen: WeightGradientConfiguration, shared: int) -> None:
    """Refuse a configuration that is none of this problem's on a GPU with `shared` bytes a block."""
    if not chosen.direct and not (reads_by_copy_engine(problem) and legal(Cut(problem, chosen), shared)):
        raise WrongValue(
            "a configuration of another problem",
            where="conv2d_weight_gradient",
            expected=f"one of weight_gradient_configuration.configurations({problem})",
            came=chosen,
        )


@functools.lru_cache(maxsize=1024)
def kernels(
    problem: ConvolutionProblem, chosen: WeightGradientConfiguration, partial: bool, device: int
) -> tuple[Any, Any]:
    """Both kernels on a device: compiled, or from the cache, and loaded. Raises `WrongValue` for an illegal cut."""
    from ..runtime.compiler import compile_source
    from ..runtime.device import device_architecture, properties
    from ..runtime.module import load

    require(problem, chosen, properties(device).shared_per_block)
    text, arch = source(problem, chosen), device_architecture(device)
    first, second = (compile_source(text, name=name, arch=arch) for name in (kernel_name(chosen), fold_name(partial)))
    return load(first, device), load(second, device)


def run(
    problem: ConvolutionProblem,
    chosen: WeightGradientConfiguration,
    x: View,
    dy: View,
    workspace: int,
    out: int,
    *,
    partial: bool,
    device: int,
    stream: int,
) -> None:
    """Both launches, one after the other, on a stream. `workspace` and `out` are addresses on the device."""
    first, second = kernels(problem, chosen, partial, device)
    leave, fold = first_launch(problem, chosen, x, dy, workspace), second_launch(problem, chosen, workspace, out)
    first.launch(leave.grid, leave.block, leave.arguments, shared=leave.shared, stream=stream)
    # Launched while the first still runs; it waits for the first's writes itself.
    second.launch(fold.grid, fold.block, fold.arguments, stream=stream, programmatic=not chosen.direct)
