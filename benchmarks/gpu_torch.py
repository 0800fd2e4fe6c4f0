"""What a torch user has: the models of `make bench-gpu` in torch, as they are and compiled, on one GPU.

python benchmarks/gpu_torch.py MODEL [NAME=N ...]     seconds of a step by name, as JSON
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from gpu_steps import OfTorch, graphed, seconds  # type: ignore[import-not-found, unused-ignore]

D, FFN, HEADS, GROUPS, HEAD = 4096, 14336, 32, 8, 128


def drawn(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(shape) * scale).to(dtype)


# -- Llama ---------------------------------------------------------------------------------------------------------


def decoder(share: int = 1) -> dict[str, torch.Tensor]:
    """Weights of a decoder layer, or of one of so many equal parts of its heads and hidden units."""

    def weight(rows: int, columns: int) -> torch.Tensor:
        return drawn(rows, columns, scale=D**-0.5, dtype=torch.bfloat16)

    ones = torch.ones(D, dtype=torch.bfloat16)
    rows = (HEADS + 2 * GROUPS) * HEAD // share
    return {
        "attention_norm": ones, "mlp_norm": ones.clone(),
        "qkv": weight(rows, D), "o": weight(D, HEADS * HEAD // share),
        "gate_up": weight(2 * FFN // share, D), "down": weight(D, FFN // share),
    }  # fmt: skip


def angles(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of rotary positions, [1, t, HEAD]."""
    rates = 500000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
    turned = torch.outer(positions.float(), rates).repeat(1, 2)
    return turned.cos().bfloat16()[None], turned.sin().bfloat16()[None]


def rotated(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary embedding of heads [h, t, e]."""
    low, high = x.chunk(2, -1)
    return x * turn[0] + torch.cat((-high, low), -1) * turn[1]


def heads(y: torch.Tensor, weights: torch.Tensor, share: int = 1) -> list[torch.Tensor]:
    """Queries, keys and values [h, t, e] of normed activations [t, d]."""
    sizes = [HEADS * HEAD // share, GROUPS * HEAD // share, GROUPS * HEAD // share]
    return [part.view(len(y), -1, HEAD).transpose(0, 1) for part in F.linear(y, weights).split(sizes, -1)]


def mixed(seen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What heads saw [h, t, e], put together [t, d]."""
    return F.linear(seen.transpose(0, 1).flatten(1), weights)


def gated(y: torch.Tensor, layer: dict[str, torch.Tensor]) -> torch.Tensor:
    gate, up = F.linear(y, layer["gate_up"]).chunk(2, -1)
    return F.linear(F.silu(gate) * up, layer["down"])


def normed(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (D,), gain, 1e-5)


def forward(x: torch.Tensor, layers: list[dict[str, torch.Tensor]], turn: Any) -> torch.Tensor:
    for layer in layers:
        q, k, v = heads(normed(x, layer["attention_norm"]), layer["qkv"])
        q, k = rotated(q, turn), rotated(k, turn)
        seen = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=True)[0]
        x = x + mixed(seen, layer["o"])
        x = x + gated(normed(x, layer["mlp_norm"]), layer)
    return x


Model = Callable[[], Any]


def llama(*, layers: int = 8, tokens: int = 8192) -> Model:
    weights = [decoder() for _ in range(layers)]
    x, turn = drawn(tokens, D, dtype=torch.bfloat16), angles(torch.arange(tokens))
    return partial(forward, x, weights, turn)


def llama_step(*, layers: int = 8, tokens: int = 8192) -> Model:
    """A step of training of `examples/llama.py`; AdamW as one kernel."""
    weights, gain = [decoder() for _ in range(layers)], torch.ones(D, dtype=torch.bfloat16)
    learned = [weight.requires_grad_() for layer in weights for weight in layer.values()] + [gain.requires_grad_()]
    x, target = (drawn(tokens, D, dtype=torch.bfloat16) for _ in range(2))
    turn = angles(torch.arange(tokens))
    adamw = torch.optim.AdamW(learned, lr=1e-4, weight_decay=1e-2, fused=True, capturable=True)

    def step() -> torch.Tensor:
        with torch.enable_grad():
            away = normed(forward(x, weights, turn), gain).float() - target.float()
            loss = away.square().mean()
            for weight, grad in zip(learned, torch.autograd.grad(loss, learned), strict=True):
                weight.grad = grad
        adamw.step()
        return loss

    return step


