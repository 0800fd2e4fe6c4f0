"""A forward pass or an input gradient as wide_forward.cu walks it: one sweep over the input for each kind of output.

In a strided input gradient the outputs fall into parities, each with its own taps of the filter:

    dx[y] = sum over r with y = p * stride + r * dilation - top of dy[p] * w[r]

so that with y = stride * i + a outputs of parity a meet every few taps, at p = i + (a + top - r * dilation) / stride.
Every parity of rows and columns is a sweep of stride 1 over dy, whose outputs lie `stride` apart in dx.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Literal

from .launch import Every, View
from .problem import ConvolutionProblem


@dataclass(frozen=True)
class Line:
    """One direction of a sweep: inputs and outputs, the window over them, and the taps of the `stored` filter in it.

    Output i sees input i * stride + t * dilation - before at place t of the window, under tap first + t * step. Without
    taps (0) the outputs are zero.
    """

    inputs: int
    outputs: int
    stored: int
    taps: int
    first: int
    step: int
    stride: int
    dilation: int
    before: int


@dataclass(frozen=True)
class Sweep:
    """What one launch computes: `n` images, lines of rows and columns, groups that read and write so many channels."""

    n: int
    rows: Line
    columns: Line
    groups: int
    read: int
    written: int
    transposed: bool
    dtype: str

    @property
    def empty(self) -> bool:
        """Whether the outputs meet no tap: they are zero."""
        return self.rows.taps == 0 or self.columns.taps == 0


@dataclass(frozen=True)
class Part:
    """A sweep and the rows and columns of the whole output that it writes."""

    sweep: Sweep
    rows: Every
    columns: Every

    def of(self, output: View) -> View:
        """What it writes, as a tensor."""
        (n, h, w, c), (image, row, column) = output.shape, output.strides
        start = output.pointer + 2 * (self.rows.first * row + self.columns.first * column)
        strides = (image, self.rows.step * row, self.columns.step * column)
        return View(start, (n, self.rows.of(h), self.columns.of(w), c), strides, output.dtype)


def parts(problem: ConvolutionProblem, what: Literal["forward", "input_gradient"]) -> tuple[Part, ...]:
    """The sweeps of a pass: one, or in a strided input gradient one for every parity of rows and columns."""
    width, out = problem.width, problem.width_out
    if what == "forward":
        rows = _plain(problem.h, problem.p, problem.r, problem.stride[0], problem.dilation[0], problem.padding[0])
        columns = _plain(problem.w, problem.q, problem.s, problem.stride[1], problem.dilation[1], problem.padding[2])
        return (
            Part(Sweep(problem.n, rows, columns, problem.groups, width, out, False, problem.dtype), Every(), Every()),
        )
    found = []
    for a, b in product(*map(range, problem.stride)):
        if a >= problem.h or b >= problem.w:
            continue
        rows = _turned(problem.h, problem.p, problem.r, problem.stride[0], problem.dilation[0], problem.padding[0], a)
        columns = _turned(
            problem.w, problem.q, problem.s, problem.stride[1], problem.dilation[1], problem.padding[2], b
        )
        sweep = Sweep(problem.n, rows, columns, problem.groups, out, width, True, problem.dtype)
        found.append(Part(sweep, Every(problem.stride[0], a), Every(problem.stride[1], b)))
    return tuple(found)


def _plain(inputs: int, outputs: int, taps: int, stride: int, dilation: int, before: int) -> Line:
    return Line(inputs, outputs, taps, taps, 0, 1, stride, dilation, before)


def _turned(extent: int, inputs: int, taps: int, stride: int, dilation: int, before: int, parity: int) -> Line:
    """The outputs of a parity among `extent` elements of dx, over `inputs` elements of dy."""
    met = [r for r in range(taps) if (parity + before - r * dilation) % stride == 0]
    outputs = Every(stride, parity).of(extent)
    if not met:
        return Line(inputs, outputs, taps, 0, 0, 1, 1, 1, 0)
    step = stride // gcd(dilation, stride)  # of the taps that are met
    last = met[-1]
    gap = step * dilation // stride
    return Line(inputs, outputs, taps, len(met), last, -step, 1, gap, -((parity + before - last * dilation) // stride))
