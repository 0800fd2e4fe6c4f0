"""State of optimizers from before a model was fused."""

from __future__ import annotations

import torch
from torch import Tensor


def lay_out_state(optimizer: torch.optim.Optimizer) -> int:
    """Have what an optimizer remembers of its parameters lie in memory as they do, and say of how many tensors that was
    not so.

    Filters of convolutions lie channels-last once they are fused, as `model.to(memory_format=torch.channels_last)` lays
    them, too. What an optimizer remembers of them from before, or loads, lies as they did; optimizers that say
    ``fused=True`` take both for the same order (on a GPU torch refuses them). Others do not care.
    """
    found = 0
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
                laid = torch.empty_like(parameter, dtype=value.dtype, device=value.device, requires_grad=False)
                state[name] = laid.copy_(value)
                found += 1
    return found
