"""The cuts of a forward kernel of channel pairs that sums up rows together (forward_blocks.cu), and how long they take.

Counted for the busiest multiprocessor: the rows that it sums up, and what memory, the copy engine, the waits of one
warp and the tensor cores need for them, in the fourth norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from ..cost.gpu import Gpu, fitted
from .candidates import CLOCKS_PER_NS, FIT, walked
from .configuration import (
    BARRIER_BYTES,
    LANES,
    PAIRED_UNITS,
    ForwardConfiguration,
    column_steps,
    footprint,
    legal,
    met_rows,
)
from .problem import ConvolutionProblem

# Rows that are summed up together, by pairs of channels a warp: more take more registers than they spare time.
LEAVING = {4: (4, 5), 2: (5, 6, 7, 8)}
IDLE = 0.2  # of the output rows that are summed up, or of channels in blocks of 64, at most, beyond what there is
LEAST_TAPS = 4
MOST_STAGES = LANES
# Bytes of rows in one multiprocessor's ring beside those that a block meets, by pairs of channels a warp; and with more
# warps than eight.
AHEAD, AHEAD_OF_MANY = {4: 32 << 10, 2: 80 << 10}, 32 << 10
MANY = 12  # warps, three a tensor core: one waits while others multiply, so that one row is loaded at once
FEW_STEPS = 2  # of four columns: with more of them four pairs of two rows take too many registers


@dataclass(frozen=True)
class BlockFit:
    """The constants of the guess; `data/gpus.json` says what each is and where it comes from."""

    start_ns: float
    memory: float
    block_clocks: float
    group_clocks: float
    product_share: float
    product_clocks: float
    position_clocks: float


BLOCKS = fitted(BlockFit, "blocks")


def cuts(problem: ConvolutionProblem, gpu: Gpu) -> Iterator[ForwardConfiguration]:
    """Legal ones, with two output stages where there is room.

    With strides a circle of rows was never slower, nor with 3 x 3 filters the kernels of octets.
    """
    for shape in _shapes(problem) if problem.stride == (1, 1) and min(problem.r, problem.s) >= LEAST_TAPS else ():
        options = (_ringed(problem, replace(shape, out_stages=outs), gpu.shared_per_block) for outs in (2, 1))
        if found := next((cut for cut in options if cut and legal(problem, cut, gpu.shared_per_block)), None):
            yield from _chunked(problem, found, gpu.sms)


def _shapes(problem: ConvolutionProblem) -> Iterator[ForwardConfiguration]:
    """Whole rows of as many images as eight or twelve warps have units for."""
    units, wide = ceil(problem.q / 8), ceil(problem.c / 64) * 64 <= (1 + IDLE) * problem.c
    for channels, pairs, warps in ((64 if wide else 32, 4, 8), (32, 2, 8), (48, 2, MANY)):
        images = max(1, PAIRED_UNITS * warps * 2 * pairs // channels // units)
        for leaving in LEAVING[pairs]:
            shape = ForwardConfiguration(channels, images, units, 1, pairs=pairs, leaving=leaving, filter="staged")
            shape = replace(shape, together=_together(problem, shape))
            idle = ceil(problem.p / leaving) * leaving / problem.p - 1
            if idle <= IDLE and images < 2 * problem.n and shape.warps == warps:
                yield shape


def _together(problem: ConvolutionProblem, cut: ForwardConfiguration) -> int:
    """Rows that are loaded at once: one where an image has fewer than a block meets, or registers are scarce, or other
    warps have work meanwhile."""
    enough = cut.warps < MANY and (cut.pairs == 2 or column_steps(problem) <= FEW_STEPS)
    return 2 if enough and met_rows(problem, cut) <= problem.h else 1


def _ringed(problem: ConvolutionProblem, cut: ForwardConfiguration, shared: int) -> ForwardConfiguration | None:
    """With a ring of the rows that a block meets, and some under way for the next one; none where there is no room."""
    taken = footprint(problem, replace(cut, stages=0))
    row = ceil(taken.row_bytes / 1024) * 1024
    most = min(MOST_STAGES, (shared - taken.shared) // (row + 2 * BARRIER_BYTES))
    met = min(met_rows(problem, cut), problem.h)
    ahead = AHEAD[cut.pairs] if cut.warps < MANY else AHEAD_OF_MANY
    return replace(cut, stages=min(most, met + max(2, ahead // row))) if met <= most else None


def _chunked(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int) -> Iterator[ForwardConfiguration]:
    """With rows a block of the grid walks at a time: a whole image, or all that it has to do."""
    line = ceil(problem.n / cut.images) * problem.p
    share = ceil(line / max(1, sms // ceil(problem.c / cut.channels)))
    for rows in sorted({ceil(rows / cut.leaving) for rows in (share, problem.p)}):
        yield replace(cut, chunk=rows * cut.leaving)


def guess(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int) -> float:
    """Estimated ns of a launch."""
    walk = walked(problem, cut, sms)
    line = ceil(problem.n / cut.images) * ceil(problem.q / (8 * cut.units)) * problem.p
    turns = ceil(ceil(line / cut.chunk) * ceil(problem.c / cut.channels) / walk.blocks)
    images = turns * min(cut.chunk, line) / problem.p
    blocks = image_blocks(problem, cut.leaving, cut.together)
    groups, taps = (sum(counts) for counts in zip(*blocks, strict=True))
    products = taps * cut.tiles * cut.pairs * column_steps(problem) / 2
    chain = BLOCKS.block_clocks * len(blocks) + BLOCKS.group_clocks * groups + BLOCKS.product_share * products
    work = BLOCKS.product_clocks * products * cut.warps / 4
    positions = BLOCKS.position_clocks * cut.images * footprint(problem, cut).box_x * problem.h
    memory = BLOCKS.memory * _memory_ns(problem, cut, sms, walk.blocks)
    fourth = memory**4 + sum((clocks / CLOCKS_PER_NS) ** 4 for clocks in (positions, chain, work))
    found: float = BLOCKS.start_ns + images * float(fourth**0.25)
    return found


def _memory_ns(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int, active: int) -> float:
    """ns that the bytes of all rows of a box take: those of columns that are there."""
    read = min(problem.w, footprint(problem, cut).box_x) * problem.h
    written = min(problem.q, 8 * cut.units) * problem.p
    found: float = 2 * cut.channels * cut.images * (read + written) / FIT.memory_bytes_per_ns
    return found / min(2.0, max(1.0, sms / active))


@lru_cache(maxsize=4096)
def image_blocks(problem: ConvolutionProblem, leaving: int, together: int) -> tuple[tuple[int, int], ...]:
    """Of each block of `leaving` output rows of an image: groups of input rows, and how often a row meets a tap."""
    span, found = (problem.r - 1) * problem.dilation[0] + 1, []
    for first in range(0, problem.p, leaving):
        base = first * problem.stride[0] - problem.padding[0]
        reach = (min(leaving, problem.p - first) - 1) * problem.stride[0] + span
        met = range(max(base, 0), min(base + reach, problem.h))
        groups = {(row - base) // together for row in met}
        steps = [row - base - p * problem.stride[0] for row in met for p in range(leaving)]
        found.append((len(groups), sum(0 <= step < span and step % problem.dilation[0] == 0 for step in steps)))
    return tuple(found)
