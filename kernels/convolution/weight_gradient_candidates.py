"""The configurations of a weight gradient that are worth trying, the best guess first, and the guess.

The guess counts bytes, products, matrices and waits; its constants are those of `WeightGradientFit`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..cost.columns import Number, ceil, columns, each, in_columns, larger, pick, rows, smaller, stacked, where
from ..cost.gpu import Gpu, fitted, tuned_gpu
from .candidates import gains_flat
from .problem import ConvolutionProblem
from .weight_gradient_configuration import (
    FEWEST_STAGES,
    MOST_RANKS,
    MOST_STAGES,
    UNIT,
    Cut,
    WeightGradientConfiguration,
    launchable,
    legal,
    live_rows,
    plain,
    reads_by_copy_engine,
    round_up,
)

RINGS = (64 << 10, 100 << 10)  # bytes under way on a multiprocessor: more makes the first of them late
MOST_UNITS = 16
MOST_PARTS = 4  # of a filter
FLAT_WARPS = 8  # of a multiprocessor that multiply where rows are copied whole: more of them gained nothing
FEW_ROWS = 16  # of a split: one launch for all of it is soon at an end


@functools.lru_cache(maxsize=4096)
def configurations(problem: ConvolutionProblem, gpu: Gpu) -> tuple[WeightGradientConfiguration, ...]:
    """All legal configurations of a problem on a GPU, best guess first.

    The order is that of `estimate`, then of the numbers themselves: the same everywhere. Never empty: the plain kernel
    is legal for every problem.
    """
    found = []
    if reads_by_copy_engine(problem):
        found = _by_copy_engine(problem, gpu.sms, gpu.shared_per_block, list(_shapes(problem)))
    if found:
        seconds = estimate(problem, columns(found), gpu.sms).tolist()
        found = [chosen for _, chosen in sorted(zip(seconds, found, strict=True))]
    return (*found, plain(problem, gpu.sms))


def flat_configurations(problem: ConvolutionProblem, gpu: Gpu) -> list[WeightGradientConfiguration]:
    """Legal ones whose rows are copied whole, those with enough warps first; none where those gain nothing. So much is
    moved then that no few splits add together."""
    if not gains_flat(problem):
        return []
    units = round_up(-(-problem.q // UNIT), 2)
    shapes = [
        (problem.c, 1, units, 1, 1, share, 1, residents, 1, False, True) for share in (1, 2, 4) for residents in (1, 2)
    ]
    found = [cut for cut in _by_copy_engine(problem, gpu.sms, gpu.shared_per_block, shapes) if not cut.together]
    seconds = estimate(problem, columns(found), gpu.sms).tolist() if found else []
    warps = [min(FLAT_WARPS, Cut(problem, cut).consumers * cut.residents) for cut in found]
    return [cut for _, _, cut in sorted(zip((-count for count in warps), seconds, found, strict=True))]


def _by_copy_engine(
    problem: ConvolutionProblem, sms: int, shared: int, given: list[tuple[Any, ...]]
) -> list[WeightGradientConfiguration]:
    """Legal ones of some shapes with rings, and of these some with splits that are added later, some that add
    together."""
    shapes = in_columns(WeightGradientConfiguration, given)
    shapes = where(shapes, launchable(Cut(problem, shapes)))
    if not rows(shapes):
        return []
    ringed = stacked([replace(shapes, stages=stages) for stages in _stages(Cut(problem, shapes))])
    cut = Cut(problem, ringed)
    options = stacked(
        [replace(ringed, splits=splits) for splits in _splits(cut, sms)]
        + [replace(ringed, splits=ranks, together=True) for ranks in _ranks(cut, sms)]
    )
    options = where(options, np.greater(options.splits, 0))
    options = where(options, legal(Cut(problem, options), shared))
    return [WeightGradientConfiguration(*values) for values in dict.fromkeys(rows(options))]


def _shapes(problem: ConvolutionProblem) -> Iterator[tuple[Any, ...]]:
    """The fields of configurations that have no rings and splits yet."""
    outs = _divisors(max(1, problem.width // UNIT))
    for block, (units, images) in itertools.product(_channel_blocks(problem), _tiles(problem)):
        for parts, out_blocks, share, residents in itertools.product(_row_parts(problem), outs, (1, 2, 4), (1, 2)):
            yield block, parts, units, images, out_blocks, share, 1, residents, 1, False, False


def _channel_blocks(problem: ConvolutionProblem) -> Iterator[int]:
    """64, 32, 16, 8 channels: whole groups, and at most one block that is not full."""
    for block in (64, 32, 16, 8):
        if block >= problem.width and (block == max(8, problem.width) or block < 2 * problem.c):
            yield block


def _tiles(problem: ConvolutionProblem) -> Iterator[tuple[int, int]]:
    """Units of 8 columns and images of a tile."""
    units = -(-problem.q // UNIT)
    seen = set()
    for tiles in range(1, units + 1):
        size = -(-units // tiles)
        size = round_up(size, 2) if size > 1 or units > 1 else 1
        if size > MOST_UNITS or size in seen:
            continue
        seen.add(size)
        most = MOST_UNITS // size if size >= units else 1
        images = 1 if size > 1 else 2
        while images <= most and (images < 2 * problem.n or images == 2):
            yield size, images
            images *= 2


def _row_parts(problem: ConvolutionProblem) -> list[int]:
    """Whole filters, and for wide groups of long ones, whose sums would not fit, parts: none without a row."""
    if problem.width < 32 and problem.r * problem.s * problem.width < 600:
        return [1]
    return sorted({parts for rows in range(1, problem.r + 1) if (parts := -(-problem.r // rows)) <= MOST_PARTS})


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _ranks(cut: Cut, sms: int) -> list[Number]:
    """Splits that add together, where they occupy half of the GPU or have few rows each; 0 where they do not."""
    blocks = cut.channel_blocks * cut.configuration.row_parts
    found = []
    for ranks in (1, 2, 4, MOST_RANKS):
        few = (2 * blocks * ranks >= sms) | (cut.work <= FEW_ROWS * ranks)
        found.append(pick((ranks <= larger(1, cut.work)) & few, ranks, 0))
    return found


def _stages(cut: Cut) -> list[Number]:
    """Stages for so many bytes under way on a multiprocessor, for each of `RINGS`."""
    room = [ring // cut.configuration.residents // cut.stage_bytes for ring in RINGS]
    return [larger(FEWEST_STAGES, smaller(MOST_STAGES, stages)) for stages in room]


def _splits(cut: Cut, sms: int) -> list[Number]:
    """Splits that fill one or two waves of the places on the GPU."""
    work, places = larger(1, cut.work), sms * cut.configuration.residents
    blocks = cut.channel_blocks * cut.configuration.row_parts
    return [smaller(work, larger(1, waves * places // blocks)) for waves in (1, 2)]


@dataclass(frozen=True)
class WeightGradientFit:
    """The constants of the estimate; `data/gpus.json` says what each is and where it comes from."""

    launch_s: float
    second_launch_s: float
    cluster_s: float
    bytes_per_s: float
    fold_bytes_per_s: float
    fill: float
    mma_clocks: float
    lone_warps: float
    matrix_clocks: float
    position_clocks: float
    step_clocks: float
    overlap: float
    sector_bytes: int


FIT, CLOCK = fitted(WeightGradientFit, "weight_gradient"), tuned_gpu().sustained_clock_hz


def estimate(problem: ConvolutionProblem, chosen: WeightGradientConfiguration, sms: int) -> Number:
    """Seconds a configuration should take, by counting bytes, products, matrices and waits; for the order of trying.

    Of many, where `chosen` holds columns.
    """
    cut, work = Cut(problem, chosen), _work_of_a_split(problem, chosen)
    blocks = cut.channel_blocks * chosen.row_parts * chosen.splits
    residents = larger(1.0, smaller(chosen.residents, blocks / sms))
    memory = work.bytes * smaller(sms * residents, blocks) / FIT.bytes_per_s
    clocks = (work.steps * residents * _stage_clocks(cut), work.steps * FIT.step_clocks)
    parts = (memory, *(count / CLOCK for count in clocks))
    body = each(pow, sum(each(pow, part, FIT.overlap) for part in parts), 1 / FIT.overlap)
    waves = ceil(blocks / (places(chosen, sms) * chosen.residents))
    shallow = 1 + 0.5 / chosen.stages**2
    fill = FIT.fill * chosen.stages * cut.stage_bytes * smaller(sms * residents, blocks) / FIT.bytes_per_s
    start = (FIT.launch_s - launch_saved_s(chosen) + fill) * (1 + 0.01 * each(math.log2, chosen.share))
    return start + waves * body * shallow + 16 * fold_passes(chosen) * cut.quadruples / FIT.fold_bytes_per_s


def places(chosen: WeightGradientConfiguration, sms: int) -> Number:
    """Multiprocessors that blocks of threads can have: of large clusters not all fit into the parts of the GPU."""
    gpu = tuned_gpu()
    return pick(chosen.together & (chosen.splits > 2), sms * gpu.clustered_sms // gpu.sms, sms)


def fold_passes(chosen: WeightGradientConfiguration) -> Number:
    """How often the partial sums pass the memory: once each way for every split, or once as what they round to."""
    return pick(chosen.together, 0.5, 2 * chosen.splits)


def launch_saved_s(chosen: WeightGradientConfiguration) -> Number:
    """What splits that add together take less than two launches."""
    saved = pick(chosen.splits == 1, FIT.second_launch_s, FIT.second_launch_s - FIT.cluster_s)
    return pick(chosen.together, saved, 0.0)


@dataclass(frozen=True)
class _Work:
    """One split of one channel block: steps of its walk, bytes from memory."""

    steps: Number
    bytes: Number


def _work_of_a_split(problem: ConvolutionProblem, chosen: WeightGradientConfiguration) -> _Work:
    cut = Cut(problem, chosen)
    rows = max(1, len(live_rows(problem)))
    each = -(-larger(1, cut.work) // chosen.splits)
    reach = (problem.r - 1) * problem.dilation[0]
    inside = pick(each % rows == 0, 0, reach)  # rows of x read again where a split begins inside an image
    images = ceil(each / rows)
    steps = each * max(problem.stride[0], problem.h / rows) + images * min(reach, max(0, problem.padding[0])) + inside
    columns = smaller(problem.w, problem.w / cut.column_tiles + (problem.s - 1) * problem.dilation[1])
    positions = (each * problem.h / rows + inside) * columns + each * problem.q / cut.column_tiles
    sector = pick(chosen.channel_block * 2 < FIT.sector_bytes, FIT.sector_bytes / 2, 0)
    channels = larger(problem.c / cut.channel_blocks, sector)
    return _Work(steps, 2 * channels * problem.n / cut.image_blocks * positions)


def _stage_clocks(cut: Cut) -> Number:
    """Clocks of a multiprocessor for one step of the walk of one block of threads."""
    chosen, stride = cut.configuration, cut.problem.stride[0]
    steps = cut.consumers * cut.own_steps
    products = steps * cut.filter_rows / stride * cut.tap_pairs * chosen.out_blocks
    matrices = steps * (4 * cut.tap_pairs + 2 * chosen.out_blocks / stride)
    positions = chosen.images * (cut.x_columns + UNIT * chosen.units / stride)
    alone = 1 + FIT.lone_warps / (cut.consumers * chosen.residents)
    return larger(products * FIT.mma_clocks * alone, matrices * FIT.matrix_clocks, positions * FIT.position_clocks)
