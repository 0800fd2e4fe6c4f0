"""The input gradient as one forward convolution over dy, of stride 1, whatever stride the convolution has.

    dx[y] = sum over r with y = p * stride + r * dilation - top of dy[p] * w[r]

Outputs y are walked in cells of `stride`: with y = stride * i + a,

    p = i + (a + top - r * dilation) / stride    where that is whole

so that all outputs of a cell read one window of dy around row i, each parity a its own taps there. The window is half
as long as the filter, rounded up, and for some even filters one more: cells that begin one output early would spare
that, but the copy engine takes no negative coordinates where it stores. Rows and columns are walked alike. Outputs
that no window touches meet no tap, and are written as zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd

from .launch import TapLine, Taps, Walk
from .problem import ConvolutionProblem


@dataclass(frozen=True)
class _Line:
    """One direction of a walk: its window over dy, with `padding` before and after, and the taps in it."""

    places: int
    gap: int
    padding: tuple[int, int]
    taps: TapLine


@lru_cache(maxsize=4096)
def walk(problem: ConvolutionProblem) -> Walk:
    """The input gradient of `problem`: its cells are as large as the stride, and cover dx."""
    top, _, left, _ = problem.padding  # what the other sides add is never read back
    rows = _line(problem.h, problem.p, problem.r, problem.stride[0], problem.dilation[0], top)
    columns = _line(problem.w, problem.q, problem.s, problem.stride[1], problem.dilation[1], left)
    walked = ConvolutionProblem(
        problem.n,
        problem.p,
        problem.q,
        problem.k,
        problem.groups,
        rows.places,
        columns.places,
        dilation=(rows.gap, columns.gap),
        padding=(*rows.padding, *columns.padding),
        dtype=problem.dtype,
        cell=problem.stride,
        channels_out=problem.c,
        taps=None if problem.stride == (1, 1) else (problem.r, problem.s),
    )
    return Walk(walked, Taps(rows.taps, columns.taps))


def _line(extent: int, inputs: int, taps: int, stride: int, dilation: int, before: int) -> _Line:
    """The walk of `extent` elements of dx over `inputs` elements of dy."""

    numerators = [a + before - r * dilation for a in range(stride) for r in range(taps)]
    read = [number // stride for number in numerators if number % stride == 0]  # by the cell i = 0
    first, last = min(read), max(read)
    gap = dilation // gcd(dilation, stride) if last > first else 1  # one place has no distance to its neighbour
    cells = ceil(extent / stride)
    # Place t reads p = i + first + t * gap, under tap (a + before - stride * (p - i)) / dilation.
    numbers = (before - stride * first, -stride * gap, 1 if stride > 1 else 0, dilation)
    common = gcd(*numbers)
    start, step, skew, unit = (number // common for number in numbers)
    # cells == inputs + before' + after' - (last - first)
    padding = (-first, cells - inputs + last)
    return _Line((last - first) // gap + 1, gap, padding, TapLine(taps, start, step, skew, unit))
