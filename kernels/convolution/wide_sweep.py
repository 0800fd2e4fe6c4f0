"""A forward pass or an input gradient as wide_forward.cu walks it: one sweep over the input for each kind of output.

In a strided input gradient the outputs fall into parities, each with its own taps of the filter:

    dx[y] = sum over r with y = p * stride + r * dilation - top of dy[p] * w[r]

so that with y = stride * i + a outputs of parity a meet every few taps, at p = i + (a + top - r * dilation) / stride.
Every parity of rows and columns may be a sweep of stride 1 over dy, whose outputs lie `stride` apart in dx. Or all of
them are one, whose positions are cells of `stride` outputs each way over one window (input_gradient.py), so that dy is
read once; products are with zeros where an output of a cell meets no tap, unless each output has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from math import gcd
from typing import Literal

from .input_gradient import walk
from .launch import Every, TapLine, View
from .problem import ConvolutionProblem


@dataclass(frozen=True)
class Line:
    """One direction of a sweep: inputs and outputs, the window over them, and the taps of the `stored` filter in it.

    Output i sees input i * stride + t * dilation - before at place t of the window, under tap first + t * step. Without
    taps (0) the outputs are zero. Where a position is a `cell` of several outputs, output a of cell i meets the tap
    (first + t * step + a * skew) / unit there, if there is one.
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
    cell: int = 1
    skew: int = 0
    unit: int = 1

    @property
    def cells(self) -> int:
        """Positions that are computed."""
        return -(-self.outputs // self.cell)

    @property
    def brought(self) -> range:
        """The stored taps that may be met."""
        if self.cell > 1:
            return range(self.stored)
        ends = (self.first, self.first + (self.taps - 1) * self.step)
        return range(min(ends), max(ends) + 1, abs(self.step))

    def tap(self, output: int, place: int) -> int | None:
        """The stored tap that an output of a cell meets at a place of the window, if there is one."""
        return TapLine(self.stored, self.first, self.step, self.skew, self.unit).tap(output, place)


@cache
def together(read: int, written: int) -> int:
    """Groups whose channels, read and written, are multiples of 8."""
    return max(8 // gcd(8, read), 8 // gcd(8, written))


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

    @cached_property
    def together(self) -> int:
        """Groups that are one of the kernel's."""
        return together(self.read, self.written)

    @cached_property
    def octets(self) -> tuple[int, int]:
        """Octets that a group of the kernel, which is `together` groups, reads and writes, for a position each."""
        cells = self.rows.cell * self.columns.cell
        return self.together * self.read // 8, self.together * self.written // 8 * cells


@dataclass(frozen=True)
class Part:
    """A sweep and the rows and columns of the whole output that it writes."""

    sweep: Sweep
    rows: Every
    columns: Every

    def of(self, output: View) -> View:
        """What it writes, as a tensor."""
        return output.every(self.rows, self.columns)


def ways(problem: ConvolutionProblem, what: Literal["forward", "input_gradient"]) -> tuple[tuple[Part, ...], ...]:
    """The ways to compute a pass: one sweep, or for a strided input gradient also one for every parity."""
    width, out = problem.width, problem.width_out
    if what == "forward":
        rows = _plain(problem.h, problem.p, problem.r, problem.stride[0], problem.dilation[0], problem.padding[0])
        columns = _plain(problem.w, problem.q, problem.s, problem.stride[1], problem.dilation[1], problem.padding[2])
        sweep = Sweep(problem.n, rows, columns, problem.groups, width, out, False, problem.dtype)
        return ((Part(sweep, Every(), Every()),),)
    whole, taps = walk(problem).problem, walk(problem).taps
    rows = _cells(problem.h, whole.h, whole.r, whole.cell[0], whole.dilation[0], whole.padding[0], taps.rows)
    columns = _cells(problem.w, whole.w, whole.s, whole.cell[1], whole.dilation[1], whole.padding[2], taps.columns)
    sweep = Sweep(problem.n, rows, columns, problem.groups, out, width, True, problem.dtype)
    at_once = (Part(sweep, Every(), Every()),)
    return (at_once,) if problem.stride == (1, 1) else (at_once, _parities(problem))


def _parities(problem: ConvolutionProblem) -> tuple[Part, ...]:
    """An input gradient as a sweep for every parity of rows and columns."""
    found = []
    for a, b in product(*map(range, problem.stride)):
        if a >= problem.h or b >= problem.w:
            continue
        rows = _turned(problem.h, problem.p, problem.r, problem.stride[0], problem.dilation[0], problem.padding[0], a)
        columns = _turned(
            problem.w, problem.q, problem.s, problem.stride[1], problem.dilation[1], problem.padding[2], b
        )
        sweep = Sweep(problem.n, rows, columns, problem.groups, problem.width_out, problem.width, True, problem.dtype)
        found.append(Part(sweep, Every(problem.stride[0], a), Every(problem.stride[1], b)))
    return tuple(found)


def _cells(extent: int, inputs: int, places: int, cell: int, gap: int, before: int, taps: TapLine) -> Line:
    """The outputs of `extent` elements of dx by cells, over `inputs` elements of dy."""
    return Line(inputs, extent, taps.stored, places, taps.first, taps.step, 1, gap, before, cell, taps.skew, taps.unit)


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