def decoded(
    token: torch.Tensor, at: torch.Tensor, table: torch.Tensor, layers: list[dict[str, torch.Tensor]],
    caches: list[tuple[torch.Tensor, torch.Tensor]], turns: Any, out: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """The logits after one token more; keys and values [g, s, e] are cached."""
    x, turn = table[token], tuple(part[:, at] for part in turns)
    seen = torch.arange(caches[0][0].shape[1], device=x.device) <= at
    for layer, (keys, values) in zip(layers, caches, strict=True):
        q, k, v = heads(normed(x, layer["attention_norm"]), layer["qkv"])
        q, k = rotated(q, turn), rotated(k, turn)
        keys.index_copy_(1, at, k)
        values.index_copy_(1, at, v)
        scores = (q.view(GROUPS, HEADS // GROUPS, HEAD) @ keys.transpose(1, 2)) * HEAD**-0.5
        shares = scores.float().masked_fill(~seen, -torch.inf).softmax(-1).to(x.dtype)
        x = x + mixed((shares @ values).view(HEADS, 1, HEAD), layer["o"])
        x = x + gated(normed(x, layer["mlp_norm"]), layer)
    return F.linear(normed(x, torch.ones_like(x[0])), out)


def decode(*, layers: int = 8, context: int = 8192, vocabulary: int = 128256) -> Model:
    weights = [decoder() for _ in range(layers)]
    caches = [tuple(drawn(GROUPS, context, HEAD, dtype=torch.bfloat16) for _ in "kv") for _ in range(layers)]
    table, out = (drawn(vocabulary, D, scale=D**-0.5, dtype=torch.bfloat16) for _ in range(2))
    token, at = torch.tensor([7]), torch.tensor([4000])
    return partial(decoded, token, at, table, weights, caches, angles(torch.arange(context)), out)


# -- corners -------------------------------------------------------------------------------------------------------


def corners(*, side: int = 4096) -> Model:
    """The example's Harris corners with cuDNN's convolutions; TF32, which torch allows them, loses three digits."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
    import corners as example  # type: ignore[import-not-found, unused-ignore]

    radius, k, weights = example.RADIUS, example.K, torch.tensor(example.WEIGHTS)
    brightness = torch.tensor([0.299, 0.587, 0.114]) / 255
    smooth, slope = torch.tensor([1.0, 2.0, 1.0]), torch.tensor([-1.0, 0.0, 1.0])
    sobel = torch.stack([torch.outer(smooth, slope), torch.outer(slope, smooth)])[:, None]

    def harris(photo: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        grey = (photo * brightness).sum(-1)[None, None]
        gx, gy = F.conv2d(grey, sobel, padding=1)[0]
        products = torch.stack((gx * gx, gy * gy, gx * gy))[:, None]
        tall = F.conv2d(products, weights.view(1, 1, -1, 1), padding=(radius, 0))
        xx, yy, xy = F.conv2d(tall, weights.view(1, 1, 1, -1), padding=(0, radius))[:, 0]
        response = xx * yy - xy * xy - k * (xx + yy) ** 2
        around = F.max_pool2d(response[None, None], 3, 1, 1)[0, 0]
        return response, torch.where((response >= around) & (response > 0.5), response, 0.0)

    return partial(harris, torch.rand(side, side, 3) * 255)


# -- convnet -------------------------------------------------------------------------------------------------------


def convnet(*, images: int = 1, side: int = 2048) -> Model:
    """The example's network, images [n, c, y, x] whose channels lie together."""
    c, hidden = 96, 384

    def block() -> dict[str, torch.Tensor]:
        return {
            "window": drawn(c, 1, 7, 7, scale=1 / 7), "scale": torch.ones(c),
            "shift": torch.zeros(c), "grow": drawn(hidden, c, scale=c**-0.5),
            "shrink": drawn(c, hidden, scale=hidden**-0.5),
        }  # fmt: skip

    stem, blocks = drawn(c, 3, 4, 4, scale=1 / 7), [block() for _ in range(3)]
    photos = drawn(images, 3, side, side).to(memory_format=torch.channels_last)

    def network(images: torch.Tensor) -> torch.Tensor:
        h = F.layer_norm(F.conv2d(images, stem, stride=4).permute(0, 2, 3, 1), (c,))
        for layer in blocks:
            mixed = F.conv2d(h.permute(0, 3, 1, 2), layer["window"], padding=3, groups=c).permute(0, 2, 3, 1)
            grown = F.gelu(F.linear(F.layer_norm(mixed, (c,), layer["scale"], layer["shift"]), layer["grow"]))
            h = h + F.linear(grown, layer["shrink"])
        return h

    return partial(network, photos)


# -- smaller ones --------------------------------------------------------------------------------------------------


def perceptron(*, rows: int = 8192, inputs: int = 784, hidden: int = 4096, outputs: int = 10) -> Model:
    """Three products of `examples/mlp.py`."""
    sizes = (inputs, hidden, hidden, outputs)
    weights = [drawn(a, b, scale=a**-0.5) for a, b in pairwise(sizes)]
    shifts = [torch.zeros(b) for b in sizes[1:-1]]

    def layers(x: torch.Tensor) -> torch.Tensor:
        for weight, shift in zip(weights[:-1], shifts, strict=True):
            x = F.gelu(x @ weight + shift)
        return (x @ weights[-1]).softmax(-1)

    return partial(layers, drawn(rows, inputs))


def moe(*, t: int = 512, d: int = 64, x: int = 8, f: int = 256, room: float = 1.25) -> Model:
    """`examples/moe.py`: the place of a token left out is one row more."""
    capacity = max(1, int(room * t / x))
    router, w_in = drawn(d, x, scale=d**-0.5), drawn(x, d, f, scale=d**-0.5)
    w_out = drawn(x, f, d, scale=f**-0.5)

    def layer(tokens: torch.Tensor) -> torch.Tensor:
        gate, expert = (tokens @ router).softmax(-1).max(-1)
        before = F.one_hot(expert, x).cumsum(0).gather(1, expert[:, None])[:, 0] - 1
        place = torch.where(before < capacity, expert * capacity + before, x * capacity)
        held = tokens.new_zeros(x * capacity + 1, d).index_copy_(0, place, tokens)[:-1]
        computed = F.relu(held.view(x, capacity, d) @ w_in) @ w_out
        return gate[:, None] * F.pad(computed.view(-1, d), (0, 0, 0, 1))[place]

    return partial(layer, drawn(t, d))


def digits(*, n: int = 512) -> Model:
    """A step of training of `examples/digits.py`; AdamW as one kernel."""
    shapes = {"w1": (16, 1, 3, 3), "b1": (16,), "w2": (32, 16, 3, 3), "b2": (32,), "w3": (128, 10), "b3": (10,)}
    weights = {name: (0.1 * drawn(*shape)).requires_grad_() for name, shape in shapes.items()}
    images, labels = torch.rand(n, 1, 8, 8), torch.randint(10, (n,))
    adamw = torch.optim.AdamW(weights.values(), lr=3e-3, weight_decay=1e-2, fused=True, capturable=True)

    def step() -> torch.Tensor:
        with torch.enable_grad():
            h = F.max_pool2d(F.relu(F.conv2d(images, weights["w1"], weights["b1"], padding=1)), 2)
            h = F.max_pool2d(F.relu(F.conv2d(h, weights["w2"], weights["b2"], padding=1)), 2)
            loss = F.cross_entropy(h.flatten(1) @ weights["w3"] + weights["b3"], labels)
            for weight, grad in zip(weights.values(), torch.autograd.grad(loss, list(weights.values())), strict=True):
                weight.grad = grad
        adamw.step()
        return loss

    return step


MODELS: dict[str, Callable[..., Model]] = {
    "llama": llama, "decode": decode, "corners": corners, "convnet": convnet, "perceptron": perceptron, "moe": moe,
    "digits": digits, "llama_step": llama_step,
}  # fmt: skip


def contenders(model: str, **extents: int) -> dict[str, Callable[[], Any]]:
    """What a torch user has: as it is, compiled, and either as one CUDA graph. Each has run once; one that torch
    refuses is left out, and said.
    """
    torch.manual_seed(0)
    # f32 is f32, as in the programs these stand beside.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    with torch.device("cuda"):
        eager = MODELS[model](**extents)
    ways: dict[str, Callable[[], Callable[[], Any]]] = {
        "torch eager": lambda: eager, "torch eager, CUDA graph": lambda: graphed(eager),
        "torch.compile": lambda: torch.compile(eager),
        "torch.compile, CUDA graph": lambda: graphed(found["torch.compile"]),
    }  # fmt: skip
    found: dict[str, Callable[[], Any]] = {}
    for name, way in ways.items():
        try:
            step = way()
            step()
            torch.cuda.synchronize()
            found[name] = step
        except Exception as error:  # whatever torch says: the others are still to be measured
            print(f"{model}, {name}: {error}"[:300], file=sys.stderr)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("extents", nargs="*", metavar="NAME=N")
    options = parser.parse_args()
    extents = {name: int(value) for name, value in (one.split("=") for one in options.extents)}
    with torch.no_grad():
        steps = {name: OfTorch(step) for name, step in contenders(options.model, **extents).items()}
        print(json.dumps(seconds(steps)), flush=True)


if __name__ == "__main__":
    main()
