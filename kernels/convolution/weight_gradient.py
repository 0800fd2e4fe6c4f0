"""The weight gradient of a grouped convolution: its sources, specialised, and its launches.

    dw[k, r, s, j] = sum over n, p, q of dy[n, p, q, k] * x[n, p * stride_y + r * dilation_y - top,
                                                            q * stride_x + s * dilation_x - left, group(k) * width + j]

One kernel where few splits of the output rows suffice: they add their sums through each other's shared memory. Else
two: the first leaves one f32 partial for every split, the second adds them. The order is fixed either way, so that a
configuration gives the same bits on every run.
"""

from __future__ import annotations

import functools
import struct
from math import prod
from typing import Any, TypeAlias

from ..dimensions.declarations import declarations
from ..errors import WrongValue
from ..runtime.compiler import Recipe
from . import depthwise_weight_gradient
from . import direct_weight_gradient as plain
from .depthwise_weight_gradient_configuration import DepthwiseWeightGradient, computed, taken_registers
from .depthwise_weight_gradient_configuration import legal as legal_depthwise
from .divisor import packed as packed_divisor
from .forward import HALVES, kernel_text
from .launch import Launch, View, lines, tensor_map, uncrowded
from .problem import ConvolutionProblem
from .weight_gradient_configuration import (
    Cut,
    WeightGradientConfiguration,
    legal,
    live_rows,
    reads_by_copy_engine,
)
from .weight_gradient_dimensions import plain_specification, specification

FOLD_BATCH, MOST_FOLD_WARPS = 8, 16  # of weight_gradient_apart.cu
NONE = range(0)
Chosen: TypeAlias = WeightGradientConfiguration | DepthwiseWeightGradient


def source(problem: ConvolutionProblem, chosen: Chosen) -> str:
    """The CUDA source of the kernels of a configuration.

    Problems that differ in extents, padding or channels alone share one source; of depthwise kernels, where their
    groups of rows come in as many parts.
    """
    if isinstance(chosen, DepthwiseWeightGradient):
        return depthwise_weight_gradient.source(problem, chosen)
    constants: dict[str, int | bool] = {
        "all_rows": problem.r,
        "filter_columns": problem.s,
        "stride_y": problem.stride[0],
        "stride_x": problem.stride[1],
        "dilation_y": problem.dilation[0],
        "dilation_x": problem.dilation[1],
        "width": problem.width,
    }
    half = f"namespace tapestry::parameters {{ using Half = {HALVES[problem.dtype]}; }}"
    end = "weight_gradient_together.cu" if chosen.together else "weight_gradient_apart.cu"
    tiled = ("weight_gradient_place.cu", "weight_gradient.cu", end)
    files = ("direct_weight_gradient.cu", "fold_splits.cu") if chosen.direct else tiled
    head = ["#include <tapestry/numeric.cuh>", _declared(problem, chosen, constants), half]
    return "\n".join([*head, *(kernel_text(name) for name in files)])


def _declared(
    problem: ConvolutionProblem, chosen: WeightGradientConfiguration, constants: dict[str, int | bool]
) -> str:
    if chosen.direct:
        return declarations(plain_specification(plain.lanes(problem), problem.width, constants | plain.sizes(problem)))
    cut = Cut(problem, chosen)
    return declarations(specification(cut, constants | _tile_constants(cut)))


def _tile_constants(cut: Cut) -> dict[str, int | bool]:
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
        "whole": chosen.flat,
        **({"ranks": chosen.splits} if chosen.together else {}),
    }


def kernel_names(chosen: Chosen, partial: bool) -> tuple[str, ...]:
    """The kernels' names in the source, in the order they run. The last leaves f32, or rounds to the problem's type."""
    if isinstance(chosen, DepthwiseWeightGradient):
        return depthwise_weight_gradient.kernel_names(chosen, partial)
    fold = "fold_partials" if partial else "fold_rounded"
    first = "direct_weight_gradient" if chosen.direct else "weight_gradient"
    if chosen.together:
        return (f"{first}_partial" if partial else f"{first}_rounded",)
    return first, fold


def recipes(problem: ConvolutionProblem, chosen: Chosen, partial: bool) -> list[Recipe]:
    """The kernels to compile, in the order they run: one image holds all of them."""
    text = source(problem, chosen)
    traded = isinstance(chosen, DepthwiseWeightGradient) and taken_registers(problem, chosen)
    return [Recipe(name, text, feature="a" if traded else "") for name in kernel_names(chosen, partial)]


def workspace_bytes(problem: ConvolutionProblem, chosen: Chosen) -> int:
    """Bytes of the partials between two kernels; none where there is one."""
    if chosen.together:
        return 0
    if isinstance(chosen, DepthwiseWeightGradient):
        return 4 * problem.weight_elements * chosen.splits
    values = problem.weight_elements if chosen.direct else 4 * Cut(problem, chosen).quadruples
    return 4 * values * chosen.splits


