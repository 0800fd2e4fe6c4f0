"""The forward pass as the kernel walks it: over the rows and columns of the input that its windows meet.

With stride 2 and one tap along a direction, or stride and dilation 2, windows meet every second row (or column) of the
input alone. That is a convolution of half the stride and dilation over a view of the input, so that what lies between
is neither loaded nor multiplied.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import NamedTuple

from .launch import ALL, Every, Taps, Walk
from .problem import ConvolutionProblem


class _Line(NamedTuple):
    """One direction of a walk: which elements it reads, how many there are, and the convolution over them."""

    read: Every
    extent: int
    stride: int
    dilation: int
    padding: tuple[int, int]


@lru_cache(maxsize=4096)
def walk(problem: ConvolutionProblem) -> Walk:
    """The forward pass of `problem`."""
    top, bottom, left, right = problem.padding
    rows = _line(problem.h, problem.p, problem.r, problem.stride[0], problem.dilation[0], (top, bottom))
    columns = _line(problem.w, problem.q, problem.s, problem.stride[1], problem.dilation[1], (left, right))
    walked = ConvolutionProblem(
        problem.n,
        rows.extent,
        columns.extent,
        problem.c,
        problem.groups,
        problem.r,
        problem.s,
        stride=(rows.stride, columns.stride),
        dilation=(rows.dilation, columns.dilation),
        padding=(*rows.padding, *columns.padding),
        dtype=problem.dtype,
        channels_out=problem.channels_out,
    )
    return Walk(walked, Taps.plain(problem.r, problem.s), rows.read, columns.read)


def _line(extent: int, outputs: int, taps: int, stride: int, dilation: int, padding: tuple[int, int]) -> _Line:
    """Inputs are read at p * stride + r * dilation - before: multiples of `step` from `first` on."""
    step = stride if taps == 1 else gcd(stride, dilation)
    first = -padding[0] % step
    if step == 1 or first >= extent:
        return _Line(ALL, extent, stride, dilation, padding)
    met, before = -(-(extent - first) // step), (padding[0] + first) // step
    stride, dilation = stride // step, dilation // step if taps > 1 else 1
    reach = (outputs - 1) * stride + (taps - 1) * dilation + 1
    return _Line(Every(step, first), met, stride, dilation, (before, reach - before - met))
