"""The plain weight gradient: for tensors whose strides or addresses the copy engine does not take, and any channels.

A block of threads adds up one filter tap of `lanes` output channels: its threads are `slots` positions at a time of so
many channels. Where few turns suffice one block walks all positions and writes the gradient itself.
"""

from __future__ import annotations

import struct
from typing import Any

from .launch import View
from .problem import ConvolutionProblem

FOLD_THREADS = 256  # of direct_weight_gradient.cu
WARP = 32
LANES = (4, 8, 16, 32)
EXCHANGED = 8192  # sums of all warps that shared memory holds
FEW_TURNS, FEWEST_TURNS, MOST_SPLITS = 32, 4, 64


def lanes(problem: ConvolutionProblem, sms: int = 132) -> int:
    """Output channels of a block: few where that makes no more blocks than two for each multiprocessor."""
    fitting = (size for size in LANES if -(-problem.c // size) * problem.r * problem.s <= 2 * sms)
    return next(fitting, LANES[-1])


def warps(problem: ConvolutionProblem) -> int:
    """Warps of a block: as many as can exchange their sums, [warp][c / groups][lane]."""
    return min(WARP, EXCHANGED // (problem.width * LANES[-1]))


def sizes(problem: ConvolutionProblem) -> dict[str, int]:
    """The kernel's constants beside those of the problem."""
    return {"lanes": lanes(problem), "warps": warps(problem)}


def splits(problem: ConvolutionProblem, sms: int) -> int:
    """Ranges of positions walked by blocks of their own."""
    slots = warps(problem) * WARP // lanes(problem)
    turns = -(-problem.n * problem.p * problem.q // slots)
    if turns <= FEW_TURNS:
        return 1
    blocks = -(-problem.c // lanes(problem)) * problem.r * problem.s
    return max(1, min(MOST_SPLITS, 4 * sms // blocks, turns // FEWEST_TURNS))


def grid(problem: ConvolutionProblem, splits: int) -> tuple[int, int, int]:
    """Blocks of channels, taps, splits."""
    return -(-problem.c // lanes(problem)), problem.r * problem.s, splits


def block(problem: ConvolutionProblem) -> tuple[int]:
    """Threads."""
    return (WARP * warps(problem),)


def arguments(problem: ConvolutionProblem, x: View, dy: View, target: int) -> tuple[Any, ...]:
    """x, dy, where the sums go, and the extents and strides in elements."""
    top, _, left, _ = problem.padding
    numbers = (problem.h, problem.w, problem.p, problem.q, problem.n, problem.c, top, left)
    return x.pointer, dy.pointer, target, struct.pack("<8i6q", *numbers, *x.strides, *dy.strides)
