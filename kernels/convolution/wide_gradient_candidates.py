"""The cuts of a weight gradient of wide groups that are worth trying, the best guess first.

The guess counts clocks as that of the forward kernel does (wide_candidates.py), and what the sums of all splits cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

from ..cost.gpu import Gpu, fitted
from .problem import ConvolutionProblem
from .wide_candidates import MOST_WARPGROUPS, ranked
from .wide_weight_gradient import BATCH, TILE_OCTETS, WideGradientCut, WideWeightGradient, legal

RINGS = (30 << 10, 60 << 10)  # bytes of x asked for ahead in one multiprocessor


@dataclass(frozen=True)
class WideGradientFit:
    """The constants of the guess; `data/gpus.json` says what each is and where it comes from."""

    row_clocks: float
    batch_clocks: float
    start_clocks: float


FIT = fitted(WideGradientFit, "wide_weight_gradient")


def configurations(problem: ConvolutionProblem, gpu: Gpu) -> list[WideWeightGradient]:
    """Legal cuts, the analytic best guess first. Empty where the kernel cannot run."""
    return ranked(_all(problem, gpu), lambda cut: clocks(WideGradientCut(problem, cut), gpu))


def _all(problem: ConvolutionProblem, gpu: Gpu) -> Iterator[WideWeightGradient]:
    for blocks in (1, 2, 3, 4):
        for count, parts, tiles in _channels(problem):
            for images, units in _positions(problem):
                for ring in RINGS:
                    cut = WideWeightGradient(count, parts, tiles, images, units, 2, blocks, 1)
                    stages = max(2, min(12, ring // blocks // WideGradientCut(problem, cut).x_bytes))
                    found = WideGradientCut(problem, replace(cut, stages=stages))
                    splits = max(1, min(found.work, gpu.sms * blocks // found.channel_blocks))
                    cut = replace(cut, stages=stages, splits=splits)
                    if legal(WideGradientCut(problem, cut), gpu.shared_per_block):
                        yield cut


def _channels(problem: ConvolutionProblem) -> Iterator[tuple[int, int, int]]:
    """Groups a block, parts of the channels of dy, and tiles of filter columns and channels of x."""
    cut = WideGradientCut(problem, WideWeightGradient(1, 1, 1, 1, 1, 2, 1, 1))
    tiles = ceil(problem.s * cut.octets / TILE_OCTETS)
    for count in range(1, min(cut.groups, MOST_WARPGROUPS) + 1):
        if count * tiles <= MOST_WARPGROUPS:
            yield count, 1, tiles
    for parts in range(1, min(cut.octets_out, 4) + 1):
        for own in range(1, min(tiles, MOST_WARPGROUPS) + 1):
            if parts > 1 or own < tiles:
                yield 1, parts, own


def _positions(problem: ConvolutionProblem) -> Iterator[tuple[int, int]]:
    """Images x units of eight columns: 64 to 256 positions."""
    whole = ceil(problem.q / 8)
    for positions in (8, 16, 32):
        for images in (1, 2, 4, 8, 16, 32):
            units = positions // images
            if units and (images == 1 or units >= whole) and units < whole + 8 and images < 2 * max(1, problem.n):
                yield images, units
    if whole % 2 == 0:
        yield 1, whole


def clocks(cut: WideGradientCut, gpu: Gpu) -> float:
    """Estimated clocks of both launches."""
    problem, chosen = cut.problem, cut.configuration
    blocks = cut.channel_blocks * chosen.splits
    resident = min(float(chosen.blocks), max(1.0, blocks / gpu.sms))
    waves = ceil(blocks / (gpu.sms * chosen.blocks))
    rows = ceil(cut.work / chosen.splits)
    steps = rows * problem.stride[0] + ceil(rows / problem.p) * min(1, max(0, problem.padding[0]))
    depth = chosen.images * chosen.units / 2
    products = depth * problem.r / problem.stride[0]
    tensor = cut.warpgroups * products * 4 * cut.written
    shared = cut.warpgroups * (16 * depth + products * 2 * cut.written)
    chain = FIT.row_clocks + FIT.batch_clocks * depth / BATCH + products * 4 * cut.written
    per_clock = gpu.copy_bytes_per_s / gpu.sms / gpu.sustained_clock_hz
    columns = min(cut.columns, problem.w)
    loaded = chosen.images * (
        columns * cut.pitch * 16 + min(problem.q, 8 * chosen.units) * 16 * cut.written / problem.stride[0]
    )
    bounds = (loaded / per_clock * resident, tensor * resident, shared * resident, chain)
    step: float = sum(bound**4 for bound in bounds) ** 0.25
    fold = 8 * problem.weight_elements * chosen.splits / gpu.sms / per_clock
    return FIT.start_clocks + waves * steps * step + fold
