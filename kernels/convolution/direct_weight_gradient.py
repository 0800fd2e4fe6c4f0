"""The plain weight gradient: for tensors whose strides or addresses the copy engine does not take, and any channels.

A block of threads adds up one filter tap of `lanes` output channels: its threads are `slots` positions at a time of so
many channels. Where few turns suffice one block walks all positions and writes the gradient itself.
"""

from __future__ import annotations

import struct
from typing import Any

from ..cost.gpu import tuned_gpu
from .divisor import packed as divisor
from .launch import View
from .problem import ConvolutionProblem

FOLD_THREADS = 256  # of direct_weight_gradient.cu
WARP = 32
LANES = (4, 8, 16, 32)
EXCHANGED = 8192  # sums of all warps that shared memory holds
FEW_TURNS, FEWEST_TURNS, MOST_SPLITS = 32, 4, 64


def lanes(problem: ConvolutionProblem) -> int:
    """Output channels of a block: few where that makes no more blocks than two for each multiprocessor.

    Of the GPU the kernels were tuned on, so that the source follows from the problem alone.
    """
    fitting = (size for size in LANES if -(-problem.k // size) * problem.r * problem.s <= 2 * tuned_gpu().sms)
    return next(fitting, LANES[-1])


def warps(problem: ConvolutionProblem) -> int:
    """Warps of a block: as many as can exchange their sums, [warp][c / groups][lane]."""
    return min(WARP, EXCHANGED // (problem.width * LANES[-1]))


def sizes(problem: ConvolutionProblem) -> dict[str, int]:
    """The kernel's constants beside those of the problem."""
    return {"lanes": lanes(problem), "warps": warps(problem), "width_out": problem.width_out}


def slots(problem: ConvolutionProblem) -> int:
    """Positions side by side."""
    return warps(problem) * WARP // lanes(problem)


def splits(problem: ConvolutionProblem, sms: int) -> int:
    """Ranges of positions walked by blocks of their own."""
    turns = -(-problem.n * problem.p * problem.q // slots(problem))
    if turns <= FEW_TURNS:
        return 1
    blocks = -(-problem.k // lanes(problem)) * problem.r * problem.s
    return max(1, min(MOST_SPLITS, 4 * sms // blocks, turns // FEWEST_TURNS))


def grid(problem: ConvolutionProblem, splits: int) -> tuple[int, int, int]:
    """Blocks of channels, taps, splits."""
    return -(-problem.k // lanes(problem)), problem.r * problem.s, splits


def block(problem: ConvolutionProblem) -> tuple[int]:
    """Threads."""
    return (WARP * warps(problem),)


def arguments(problem: ConvolutionProblem, splits: int, x: View, dy: View, target: int) -> tuple[Any, ...]:
    """x, dy, where the sums go, and `Extents` of the kernel: strides in elements."""
    top, _, left, _ = problem.padding
    edges = struct.pack("<5i", problem.h, problem.w, problem.k, top, left)
    dealt = struct.pack("<2i", *divmod(problem.n * problem.p * problem.q, splits))
    rows, column = divmod(slots(problem), problem.q)
    step = struct.pack("<3i", *divmod(rows, problem.p), column)
    strides = struct.pack("<6q", *x.strides, *dy.strides)
    extents = b"".join([edges, dealt, divisor(problem.p), divisor(problem.q), step, strides])
    return x.pointer, dy.pointer, target, extents
