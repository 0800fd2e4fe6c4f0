"""The configurations worth trying for a problem, the best guess first.

The guess counts, for the busiest multiprocessor, the rows it walks, and for each the longer of what memory and the
tensor cores need; a quarter of the shorter is taken not to overlap. Its constants were fitted on one H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import ceil

from .configuration import SHARED, SMS, ForwardConfiguration, footprint, group_block, legal, open_rows
from .problem import ConvolutionProblem

MOST = 40
CLOCK = 1.7  # GHz
MEMORY = 30.0  # bytes a ns of one multiprocessor's share, reads and writes
LATENCY = 1100.0  # ns from asking for a row to having it
CHAIN = 260.0  # clocks of a row's dependent steps beside its products
PRODUCT = 6.5  # clocks of one m16n8k16 on one of the four tensor cores
START = 2500.0  # ns
LATE_PRODUCTS = 30  # of a warp and row: with more of them (5 x 5, four tiles) rows that leave late gained nothing
ROW_BYTES = (1024, 2048, 4096, 8192, 16384)  # of the input rows one step brings, about
RINGS = (56 * 1024, 100 * 1024)  # bytes asked for ahead in one multiprocessor
DEEP = 72 * 1024  # from here on more bytes in flight disturb the order in which memory is swept


def configurations(problem: ConvolutionProblem, sms: int = SMS, shared: int = SHARED) -> list[ForwardConfiguration]:
    """Legal configurations of forward.cu, at most forty, the analytic best guess first. Empty where it cannot run."""
    found = {cut: guess(problem, cut, sms) for cut in _all(problem, sms, shared)}
    return sorted(found, key=lambda cut: (found[cut], repr(cut)))[:MOST]


def _all(problem: ConvolutionProblem, sms: int, shared: int) -> Iterator[ForwardConfiguration]:
    for shape in _shapes(problem):
        for blocks in (1, 2, 3):
            for ring in RINGS:
                row = ceil(footprint(problem, shape).row_bytes / 1024) * 1024
                stages = min(16, max(2, ring // blocks // row))
                for chunk in _chunks(problem, shape, sms * blocks):
                    cut = replace(shape, stages=stages, blocks=blocks, chunk=chunk)
                    options = (replace(cut, late=_chain_bound(problem, cut)), cut)
                    yield from islice((option for option in options if legal(problem, option, shared)), 1)


def _chain_bound(problem: ConvolutionProblem, cut: ForwardConfiguration) -> bool:
    """Whether a warp has so few products a row that the steps behind them are worth overlapping."""
    return cut.tiles * cut.octets * problem.r * _pairs(problem) <= LATE_PRODUCTS * problem.stride[0]


def _pairs(problem: ConvolutionProblem) -> int:
    """Products of an octet of output channels and a tile, for one filter row."""
    return ceil(problem.s * group_block(problem) // 8 / 2)


def _shapes(problem: ConvolutionProblem) -> Iterator[ForwardConfiguration]:
    """Channels, images and columns of a block, and what of it a warp computes."""
    for channels in _channel_blocks(problem):
        for units in _column_tiles(problem):
            for images in _image_blocks(problem, channels, units):
                for octets in {1, 2} if group_block(problem) > 8 else {1}:
                    for tiles in (1, 2, 4):
                        if tiles == 1 or images * units > tiles:
                            yield ForwardConfiguration(channels, images, units, tiles, octets)


def _channel_blocks(problem: ConvolutionProblem) -> list[int]:
    widest = max(group_block(problem), min(64, 1 << (problem.c - 1).bit_length()))
    return [block for block in (widest, widest // 2) if block >= group_block(problem)]


def _column_tiles(problem: ConvolutionProblem) -> list[int]:
    """Columns in units of eight: the whole row where a box can bring it, or equal parts of it."""
    whole = ceil(problem.q / 8)
    widest = (256 - (problem.s - 1) * problem.dilation[1] - 1) // problem.stride[1] // 8
    return sorted({ceil(whole / ceil(whole / most)) for most in (4, 8, min(16, widest))})


def _image_blocks(problem: ConvolutionProblem, channels: int, units: int) -> list[int]:
    row = channels * 16 * units
    return sorted({min(problem.n, max(1, size // row)) for size in ROW_BYTES})


def _chunks(problem: ConvolutionProblem, shape: ForwardConfiguration, slots: int) -> list[int]:
    """Rows a block walks at a time: few, an image, or all that one block of the grid has to do."""
    line = ceil(problem.n / shape.images) * ceil(problem.q / (8 * shape.units)) * problem.p
    share = ceil(line / max(1, slots // ceil(problem.c / shape.channels)))
    return sorted({min(chunk, share) for chunk in (4, 8, 16, problem.p, share)})


def guess(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int = SMS) -> float:
    """Estimated ns of a launch."""
    steps, active = _steps(problem, cut, sms)
    memory, compute = _memory(problem, cut, sms, active), _compute(problem, cut)
    return START + LATENCY + steps * (max(memory, compute) + 0.25 * min(memory, compute))


def _steps(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int) -> tuple[float, int]:
    """Input rows that the busiest block walks, and how many blocks there are."""
    channel_blocks = ceil(problem.c / cut.channels)
    line = ceil(problem.n / cut.images) * ceil(problem.q / (8 * cut.units)) * problem.p
    chunks = ceil(line / cut.chunk) * channel_blocks
    slots = sms * cut.blocks
    even = slots // channel_blocks * channel_blocks
    blocks = min(chunks, even if 20 * even >= 19 * slots else slots)
    rows = ceil(chunks / blocks) * cut.chunk
    halo = (open_rows(problem) - 1) * problem.stride[0]
    runs = ceil(chunks / blocks) * max(1, ceil(cut.chunk / problem.p))
    inside = min(1.0, problem.h / max(1, problem.p * problem.stride[0]))
    return rows * problem.stride[0] * inside + runs * halo * (1 if cut.chunk < problem.p else 0.1), blocks


def _memory(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int, active: int) -> float:
    """ns that one step's bytes take: the share of a multiprocessor, or what is asked for ahead over the latency."""
    row = footprint(problem, cut).row_bytes
    out = cut.images * min(problem.q, 8 * cut.units) * cut.channels * 2 / problem.stride[0]
    busy = ceil(active / sms)
    rate = MEMORY * (0.96 if busy * cut.stages * row > DEEP else 1.0) * min(2.0, max(1.0, sms / active))
    return max((row + out) * busy / rate, LATENCY / (cut.stages - 1))


def _compute(problem: ConvolutionProblem, cut: ForwardConfiguration) -> float:
    """ns of one step: the dependent chain of a warp, or all products of the multiprocessor."""
    products = cut.tiles * cut.octets * problem.r * _pairs(problem) / problem.stride[0] * PRODUCT
    warps = footprint(problem, cut).threads // 32 - 2
    return max(CHAIN + products, products * warps * cut.blocks / 4) / CLOCK
