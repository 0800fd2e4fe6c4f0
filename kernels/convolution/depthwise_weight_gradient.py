"""The weight gradient of depthwise convolutions: its sources, specialised, and its launches.

The kernel leaves one f32 partial for every split, a second one adds them in a fixed order.
"""

from __future__ import annotations

import struct
from math import ceil

from ..dimensions.declarations import declarations
from ..dimensions.specification import Parameter, Specification
from . import fold_quadruples
from .depthwise_weight_gradient_configuration import (
    DepthwiseWeightGradient,
    boxes,
    lag,
    lead,
    line,
    row_groups,
    shared_bytes,
)
from .divisor import packed as packed_divisor
from .forward import HALVES, kernel_text
from .launch import Launch, View, tensor_map
from .problem import ConvolutionProblem

NAME = "depthwise_weight_gradient"


def source(problem: ConvolutionProblem, cut: DepthwiseWeightGradient) -> str:
    """The CUDA source. Problems that differ in extents, padding and channels alone share one."""
    numbers = {
        "R": problem.r,
        "S": problem.s,
        "OCTETS": cut.octets,
        "SHARES": cut.shares,
        "IMAGES": cut.images,
        "EIGHTS": cut.eights,
        "ROWS": cut.rows,
        "GROUP": cut.group,
        "X_STAGES": cut.stages,
        "DY_STAGES": cut.dy_stages,
        "RESIDENTS": cut.residents,
        "SHARED_BYTES": shared_bytes(cut),
    }
    parameters = tuple(Parameter(name, value) for name, value in numbers.items())
    half = f"namespace spec {{ using Half = {HALVES[problem.dtype]}; }}"
    includes = [f"#include <tapestry/{name}.cuh>" for name in ("async", "divisor", "mma", "numeric", "registers")]
    declared = declarations(Specification("spec", (), parameters=parameters))
    texts = [kernel_text(name) for name in ("depthwise_weight_gradient.cu", fold_quadruples.TEXT)]
    return "\n".join([*includes, declared, half, "using namespace tapestry;", *texts])


def launches(
    problem: ConvolutionProblem, cut: DepthwiseWeightGradient, x: View, dy: View, workspace: int, out: int
) -> tuple[Launch, Launch]:
    """The launch that leaves the sums of every split, and the one that adds them into `out`."""
    maps = [tensor_map(_rows_outermost(view), box, cut.channels) for view, box in zip((x, dy), boxes(cut), strict=True)]
    top, left = problem.padding[0], problem.padding[2]
    extents = (problem.c, problem.p, problem.h, top, left, lead(problem, cut.group), lag(problem, cut.group))
    stretches = divmod(line(problem, cut), cut.splits)
    divisors = (row_groups(problem, cut), ceil(problem.q / (8 * cut.eights)))
    work = struct.pack("<q9i", workspace, *extents, *stretches) + b"".join(map(packed_divisor, divisors)) + bytes(4)
    grid = (ceil(problem.c / cut.channels), cut.splits)
    first = Launch(grid, (cut.threads,), (*maps, work), shared_bytes(cut), residents=cut.residents)
    return first, fold_quadruples.launch(problem, cut.splits, workspace, out)


def _rows_outermost(view: View) -> View:
    """The tensor with images within rows, so that a row of all images of a box lies together in shared memory."""
    (n, h, w, c), (image, row, column) = view.shape, view.strides
    return View(view.pointer, (h, n, w, c), (row, image, column), view.dtype)
