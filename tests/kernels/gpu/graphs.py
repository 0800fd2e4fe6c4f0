"""Steps that autograd takes, captured as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def captured(step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """The graph of a step, and the tensor that every replay writes.

    The step is taken once before, on another stream, as torch asks of what has gradients.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    return graph, found
