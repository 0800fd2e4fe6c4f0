"""The plain kernel: a convolution or an input gradient of tensors that the copy engine cannot fetch.

It takes any strides and alignment of whole elements, with dense channels, and any number of channels. It is correct for
everything, and slow.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from ..dimensions.declarations import declarations
from ..dimensions.specification import Dimension, Parameter, Specification
from .forward import kernel_text
from .launch import Rows, View
from .problem import ConvolutionProblem

NAME = "direct"
THREADS = 256
DIMENSIONS = ("N", "Y", "X", "C", "P", "Q", "K", "TapY", "TapX", "Outer", "Inner")
COLUMNS = 4  # neighbouring output columns of a thread
TYPES = {"f16": "tapestry::f16", "bf16": "tapestry::bf16"}


@dataclass(frozen=True)
class DirectLaunch:
    """Grid, block and the one argument, a structure of bytes."""

    grid: int
    block: int
    argument: bytes


def source(
    problem: ConvolutionProblem,
    *,
    transposed: bool = False,
    scale: bool = False,
    bias: bool = False,
    residual: bool = False,
    activation: str | None = None,
) -> str:
    """The CUDA source. Problems that differ in extents and padding alone share one."""
    numbers = {
        "READ": problem.width_out if transposed else problem.width,
        "WRITTEN": problem.width if transposed else problem.width_out,
        "INNER": problem.width,
        "R": problem.r,
        "S": problem.s,
        "STRIDE_Y": problem.stride[0],
        "STRIDE_X": problem.stride[1],
        "DILATION_Y": problem.dilation[0],
        "DILATION_X": problem.dilation[1],
        "COLUMNS": COLUMNS,
    }
    flags = {"TRANSPOSED": transposed, "SCALE": scale, "BIAS": bias, "RESIDUAL": residual}
    parameters = tuple(Parameter(name, value) for name, value in {**numbers, **flags}.items())
    declared = declarations(Specification("spec", tuple(map(Dimension, DIMENSIONS)), parameters=parameters))
    lines = [f"constexpr tapestry::Activation ACTIVATION = tapestry::Activation::{activation or 'none'};"]
    lines += [f"using Half = {TYPES[problem.dtype]};"]
    includes = [f"#include <tapestry/{name}.cuh>" for name in ("epilogue", "scalar")]
    return "\n".join([*includes, declared, "namespace spec {", *lines, "}", kernel_text("direct.cu")])


def launch(
    problem: ConvolutionProblem,
    rows: Rows,
    inputs: tuple[View, View, View],
    output: View,
    residual: View | None,
    pointers: tuple[int, int, int],
) -> DirectLaunch:
    """The launch for the output rows `rows` of a pass.

    `problem` is the convolution's own, for the input gradient too: then the middle input is dy and the output dx.
    `inputs` are the upper halo, the middle and the lower halo; `pointers` the weights, scale and bias (0 for none).
    """
    n, height, width, _ = inputs[1].shape
    columns, count = output.shape[2], rows.end - rows.begin
    tensors = [number for view in (*inputs, output, residual or output) for number in (view.pointer, *view.strides)]
    ints = (
        n, output.shape[3], rows.above, height, rows.below, width, rows.begin, count, columns,
        problem.padding[0], problem.padding[2], 0,
    )  # fmt: skip
    threads = n * count * -(-columns // COLUMNS) * output.shape[3]
    return DirectLaunch(-(-threads // THREADS), THREADS, struct.pack("<20q3q12i", *tensors, *pointers, *ints))
