"""Llama over the GPUs of a host as people write it by hand, with NCCL: Megatron's cut of heads and hidden units, with
and without its sequence parallelism, and context parallelism with balanced causal chunks and whole weights.

torchrun --nproc-per-node 2 benchmarks/gpu_by_hand.py [--layers 8] [--tokens 8192]     rank 0: one object of JSON

Shoeybi et al., arXiv:1909.08053; Korthikanti et al., arXiv:2205.05198; balanced chunks as in Llama 3, arXiv:2407.21783.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from gpu_jobs import passed  # type: ignore[import-not-found, unused-ignore]
from gpu_steps import OfTorch, graphed, seconds  # type: ignore[import-not-found, unused-ignore]
from gpu_torch import (  # type: ignore[import-not-found, unused-ignore]
    GROUPS,
    HEAD,
    HEADS,
    D,
    angles,
    decoder,
    drawn,
    gated,
    heads,
    mixed,
    normed,
    rotated,
)
from torch.nn.attention.bias import causal_lower_right

Step = Callable[[], Any]
Exchange = Callable[[torch.Tensor], torch.Tensor]


def slowest(value: float) -> float:
    """The largest of all ranks."""
    found = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return float(found.item())


def attended(x: torch.Tensor, layer: dict[str, torch.Tensor], turn: Any, world: int) -> torch.Tensor:
    """A rank's heads over all tokens: its share of the sum [t, d]."""
    q, k, v = heads(x, layer["qkv"], world)
    q, k = rotated(q, turn), rotated(k, turn)
    seen = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
    return mixed(seen, layer["o"])


def megatron(x: torch.Tensor, layers: list[dict[str, torch.Tensor]], turn: Any, world: int) -> torch.Tensor:
    """Two sums over the ranks a layer."""
    for layer in layers:
        x = x + in_sum(attended(of_all(normed(x, layer["attention_norm"])), layer, turn, world))
        x = x + in_sum(gated(of_all(normed(x, layer["mlp_norm"])), layer))
    return x


def sequence(x: torch.Tensor, layers: list[dict[str, torch.Tensor]], turn: Any, world: int) -> torch.Tensor:
    """The same with every rank's own tokens in between: each sum is a reduce-scatter, and a gather comes before."""
    for layer in layers:
        whole = gather(normed(x, layer["attention_norm"]))
        x = x + scatter(attended(whole, layer, turn, world))
        whole = gather(normed(x, layer["mlp_norm"]))
        x = x + scatter(gated(whole, layer))
    return x


def summed(part: torch.Tensor) -> torch.Tensor:
    """In place."""
    part = part.contiguous()
    dist.all_reduce(part)
    return part


def gathered(own: torch.Tensor) -> torch.Tensor:
    whole = own.new_empty(dist.get_world_size() * len(own), *own.shape[1:])
    dist.all_gather_into_tensor(whole, own.contiguous())
    return whole


