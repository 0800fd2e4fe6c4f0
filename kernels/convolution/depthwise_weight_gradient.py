"""The weight gradient of depthwise convolutions: its sources, specialised, and its launches.

One kernel where the splits of the rows are a cluster of thread blocks, which add their sums. Else it leaves one f32
partial for every split, and a second one adds them. The order is fixed either way.
"""

from __future__ import annotations

import struct
from math import ceil

from ..dimensions.declarations import declarations
from ..dimensions.specification import Parameter, Specification
from . import fold_quadruples
from .configuration import LEFT_REGISTERS
from .depthwise_weight_gradient_configuration import (
    DepthwiseWeightGradient,
    boxes,
    exchange_bytes,
    first_rows,
    launched,
    line,
    row_groups,
    shared_bytes,
    taken_registers,
)
from .divisor import packed as packed_divisor
from .forward import HALVES, kernel_text
from .launch import Launch, View, tensor_map
from .problem import ConvolutionProblem

NAME = "depthwise_weight_gradient"
TOGETHER = (f"{NAME}_partial", f"{NAME}_rounded")  # in f32, and as the filter is


def kernel_names(cut: DepthwiseWeightGradient, partial: bool) -> tuple[str, ...]:
    """The kernels' names in the source, in the order they run. The last leaves f32, or rounds to the problem's type."""
    if cut.together:
        return (TOGETHER[0 if partial else 1],)
    return NAME, fold_quadruples.NAMES[0 if partial else 1]


def source(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> str:
    """The CUDA source. Problems that differ in extents, channels and padding above by whole filters alone share one,
    where their groups come in as many parts."""
    (_, _, x_columns), (_, _, dy_columns) = boxes(problem, cut)
    x_first, dy_first = first_rows(problem, cut)
    numbers = {
        "R": problem.r,
        "S": problem.s,
        "SHIFT": problem.padding[0] % problem.r,
        "X_FIRST": x_first,
        "DY_FIRST": dy_first,
        "OCTETS": cut.octets,
        "SHARES": cut.shares,
        "IMAGES": cut.images,
        "UNIT": cut.unit,
        "UNITS": cut.units,
        "X_COLUMNS": x_columns,
        "DY_COLUMNS": dy_columns,
        "STAGES": cut.stages,
        "SHARED_BYTES": shared_bytes(problem, cut),
        "TAKEN_REGISTERS": taken_registers(problem, cut),
        "LEFT_REGISTERS": LEFT_REGISTERS,
        "RANKS": cut.splits if cut.together else 1,
        "EXCHANGE_BYTES": exchange_bytes(problem, cut),
    }
    parameters = tuple(Parameter(name, value) for name, value in numbers.items())
    half = f"namespace spec {{ using Half = {HALVES[problem.dtype]}; }}"
    includes = [f"#include <tapestry/{name}.cuh>" for name in ("async", "divisor", "mma", "numeric", "registers")]
    declared = declarations(Specification("spec", (), parameters=parameters))
    end = (f"{NAME}_together.cu",) if cut.together else (f"{NAME}_apart.cu", fold_quadruples.TEXT)
    texts = [kernel_text(name) for name in (f"{NAME}.cu", *end)]
    return "\n".join([*includes, declared, half, "using namespace tapestry;", *texts])


def launches(
    problem: ConvolutionProblem, cut: DepthwiseWeightGradient, x: View, dy: View, workspace: int, out: int
) -> tuple[Launch, ...]:
    """What leaves the sums of every split and what adds them into `out`, or the one launch that does both."""
    parts = zip((x, dy), boxes(problem, cut), first_rows(problem, cut), strict=True)
    maps = [
        tensor_map(view.rows_outermost(), (max(1, rows), images, columns), cut.channels)
        for view, (whole, images, columns), first in parts
        for rows in (first, whole - first)
    ]
    offset = problem.padding[0] // problem.r * problem.r
    extents = (problem.c, problem.h, problem.p, offset, problem.padding[2], *divmod(line(problem, cut), cut.splits))
    divisors = (row_groups(problem), ceil(problem.q / (cut.unit * cut.units)))
    work = struct.pack("<7i", *extents) + b"".join(map(packed_divisor, divisors))
    grid, shared = (ceil(problem.c / cut.channels), cut.splits), shared_bytes(problem, cut)
    threads = launched(problem, cut)
    if cut.together:
        return (Launch(grid, (threads,), (*maps, out, work), shared, (1, cut.splits), residents=1),)
    first = Launch(grid, (threads,), (*maps, workspace, work), shared, residents=1)
    return first, fold_quadruples.launch(problem.weight_elements // 4, cut.splits, workspace, out)
