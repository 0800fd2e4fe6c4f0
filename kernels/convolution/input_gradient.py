"""The input gradient as forward convolutions over dy: one with flipped taps for stride 1, one a residue for stride 2.

    dx[y] = sum over r with y = p * stride + r * dilation - top of dy[p] * w[r]

Rows y = stride * m + a of one residue a see the taps r = r0 + t * i, t = stride / gcd(stride, dilation), alone, and

    p = m + (a + top - r0 * dilation) / stride - i * (t * dilation / stride)

which is a convolution of stride 1 over dy, its taps in reverse. Rows and columns are cut independently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from .launch import Taps, View
from .problem import ConvolutionProblem


@dataclass(frozen=True)
class Line:
    """One residue along one direction: which outputs, which stored taps, and the convolution of stride 1 that it is.

    Outputs `first`, `first + step`, ..., `count` of them; stored taps `tap`, `tap + tap_step`, ..., `taps` of them.
    """

    first: int
    step: int
    count: int
    taps: int
    tap: int
    tap_step: int
    dilation: int
    before: int
    after: int


@dataclass(frozen=True)
class Phase:
    """A part of the gradient: the convolution the forward kernel walks over dy, its taps, and where dx it writes."""

    problem: ConvolutionProblem
    taps: Taps
    rows: Line
    columns: Line

    def output(self, dx: View) -> View:
        """The part of dx, as a tensor."""
        image, row, column = dx.strides
        n, _, _, c = dx.shape
        start = dx.pointer + 2 * (self.rows.first * row + self.columns.first * column)
        strides = (image, self.rows.step * row, self.columns.step * column)
        return replace(dx, pointer=start, shape=(n, self.rows.count, self.columns.count, c), strides=strides)


@lru_cache(maxsize=4096)
def phases(problem: ConvolutionProblem) -> tuple[Phase, ...]:
    """The parts of the input gradient of `problem`, in order. Elements of dx that are in none of them are zero."""
    top, bottom, left, right = problem.padding
    del bottom, right  # what they add is never read back
    rows = _lines(problem.h, problem.p, problem.r, problem.stride[0], problem.dilation[0], top)
    columns = _lines(problem.w, problem.q, problem.s, problem.stride[1], problem.dilation[1], left)
    return tuple(_phase(problem, row, column) for row in rows for column in columns)


def complete(problem: ConvolutionProblem) -> bool:
    """Whether the phases write every element of dx."""
    return sum(phase.rows.count * phase.columns.count for phase in phases(problem)) == problem.h * problem.w


def _phase(problem: ConvolutionProblem, rows: Line, columns: Line) -> Phase:
    walked = ConvolutionProblem(
        problem.n,
        problem.p,
        problem.q,
        problem.c,
        problem.groups,
        rows.taps,
        columns.taps,
        dilation=(rows.dilation, columns.dilation),
        padding=(rows.before, rows.after, columns.before, columns.after),
        dtype=problem.dtype,
    )
    taps = Taps(problem.r, problem.s, rows.tap, rows.tap_step, columns.tap, columns.tap_step)
    return Phase(walked, taps, rows, columns)


def _lines(extent: int, outputs: int, taps: int, stride: int, dilation: int, before: int) -> list[Line]:
    """The residues that have both elements and taps."""
    step = stride // gcd(stride, dilation)
    found = []
    for residue in range(min(stride, extent)):
        first = next((r for r in range(min(step, taps)) if (residue + before - r * dilation) % stride == 0), None)
        if first is None:
            continue
        seen = len(range(first, taps, step))
        count = len(range(residue, extent, stride))
        ahead = (residue + before - first * dilation) // stride
        reach = (seen - 1) * (step * dilation // stride)
        # count == outputs + before' + after' - reach
        sides = (reach - ahead, count - outputs + ahead)
        last = first + step * (seen - 1)
        # A single tap has no distance to its neighbour.
        gap = step * dilation // stride if seen > 1 else 1
        found.append(Line(residue, stride, count, seen, last, -step, gap, *sides))
    return found
