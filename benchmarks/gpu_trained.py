"""Steps of training of Llama over the GPUs of a host as torch has them: data parallelism with whole weights on all
(DDP) and with all that is kept cut (FSDP2), each as it is and compiled by layer; fused AdamW, a sequence a GPU.

torchrun --nproc-per-node 4 benchmarks/gpu_trained.py [--layers 8] [--tokens 8192]     rank 0: one object of JSON

Weights, gradients and what the optimizer keeps are bf16, as `torch.optim.AdamW` has them for weights of that type.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from gpu_by_hand import arguments, ended, slowest, started  # type: ignore[import-not-found, unused-ignore]
from gpu_steps import OfTorch, seconds  # type: ignore[import-not-found, unused-ignore]
from gpu_torch import (  # type: ignore[import-not-found, unused-ignore]
    D,
    angles,
    decoder,
    drawn,
    forward,
    normed,
)
from torch import nn
from torch.distributed.fsdp import fully_shard


class Layer(nn.Module):
    """A decoder layer on one sequence [t, d]."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterDict({name: nn.Parameter(weight) for name, weight in decoder().items()})

    def forward(self, x: torch.Tensor, turn: Any) -> torch.Tensor:
        return forward(x, [dict(self.weights.items())], turn)


class Decoder(nn.Module):
    """Layers, a norm, and the mean square of what is missing."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.gain = nn.Parameter(torch.ones(D, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor, target: torch.Tensor, turn: Any) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, turn)
        return (normed(x, self.gain).float() - target.float()).square().mean()


def whole(model: Decoder, *, compiled: bool) -> nn.Module:
    """DDP."""
    if compiled:
        for layer in model.layers:
            layer.compile()
    return nn.parallel.DistributedDataParallel(
        model, device_ids=[torch.cuda.current_device()], gradient_as_bucket_view=True
    )


def cut(model: Decoder, *, compiled: bool) -> nn.Module:
    """FSDP2, a group of weights a layer."""
    for layer in model.layers:
        fully_shard(layer)
        if compiled:
            layer.compile()
    fully_shard(model)
    return model


def trained(model: nn.Module, tokens: int) -> Callable[[], None]:
    """A step."""
    x, target = (drawn(tokens, D, dtype=torch.bfloat16) for _ in range(2))
    turn = angles(torch.arange(tokens))
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-2, fused=True)

    def step() -> None:
        with torch.enable_grad():
            model(x, target, turn).backward()
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    return step


WAYS: dict[str, Callable[[Decoder], nn.Module]] = {
    "DDP": lambda model: whole(model, compiled=False),
    "FSDP": lambda model: cut(model, compiled=False),
    "DDP, torch.compile": lambda model: whole(model, compiled=True),
    "FSDP, torch.compile": lambda model: cut(model, compiled=True),
}


def main() -> None:
    options = arguments(__doc__).parse_args()
    rank, _ = started("cpu:gloo,cuda:nccl", options.gate)
    found: dict[str, float] = {}
    for name, way in WAYS.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        step = trained(way(Decoder(options.layers)), options.tokens)
        found[name] = seconds({"": OfTorch(step)}, slowest, turns=2)[""]
        print(f"{name}: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB", file=sys.stderr, flush=True)
        if rank == 0:
            print(json.dumps(found), flush=True)
    ended()


if __name__ == "__main__":
    main()
