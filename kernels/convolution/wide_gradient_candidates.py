"""The cuts of a weight gradient of wide groups that are worth trying, the best guess first.

The guess counts clocks as that of the forward kernel does (wide_candidates.py), and what the sums of all splits cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil

from ..cost.gpu import Gpu, fitted
from .problem import ConvolutionProblem
from .stretches import evenest, rows_of_busiest
from .weight_gradient_configuration import MOST_RANKS
from .wide_candidates import ranked
from .wide_rows import octets_brought
from .wide_weight_gradient import BATCH, STEP, WideGradientCut, WideWeightGradient, legal

MOST_WARPGROUPS = 4  # of a block: with more, their sums take too many registers
RINGS = (60 << 10, 120 << 10)  # bytes of x asked for ahead in one multiprocessor
DEEPEST = 8  # rows of x under way: more bring nothing
SPARE, SPARE_OF_MANY, MANY = 2, 3, 5  # rows of dy under way, of filters of fewer rows and of so many
IMAGES = (1, 2, 4, 8, 16, 32)  # of a block's row


@dataclass(frozen=True)
class WideGradientFit:
    """The constants of the guess; `data/gpus.json` says what each is and where it comes from."""

    row_clocks: float
    batch_clocks: float
    product_clocks: float
    chained: float
    gathered_clocks: float
    memory: float
    line_bytes: float
    odd_bytes: float
    crowded: float
    fold: float
    start_clocks: float
    second_clocks: float
    cluster_clocks: float
    exchanged_bytes_per_clock: float


FIT = fitted(WideGradientFit, "wide_weight_gradient")


def configurations(problem: ConvolutionProblem, gpu: Gpu) -> list[WideWeightGradient]:
    """Legal cuts, the analytic best guess first. Empty where the kernel cannot run."""
    return ranked(_all(problem, gpu), lambda cut: clocks(WideGradientCut(problem, cut), gpu))


def _all(problem: ConvolutionProblem, gpu: Gpu) -> Iterator[WideWeightGradient]:
    spare = SPARE_OF_MANY if problem.r >= MANY else SPARE
    for blocks in (1, 2, 3, 4):
        for count, parts, x_parts in _channels(problem):
            for (images, columns), gathered in product(_positions(problem), (False, True)):
                shallow = WideWeightGradient(count, parts, x_parts, images, columns, 2, blocks, 1, spare=spare)
                held = WideGradientCut(problem, shallow).span - 1 if gathered else 0  # rows that others wait behind
                if gathered:
                    shallow = replace(shallow, stages=held + 2, gathered=True)
                least = WideGradientCut(problem, shallow)
                if not legal(least, gpu.shared_per_block):
                    continue  # nor is any with more rows, or in several splits
                most = max(1, min(least.work, gpu.sms * blocks // least.channel_blocks))
                splits, _ = evenest(least.work, problem.p, most, *_walked(problem))
                ranks = _ranks(least, min(most, MOST_RANKS), gpu)
                rings = (held + min(DEEPEST - held, ring // blocks // least.walked.size) for ring in RINGS)
                for stages in dict.fromkeys(max(shallow.stages, rows) for rows in rings):
                    cut = replace(shallow, stages=stages, splits=splits)
                    for way in (cut, replace(cut, splits=ranks, clustered=True)):
                        if legal(WideGradientCut(problem, way), gpu.shared_per_block):
                            yield way


def _walked(problem: ConvolutionProblem) -> tuple[int, int]:
    """Rows of x for each row of dy, and those that the windows of two neighbouring stretches share."""
    return problem.stride[0], max(0, (problem.r - 1) * problem.dilation[0] + 1 - problem.stride[0])


def _ranks(cut: WideGradientCut, most: int, gpu: Gpu) -> int:
    """Splits that are a cluster: as many as leave all clusters to run at once, each block alone on a multiprocessor."""
    fit = (ranks for ranks in range(most, 1, -1) if cut.channel_blocks <= gpu.clusters_of(ranks))
    return next(fit, 0) if cut.configuration.blocks == 1 else 0


def _channels(problem: ConvolutionProblem) -> Iterator[tuple[int, int, int]]:
    """Groups a block, parts of the channels of dy, and of those of x: those that leave no octet over, or few."""
    whole = WideGradientCut(problem, WideWeightGradient(1, 1, 1, 1, 1, 2, 1, 1))
    for count in range(1, min(whole.groups, MOST_WARPGROUPS) + 1):
        if count * whole.tiles <= MOST_WARPGROUPS:
            yield count, 1, 1
    for parts, x_parts in product(range(1, min(whole.octets_out, 4) + 1), range(1, min(whole.octets, 8) + 1)):
        cut = WideGradientCut(problem, WideWeightGradient(1, parts, x_parts, 1, 1, 2, 1, 1))
        whole_parts = (x_parts - 1) * cut.read < whole.octets and (parts - 1) * cut.written < whole.octets_out
        if parts * x_parts > 1 and whole_parts and cut.tiles <= MOST_WARPGROUPS:
            yield 1, parts, x_parts


def _positions(problem: ConvolutionProblem) -> Iterator[tuple[int, int]]:
    """Images x columns: 64 to 256 positions by units of eight columns, or 48 to 256 of images side by side with no
    column between them."""
    whole = ceil(problem.q / 8)
    for positions in (8, 16, 32):
        for images in IMAGES:
            units = positions // images
            if units and (images == 1 or units >= whole) and units < whole + 8 and images < 2 * max(1, problem.n):
                yield images, 8 * units
    if whole % 2 == 0:
        yield 1, 8 * whole
    for images in IMAGES:
        if 48 <= images * problem.q <= 256 and images < 2 * max(1, problem.n):
            yield images, problem.q


def clocks(cut: WideGradientCut, gpu: Gpu) -> float:
    """Estimated clocks of both launches, or of the one that a single split or a cluster takes."""
    problem, chosen = cut.problem, cut.configuration
    blocks = cut.channel_blocks * chosen.splits
    resident = min(float(chosen.blocks), max(1.0, blocks / gpu.sms))
    at_once = chosen.splits * gpu.clusters_of(chosen.splits) if chosen.clustered else gpu.sms
    waves = ceil(blocks / (at_once * chosen.blocks))
    steps = rows_of_busiest(cut.work, problem.p, chosen.splits, *_walked(problem))
    depth = cut.positions / STEP
    own = depth * max(FIT.product_clocks, 4 * cut.written) / problem.stride[0]  # of one filter row
    taps = depth * problem.r / problem.stride[0]
    products = own * problem.r
    loads = 16 * depth
    shared = loads + taps * 2 * cut.written
    chain = FIT.row_clocks + FIT.batch_clocks * depth / BATCH + products * FIT.chained
    per_clock = gpu.copy_bytes_per_s / gpu.sms / gpu.sustained_clock_hz
    octets, octets_out = octets_brought(cut.octets_met), cut.written * chosen.groups
    line_in, line_out = (16 * count + count % 2 * FIT.odd_bytes for count in (octets, octets_out))
    loaded = cut.walked.inside(problem.w) * (line_in + FIT.line_bytes)
    loaded += chosen.images * min(problem.q, chosen.columns) * (line_out + FIT.line_bytes) / problem.stride[0]
    inside = cut.warpgroups * max(products, shared)
    if chosen.gathered:
        # Each of its products has loads of its own.
        one = max(own, (loads + depth * 2 * cut.written) / problem.stride[0])
        inside -= chosen.groups * (max(products, shared) - cut.gathered * one)
        chain += FIT.gathered_clocks
    bounds = (loaded / per_clock * FIT.memory * resident, inside * resident, chain)
    step: float = sum(bound**3 for bound in bounds) ** (1 / 3) * (1 + FIT.crowded * (chosen.blocks - 1))
    fold = FIT.fold * 8 * problem.weight_elements * chosen.splits / gpu.sms / per_clock
    if chosen.clustered:
        fold = FIT.cluster_clocks + cut.exchanged * resident / FIT.exchanged_bytes_per_clock
    return FIT.start_clocks + FIT.second_clocks * chosen.apart + waves * steps * step + fold
