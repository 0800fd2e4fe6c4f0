"""Timing calls of torch tensors on a GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

_cuda: Any = torch.cuda  # what is not typed by torch


def graph_us(call: Callable[[int], Any], calls: int, replays: int) -> float:
    """Microseconds of each of so many `call(i)` that follow one another in a CUDA graph: the median of the replays.

    No events between their kernels, and no gaps but those that the kernels need.
    """
    stream, graph = _cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(calls):  # whatever is prepared, or tried, at the first call
            call(i)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                call(i)
        graph.replay()
        times: list[float] = []
        for _ in range(replays):
            start, end = (_cuda.Event(enable_timing=True) for _ in range(2))
            start.record(stream)
            graph.replay()
            end.record(stream)
            stream.synchronize()
            times.append(start.elapsed_time(end))
    return 1e3 * statistics.median(times) / calls
