"""How a forward convolution is cut over a GPU: the choices, what they cost, and which of them are legal.

The numbers a configuration implies (shared memory, threads, boxes) are computed here once, by the same formulas as
in forward.cu, and asserted there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from .problem import ConvolutionProblem

KIB = 1024
SERVICE_WARPS = 2
MAX_BOX = 256  # positions in one direction of a box
BARRIER_BYTES = 8
REGISTERS = 65536
REGISTER_ROOM = 36  # addresses, counters, fragments in flight: beside accumulators and weights


@dataclass(frozen=True)
class ForwardConfiguration:
    """One way to cut a forward convolution (or an input gradient).

    A block owns `channels` channels; a run is `images` images x 8 * `units` output columns x some rows. A
    warp computes `tiles` pairs of 8-position units of `octets` x 8 channels. `stages` ring slots of `stage_rows` input
    rows arrive ahead, `out_stages` rows leave behind; `blocks` blocks share a multiprocessor.
    """

    channels: int = 64
    images: int = 1
    units: int = 8
    tiles: int = 4
    octets: int = 1
    stages: int = 8
    stage_rows: int = 1
    out_stages: int = 3
    blocks: int = 1
    chunk: int = 16
    dynamic: bool = False


@dataclass(frozen=True)
class Footprint:
    """What a configuration of a problem takes: threads, shared bytes, box extents, and an estimate of registers."""

    threads: int
    shared: int
    box_x: int
    row_bytes: int
    registers: int


def group_block(problem: ConvolutionProblem) -> int:
    """Channels the tensor cores see as one group: narrow groups run side by side, eight channels at a time."""
    return max(8, problem.width)


def footprint(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Footprint:
    """Threads, shared memory and registers of `cut`: the formulas of forward.cu."""
    pixel, box_x = cut.channels * 2, _box_x(problem, cut)
    warps_positions = ceil(cut.images * cut.units / (2 * cut.tiles))
    row = cut.images * box_x * pixel
    out = warps_positions * 2 * cut.tiles * 8 * pixel
    ring = cut.stages * cut.stage_rows * _align(row) + cut.out_stages * _align(out)
    barriers = 2 * (cut.stages + cut.out_stages) * BARRIER_BYTES
    warps = cut.channels // (8 * cut.octets) * warps_positions
    return Footprint((warps + SERVICE_WARPS) * 32, ring + barriers, box_x, row, _registers(problem, cut))


def _align(size: int) -> int:
    return ceil(size / KIB) * KIB


def _box_x(problem: ConvolutionProblem, cut: ForwardConfiguration) -> int:
    return (cut.units * 8 - 1) * problem.stride[1] + (problem.s - 1) * problem.dilation[1] + 1


def _registers(problem: ConvolutionProblem, cut: ForwardConfiguration) -> int:
    span = (problem.r - 1) * problem.dilation[0] + 1
    accumulators = ceil(span / problem.stride[0]) * cut.tiles * cut.octets * 4
    weights = cut.octets * problem.r * problem.s * (group_block(problem) // 8)
    return accumulators + weights + REGISTER_ROOM
