"""The cuts of a forward kernel of channel pairs (forward_pairs.cu) that are worth trying, the best guess first.

Those that sum up rows together have a guess of their own (block_candidates.py).

The guess counts as that of the other forward cuts does (candidates.py): for the busiest multiprocessor the rows it
walks, and for each the longer of what memory and the tensor cores need.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import nsmallest

from ..cost import timed_cuts
from ..cost.columns import Number, ceil, columns, each, larger, rows, smaller, stacked, where
from ..cost.gpu import Gpu, fitted
from . import block_candidates
from .candidates import CLOCKS_PER_NS, FIT, memory_ns, walked
from .configuration import PAIRED_UNITS, ForwardConfiguration, column_steps, footprint, legal, pairable
from .problem import ConvolutionProblem

MOST = 24
RINGS = (72 << 10, 100 << 10)  # bytes of input rows in one multiprocessor
MOST_UNITS = 16


@dataclass(frozen=True)
class PairedFit:
    """The constants of the guess; `data/gpus.json` says what each is and where it comes from."""

    start_ns: float
    memory: float
    row_clocks: float
    product_share: float


PAIRED = fitted(PairedFit, "pairs")


def configurations(problem: ConvolutionProblem, gpu: Gpu) -> list[ForwardConfiguration]:
    """Legal cuts, the analytic best guess first. Empty where channels are not to be computed in pairs."""
    if not pairable(problem):
        return []
    shapes = list(_shapes(problem))
    cuts = _dealt(problem, columns(shapes), gpu) if shapes else None
    guessed = dict(zip(rows(cuts), _by_rows(problem, cuts, gpu.sms).tolist(), strict=True)) if cuts else {}
    last = max(nsmallest(MOST, guessed.values()), default=0.0)
    near = {ForwardConfiguration(*row): ns for row, ns in guessed.items() if ns <= last}
    near |= {cut: block_candidates.guess(problem, cut, gpu.sms) for cut in block_candidates.cuts(problem, gpu)}
    return nsmallest(MOST, near, key=lambda cut: (near[cut], cut.stages, repr(cut)))


def measured(problem: ConvolutionProblem, gpu: Gpu) -> tuple[ForwardConfiguration, float] | None:
    """The fastest cut of those that were timed of the very problem (cost/timed_cuts.py), and its seconds in a chain.

    Whole octets were timed or are predicted to be slower for all that are in the table.
    """
    timed = timed_cuts.timed(problem, "forward") if gpu.tuned and pairable(problem) else ()
    known = ((ForwardConfiguration(*each.cuts[0]), 1e-6 * each.microseconds) for each in timed)
    return next((found for found in known if legal(problem, found[0], gpu.shared_per_block)), None)


def _dealt(problem: ConvolutionProblem, shapes: ForwardConfiguration, gpu: Gpu) -> ForwardConfiguration:
    """Legal ones of some shapes, with rings and chunks, in columns."""
    rings = [(blocks, stages) for blocks in (1, 2, 3) for stages in _stages(problem, shapes, blocks)]
    cuts = stacked([replace(shapes, stages=stages, blocks=blocks) for blocks, stages in rings])
    cuts = where(cuts, legal(problem, cuts, gpu.shared_per_block))  # the chunk does not matter for that
    return stacked([replace(cuts, chunk=chunk) for chunk in _chunks(problem, cuts, gpu.sms)])


def _shapes(problem: ConvolutionProblem) -> Iterator[ForwardConfiguration]:
    whole = ceil(problem.q / 8)
    for channels in (64, 32):
        for pairs in (2, 4):
            for tiles in (1, 2):
                for positions in (1, 2):  # warps side by side
                    for units in sorted({ceil(whole / parts) for parts in range(1, whole + 1)}):
                        images = PAIRED_UNITS * tiles * positions // units if units == whole else 1
                        if units <= MOST_UNITS and 1 <= images < 2 * problem.n:
                            yield ForwardConfiguration(channels, images, units, tiles, pairs=pairs)


def _stages(problem: ConvolutionProblem, shape: ForwardConfiguration, blocks: int) -> list[Number]:
    row = ceil(footprint(problem, shape).row_bytes / 1024) * 1024
    return [smaller(16, larger(3, ring // blocks // row)) for ring in RINGS]


def _chunks(problem: ConvolutionProblem, shape: ForwardConfiguration, sms: int) -> list[Number]:
    """Rows that a block walks at a time: half an image, whole ones, or all that one block of the grid has to do."""
    line = ceil(problem.n / shape.images) * ceil(problem.q / (8 * shape.units)) * problem.p
    share = ceil(line / larger(1, sms * shape.blocks // ceil(problem.c / shape.channels)))
    whole = ceil(share / problem.p) * problem.p
    return [smaller(chunk, line) for chunk in (ceil(problem.p / 2), problem.p, share, whole)]


def guess(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int) -> float:
    """Estimated ns of a launch."""
    found: float = (block_candidates.guess if cut.leaving > 1 else _by_rows)(problem, cut, sms)
    return found


def _by_rows(problem: ConvolutionProblem, cut: ForwardConfiguration, sms: int) -> Number:
    """The same where rows are summed up one by one; of many, where `cut` holds columns."""
    walk = walked(problem, cut, sms)
    memory, compute = PAIRED.memory * memory_ns(problem, cut, sms, walk.blocks), _compute_ns(problem, cut)
    return PAIRED.start_ns + walk.steps * each(_fifth_norm, memory, compute)


def _fifth_norm(one: float, other: float) -> float:
    return float((one**5 + other**5) ** 0.2)


def _compute_ns(problem: ConvolutionProblem, cut: ForwardConfiguration) -> Number:
    """ns of one step: the dependent chain of a warp, or all products or loads of the multiprocessor.

    A load of 32 places takes four clocks for each time that it meets a bank again: columns that are left out are met.
    """
    steps, warps = column_steps(problem), cut.warps * cut.blocks
    products = cut.tiles * cut.pairs * problem.r * steps / 2 / problem.stride[0] * FIT.product_clocks
    loads = warps * cut.tiles * 2 * steps * 4 * problem.stride[1]
    chain = PAIRED.row_clocks / problem.stride[0] + PAIRED.product_share * products
    return larger(chain, products * warps / 4, loads) / CLOCKS_PER_NS
