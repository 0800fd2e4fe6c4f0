"""The sweeps that one launch makes side by side: the threads that they share, and how its blocks are dealt among them.

A strided input gradient whose parities are swept each for itself is one launch where its cuts have as many threads: the
sweeps meet one, two or four taps of a 3 x 3 filter, so that they get blocks in proportion to what they are guessed to
take. One behind the other, each of them would wait for the slowest block of the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from heapq import nsmallest
from itertools import islice, product

from ..cost.gpu import Gpu, tuned_gpu
from .wide_candidates import FIT, MOST, all_cuts, clocks, filter_clocks, memory_clocks, row_clocks
from .wide_forward_configuration import WideConfiguration, WideCut, legal
from .wide_sweep import Sweep
from .wide_threads import WARPS_A_GROUP

MORE_MEMORY = 1.75  # times its equal share of memory that a multiprocessor gets while others multiply longer
DEEPEST = 4  # rows under way
OPTIONS = 2  # cuts of a sweep that are tried with those of the others


@dataclass(frozen=True)
class WideLaunch:
    """The cuts of its sweeps, which agree on warpgroups of a block and blocks of a multiprocessor."""

    cuts: tuple[WideCut, ...]

    @cached_property
    def trades(self) -> bool:
        """Whether loaders leave registers to the warpgroups: in all sweeps, where one of them asks for it."""
        return any(cut.scarce(self._helpers) for cut in self.cuts)

    @property
    def threads(self) -> int:
        """Of a block, whichever sweep it has."""
        return self.cuts[0].threads_beside(WARPS_A_GROUP if self.trades else self._helpers)

    @property
    def blocks(self) -> int:
        """Those that share a multiprocessor."""
        return self.cuts[0].blocks

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory of a block."""
        return max(cut.shared for cut in self.cuts)

    def stretches(self, sms: int) -> tuple[int, ...]:
        """For each sweep, the blocks of the grid that share a block of its channels."""
        return tuple(count for count, _ in _dealt(self.cuts, sms))

    def clocks(self, gpu: Gpu) -> float:
        """Estimated clocks: those of the sweep that takes longest, or of memory for all of them."""
        if len(self.cuts) == 1:
            return clocks(self.cuts[0], gpu)
        dealt = _dealt(self.cuts, gpu.sms)
        blocks = sum(cut.channel_blocks * count for cut, (count, _) in zip(self.cuts, dealt, strict=True))
        waves = -(-blocks // (gpu.sms * self.blocks))
        sweeps = [_clocks(cut, rows, waves, gpu) for cut, (_, rows) in zip(self.cuts, dealt, strict=True)]
        return FIT.start_clocks + max(*sweeps, sum(memory_clocks(cut, gpu) for cut in self.cuts))

    @property
    def _helpers(self) -> int:
        return max(cut.helpers for cut in self.cuts)


def side_by_side(cuts: Sequence[WideCut]) -> bool:
    """Whether the sweeps of several cuts can be one launch."""
    if len({(cut.warpgroups, cut.blocks) for cut in cuts}) > 1:
        return False
    launch = WideLaunch(tuple(cuts))
    return not launch.trades or all(cut.registers <= cut.taken_registers for cut in cuts)


@lru_cache(maxsize=4096)
def _dealt(cuts: tuple[WideCut, ...], sms: int) -> tuple[tuple[int, float], ...]:
    """For each sweep (stretches, rows that the busiest one walks): whichever takes longest gets another one, while
    there are multiprocessors for it."""
    gpu, slots = replace(tuned_gpu(), sms=sms), sms * cuts[0].blocks
    if len(cuts) == 1:
        return (cuts[0].stretches(sms),)
    most = [1] * len(cuts)
    dealt = [cut.stretches_of(1) for cut in cuts]
    paces = [_pace(cut, gpu) for cut in cuts]
    taken = [start + rows * row for (start, row), (_, rows) in zip(paces, dealt, strict=True)]
    left = slots - sum(cut.channel_blocks for cut in cuts)
    while True:
        slowest = taken.index(max(taken))
        cut = cuts[slowest]
        left -= cut.channel_blocks
        if left < 0 or most[slowest] >= cut.line:
            return tuple(dealt)
        most[slowest] += 1
        start, row = paces[slowest]
        dealt[slowest] = cut.stretches_of(most[slowest])
        taken[slowest] = start + dealt[slowest][1] * row


def _clocks(cut: WideCut, rows: float, waves: int, gpu: Gpu) -> float:
    """Estimated clocks of a sweep's stretches, beside others that want less of memory."""
    start, row = _pace(cut, gpu)
    return waves * (start + rows * row)


def _pace(cut: WideCut, gpu: Gpu) -> tuple[float, float]:
    """Estimated clocks until the blocks of a multiprocessor have their filters, and of a row of theirs."""
    return cut.blocks * filter_clocks(cut), row_clocks(cut, cut.blocks, _with_more_memory(gpu))


@lru_cache(maxsize=64)
def _with_more_memory(gpu: Gpu) -> Gpu:
    return replace(gpu, copy_bytes_per_s=MORE_MEMORY * gpu.copy_bytes_per_s)


def configurations(sweeps: Sequence[Sweep], gpu: Gpu, fused: bool = False) -> list[tuple[WideConfiguration, ...]]:
    """Cuts of sweeps that are to be one launch, those guessed to be fastest first; none where there are no such."""
    by_threads = [_by_threads(sweep, gpu, fused, len(sweeps)) for sweep in sweeps]
    common = set(by_threads[0]).intersection(*by_threads[1:])
    found = {}
    for threads in common:
        for cuts in product(*(options[threads] for options in by_threads)):
            if side_by_side(cuts):
                found[tuple(_deepened(cut, gpu) for cut in cuts)] = WideLaunch(cuts).clocks(gpu)
    return nsmallest(MOST, found, key=lambda chosen: (found[chosen], repr(chosen)))


def _deepened(cut: WideCut, gpu: Gpu) -> WideConfiguration:
    """A cut with more rows under way where there is room: few taps are multiplied before the next row has come."""
    found = cut.configuration
    for stages in range(found.stages + 1, DEEPEST + 1):
        deeper = replace(found, stages=stages)
        if legal(replace(cut, configuration=deeper), gpu.shared_per_block):
            found = deeper
    return found


def _by_threads(sweep: Sweep, gpu: Gpu, fused: bool, sweeps: int) -> dict[tuple[int, int], list[WideCut]]:
    """The best cuts of one of so many sweeps for each number of warpgroups and of blocks of a multiprocessor."""
    found: dict[tuple[int, int], dict[WideCut, float]] = {}
    for chosen in all_cuts(sweep, gpu, fused):
        cut = WideCut(sweep, chosen, fused, beside=True)
        _, rows = cut.stretches_of(gpu.sms * cut.blocks // (sweeps * cut.channel_blocks))
        found.setdefault((cut.warpgroups, cut.blocks), {})[cut] = _clocks(cut, rows, 1, gpu)
    return {threads: _fastest(cuts) for threads, cuts in found.items()}


def _fastest(cuts: dict[WideCut, float]) -> list[WideCut]:
    """Those that differ in more than rows under way, of which each gets as many as have room."""
    ranked = sorted(cuts, key=lambda cut: (cuts[cut], cut.configuration.stages < 3, repr(cut.configuration)))
    found: dict[WideConfiguration, WideCut] = {}
    for cut in ranked:
        found.setdefault(replace(cut.configuration, stages=0), cut)
    return list(islice(found.values(), OPTIONS))