def launches(
    problem: ConvolutionProblem, chosen: Chosen, x: View, dy: View, workspace: int, out: int
) -> tuple[Launch, ...]:
    """The launches of `kernel_names`: partials into `workspace` and their sum into `out`, or that at once."""
    if isinstance(chosen, DepthwiseWeightGradient):
        return depthwise_weight_gradient.launches(problem, chosen, x, dy, workspace, out)
    if chosen.together:
        return (first_launch(problem, chosen, x, dy, out),)
    return first_launch(problem, chosen, x, dy, workspace), second_launch(problem, chosen, workspace, out)


def first_launch(
    problem: ConvolutionProblem, chosen: WeightGradientConfiguration, x: View, dy: View, target: int
) -> Launch:
    """The launch that leaves the partials in a workspace, or where the splits add together the gradient itself."""
    if chosen.direct:
        made = plain.arguments(problem, chosen.splits, x, dy, target)
        return Launch(plain.grid(problem, chosen.splits), plain.block(problem), made)
    cut = Cut(problem, chosen)
    if chosen.flat:
        x_map, dy_map = lines(x), lines(dy)
    else:
        x_map = tensor_map(x, (chosen.images, 1, cut.x_columns), chosen.channel_block)
        dy_map = tensor_map(dy, (chosen.images, 1, 8 * chosen.units), chosen.channel_block)
    rows = live_rows(problem)
    edges = struct.pack("<4i", problem.h, rows.start, problem.padding[0], problem.padding[2])
    divisors = packed_divisor(max(1, len(rows))), packed_divisor(cut.column_tiles)
    shape = b"".join([edges, *divisors, struct.pack("<2i", *divmod(cut.work, chosen.splits))])
    grid = (cut.channel_blocks, chosen.splits, chosen.row_parts)
    if not chosen.together:
        made = (x_map, dy_map, target, shape)
        return Launch(grid, (cut.threads,), made, cut.shared_bytes, residents=chosen.residents)
    arguments = (x_map, dy_map, target, problem.c, shape)
    return Launch(grid, (cut.threads,), arguments, cut.shared_bytes, (1, chosen.splits), chosen.residents)


def second_launch(problem: ConvolutionProblem, chosen: WeightGradientConfiguration, workspace: int, out: int) -> Launch:
    """The launch that adds the partials into `out`, dense [k, r, s, c / groups]."""
    if chosen.direct:
        elements = problem.weight_elements
        grid = (-(-elements // plain.FOLD_THREADS),)
        return Launch(grid, (plain.FOLD_THREADS,), (workspace, chosen.splits, elements, out))
    grid = (Cut(problem, chosen).quadruples // 32,)
    warps = min(MOST_FOLD_WARPS, -(-chosen.splits // FOLD_BATCH))
    return Launch(grid, (32 * warps,), (workspace, chosen.splits, problem.c, out))


def require(problem: ConvolutionProblem, chosen: Chosen, shared: int) -> None:
    """Refuse a configuration that is none of this problem's on a GPU with `shared` bytes a block."""
    if isinstance(chosen, DepthwiseWeightGradient):
        fits = computed(problem) and legal_depthwise(problem, chosen, shared)
    else:
        fits = chosen.direct or (reads_by_copy_engine(problem) and legal(Cut(problem, chosen), shared))
    if not fits:
        raise WrongValue(
            "a configuration of another problem",
            where="conv2d_weight_gradient",
            expected=f"one of weight_gradient_candidates.configurations({problem})",
            came=chosen,
        )


@functools.lru_cache(maxsize=1024)
def kernels(problem: ConvolutionProblem, chosen: Chosen, partial: bool, device: int) -> tuple[Any, ...]:
    """The kernels on a device: compiled, or from the cache, and loaded. Raises `WrongValue` for an illegal cut."""
    from ..runtime.background import obtained
    from ..runtime.device import device_architecture, properties
    from ..runtime.module import load

    require(problem, chosen, properties(device).shared_per_block)
    arch = device_architecture(device)
    # One image holds all of them: the others are there when the first is.
    return tuple(load(obtained(recipe, arch), device) for recipe in recipes(problem, chosen, partial))


def prepared(kernels: tuple[Any, ...], made: tuple[Launch, ...], behind_event: range = NONE) -> tuple[Any, ...]:
    """The launches, checked and packed.

    They start while the kernel ahead still runs and wait for its memory themselves; not those, by number, that an event
    announces operands to.
    """
    from ..runtime.device import properties

    return tuple(
        kernel.prepare(
            launch.grid,
            launch.block,
            launch.arguments,
            uncrowded(launch.shared, launch.residents, prod(launch.grid), properties(kernel.device)),
            programmatic=number not in behind_event,
            cluster=launch.cluster,
        )
        for number, (kernel, launch) in enumerate(zip(kernels, made, strict=True))
    )


def run(
    problem: ConvolutionProblem,
    chosen: Chosen,
    x: View,
    dy: View,
    workspace: int,
    out: int,
    *,
    partial: bool,
    device: int,
    stream: int,
) -> None:
    """The launches, one after the other, on a stream. `workspace` and `out` are addresses on the device."""
    made = launches(problem, chosen, x, dy, workspace, out)
    for launch in prepared(kernels(problem, chosen, partial, device), made):
        launch.launch(stream)
