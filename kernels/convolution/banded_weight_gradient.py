"""The banded weight gradient of depthwise convolutions: its sources, specialised, and its launches.

The kernel leaves one f32 partial for every split, a second one adds them in a fixed order.
"""

from __future__ import annotations

import struct
from math import ceil
from typing import Any

from ..dimensions.declarations import declarations
from ..dimensions.specification import Parameter, Specification
from .banded_weight_gradient_configuration import BandedWeightGradient, shared_bytes
from .divisor import packed as packed_divisor
from .forward import HALVES, kernel_text
from .launch import View, tensor_map
from .problem import ConvolutionProblem

NAME = "banded_weight_gradient"


def source(problem: ConvolutionProblem, cut: BandedWeightGradient) -> str:
    """The CUDA source. Problems that differ in extents, padding and channels alone share one."""
    numbers = {
        "R": problem.r,
        "S": problem.s,
        "OCTETS": cut.octets,
        "IMAGES": cut.images,
        "EIGHTS": cut.eights,
        "PAIRS": cut.pairs,
        "STAGES": cut.stages,
        "RESIDENTS": cut.residents,
        "TOGETHER": cut.together,
        "SHARED_BYTES": shared_bytes(cut),
    }
    half = HALVES[problem.dtype]
    parameters = tuple(Parameter(name, value) for name, value in numbers.items())
    lines = [f"namespace spec {{ using Half = {half}; }}", f"namespace tapestry::parameters {{ using Half = {half}; }}"]
    includes = [f"#include <tapestry/{name}.cuh>" for name in ("async", "divisor", "mma", "numeric")]
    declared = declarations(Specification("spec", (), parameters=parameters))
    texts = [kernel_text("banded_weight_gradient.cu"), kernel_text("fold_splits.cu")]
    return "\n".join([*includes, declared, *lines, "using namespace tapestry;", *texts])


def grid(problem: ConvolutionProblem, cut: BandedWeightGradient) -> tuple[int, int]:
    """Blocks of channels, and splits."""
    return ceil(problem.c / cut.channels), cut.splits


def items(problem: ConvolutionProblem, cut: BandedWeightGradient) -> tuple[int, int, int]:
    """Image blocks, column tiles and row chunks: what the splits share out."""
    return ceil(problem.n / cut.images), ceil(problem.q / (8 * cut.eights)), ceil(problem.p / cut.chunk)


def arguments(
    problem: ConvolutionProblem, cut: BandedWeightGradient, x: View, dy: View, partials: int
) -> tuple[Any, ...]:
    """Maps of x and dy, and `Pass` of banded_weight_gradient.cu."""
    images, tiles, chunks = items(problem, cut)
    groups = ceil((cut.chunk + problem.r - 1) / cut.rows)
    extents = (problem.c, problem.p, problem.padding[0], problem.padding[2])
    numbers = (*extents, cut.chunk, images * tiles * chunks, cut.splits)
    divisors = b"".join(map(packed_divisor, (groups, tiles, chunks)))
    boxes = ((cut.images, cut.rows, 8 * (cut.eights + 1)), (cut.images, cut.rows, 8 * cut.eights))
    maps = [tensor_map(view, box, cut.channels) for view, box in zip((x, dy), boxes, strict=True)]
    return (*maps, struct.pack("<q", partials) + struct.pack("<7i", *numbers) + divisors)