def scattered(part: torch.Tensor) -> torch.Tensor:
    own = part.new_empty(len(part) // dist.get_world_size(), *part.shape[1:])
    dist.reduce_scatter_tensor(own, part.contiguous())
    return own


def across(forth: Exchange, back: Exchange) -> Exchange:
    """An exchange between the ranks, and what its gradient goes through."""

    class Across(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, sent: torch.Tensor) -> torch.Tensor:
            return forth(sent)

        @staticmethod
        def backward(_: Any, slope: torch.Tensor) -> torch.Tensor:
            return back(slope)

    return Across.apply  # type: ignore[no-any-return, unused-ignore]


def alone(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view_as(tensor)


in_sum, of_all = across(summed, alone), across(alone, summed)
gather, scatter = across(gathered, scattered), across(scattered, gathered)


def with_backward(step: Step, layers: list[dict[str, torch.Tensor]], tokens: int) -> Step:
    """The step, and the gradients of all weights of the mean of its squares; of norms each rank has the part of its
    own tokens."""
    learned = [weight.requires_grad_() for layer in layers for weight in layer.values()]

    def both() -> Any:
        with torch.enable_grad():
            return torch.autograd.grad(step().float().square().sum() / (tokens * D), learned)

    return both


class Context:
    """Every rank has all weights and two chunks of the tokens, one early and one late; keys and values are gathered."""

    def __init__(self, tokens: int, rank: int, world: int) -> None:
        self.world, self.chunk = world, tokens // (2 * world)
        self.mine = (rank, 2 * world - 1 - rank)
        lie = torch.tensor([c for r in range(world) for c in (r, 2 * world - 1 - r)])
        self.order = torch.argsort(lie)
        places = [torch.arange(c * self.chunk, (c + 1) * self.chunk) for c in self.mine]
        self.turn = angles(torch.cat(places))
        self.seen = [causal_lower_right(self.chunk, (c + 1) * self.chunk) for c in self.mine]
        self.beside = torch.cuda.Stream()

    def forward(self, x: torch.Tensor, layers: list[dict[str, torch.Tensor]]) -> torch.Tensor:
        for layer in layers:
            x = x + mixed(self.attended(normed(x, layer["attention_norm"]), layer["qkv"]), layer["o"])
            x = x + gated(normed(x, layer["mlp_norm"]), layer)
        return x

    def attended(self, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """What the rank's queries see of all keys; queries are made while keys travel."""
        ours, here = HEADS * HEAD, torch.cuda.current_stream()
        k, v = F.linear(y, weights[ours:]).view(len(y), 2, GROUPS, HEAD).permute(1, 2, 0, 3)
        sent = torch.stack((rotated(k, self.turn), v)).permute(2, 0, 1, 3).contiguous()
        whole = sent.new_empty(self.world * len(y), 2, GROUPS, HEAD)
        self.beside.wait_stream(here)
        with torch.cuda.stream(self.beside):
            dist.all_gather_into_tensor(whole, sent)
        q = rotated(F.linear(y, weights[:ours]).view(len(y), HEADS, HEAD).transpose(0, 1), self.turn)
        here.wait_stream(self.beside)
        for tensor in (sent, whole):
            tensor.record_stream(self.beside)
        lying = whole.view(2 * self.world, self.chunk, 2, GROUPS, HEAD)[self.order]
        keys, values = lying.flatten(0, 1).permute(1, 2, 0, 3)
        return torch.cat([self.part(q, keys, values, k) for k in range(2)], 1)

    def part(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, number: int) -> torch.Tensor:
        """One of the two chunks: its queries and the keys up to its end."""
        rows, end = slice(number * self.chunk, (number + 1) * self.chunk), (self.mine[number] + 1) * self.chunk
        k, v = keys[None, :, :end], values[None, :, :end]
        return F.scaled_dot_product_attention(q[None, :, rows], k, v, self.seen[number], enable_gqa=True)[0]


def contenders(options: argparse.Namespace, rank: int, world: int) -> dict[str, Callable[[], Step]]:
    """By name; each makes its weights when it is asked for."""
    tokens = options.tokens

    def made(share: int) -> list[dict[str, torch.Tensor]]:
        return [decoder(share) for _ in range(options.layers)]

    def cut(step: Any, own: int) -> Step:
        x, layers = drawn(own, D, dtype=torch.bfloat16), made(world)
        forward = partial(step, x, layers, angles(torch.arange(tokens)), world)
        return with_backward(forward, layers, tokens) if options.backward else forward

    def context() -> Step:
        x = drawn(tokens // world, D, dtype=torch.bfloat16)
        return partial(Context(tokens, rank, world).forward, x, made(1))

    found = {
        "Megatron": lambda: cut(megatron, tokens),
        "Megatron with sequence parallelism": lambda: cut(sequence, tokens // world),
    }
    return found if options.backward else {**found, "context parallel": context}


def arguments(description: str | None) -> argparse.ArgumentParser:
    """What every program here is told."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--gate", type=Path, help="when all is ready make GATE.ready, and go on when there is GATE.go")
    return parser


def started(backend: str, gate: Path | None) -> tuple[int, int]:
    """The rank and how many there are, when all are there and the gate is open; tensors are made on the rank's GPU."""
    rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    torch.cuda.set_device(local)
    dist.init_process_group(backend, device_id=torch.device("cuda", local))
    torch.set_default_device("cuda")
    torch.manual_seed(0)
    dist.barrier()
    passed(gate)
    return rank, world


def ended() -> NoReturn:
    """The process, at once: a group whose collectives a graph holds waits for ever when it is destroyed."""
    torch.cuda.synchronize()
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--backward", action="store_true")
    options = parser.parse_args()
    rank, world = started("nccl", options.gate)
    found: dict[str, float] = {}
    with torch.no_grad():
        for name, make in contenders(options, rank, world).items():
            for suffix, way in (("", lambda step: step), (", CUDA graph", graphed)):
                try:
                    found[name + suffix] = seconds({"": OfTorch(way(make()))}, slowest, turns=3)[""]
                except RuntimeError as error:  # a variant that torch does not have: the same on all ranks
                    print(f"{name}{suffix}: {error}", file=sys.stderr)
                if rank == 0:
                    print(json.dumps(found), flush=True)
    ended()


if __name__ == "__main__":
    main()
