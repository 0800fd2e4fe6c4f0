"""Timing on one GPU: medians of events, operands rotated past the L2, and the copy rate of the same run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from tapestry.kernels.cost.gpu import tuned_gpu
from tapestry.kernels.tensors.timing import graph_us

ROTATED_BYTES = 200e6  # several times the L2
CALLS = 25
SPIN_HZ = tuned_gpu().clock_hz
CHAIN, REPLAYS = 24, 9


def median_us(call: Callable[[int], Any], calls: int = CALLS) -> float:
    """Median microseconds of `call(i)` on the current stream, i = 0 to calls - 1, after one round of the same calls.

    The GPU spins until all calls are queued, so that slow launches from Python are not what is measured.
    """
    for i in range(calls):
        call(i)
    torch.cuda.synchronize()
    begun = perf_counter()
    call(0)
    host_s = perf_counter() - begun + 20e-6
    torch.cuda.synchronize()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(calls)]
    torch.cuda._sleep(int(min(0.2, 1.5 * calls * host_s) * SPIN_HZ))
    for i, (start, end) in enumerate(events):
        start.record()
        call(i)
        end.record()
    torch.cuda.synchronize()
    return 1e3 * statistics.median(start.elapsed_time(end) for start, end in events)


def chain_us(call: Callable[[int], Any], calls: int = CHAIN) -> float:
    """Microseconds a call where `calls` of them follow one another in a CUDA graph: the median of several replays.

    No events between the kernels, and no gaps but those that the kernels need.
    """
    return graph_us(call, calls, REPLAYS)


def copy_bytes_per_s() -> float:
    """Bytes read and written per second by a device-to-device copy of 2 GiB."""
    source = torch.empty(1 << 31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / (median_us(lambda _: target.copy_(source), 10) * 1e-6)


class Pool:
    """Random memory of one type, in which tensors of any shape lie one behind the other."""

    def __init__(self, dtype: torch.dtype, elements: int, seed: int) -> None:
        random = torch.Generator("cuda").manual_seed(seed)
        self.memory = torch.empty(elements, dtype=dtype, device="cuda")
        for part in self.memory.split(1 << 27):
            part.copy_(torch.randn(part.numel(), device="cuda", generator=random).clamp_(-3, 3))

    def rotation(self, shape: tuple[int, ...], most: int = CALLS) -> list[torch.Tensor]:
        """Enough contiguous tensors of `shape` to hold more than the L2, at least two and at most `most`."""
        size = math.prod(shape)
        step = -(-size // 512) * 512
        wanted = min(most, max(2, int(ROTATED_BYTES / (size * self.memory.itemsize)) + 1))
        if wanted * step > self.memory.numel():
            raise ValueError(f"{wanted} tensors of {shape} do not fit into {self.memory.numel()} elements")
        return [self.memory[i * step : i * step + size].view(shape) for i in range(wanted)]
