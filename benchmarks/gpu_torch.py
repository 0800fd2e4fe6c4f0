"""What a torch user has: the models of `make bench-gpu` in torch, as they are and compiled, on one GPU.

python benchmarks/gpu_torch.py llama|corners|convnet [--images 16]      one object of JSON: seconds of a step by name
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

BUSY_S, LEAST = 1.0, 20
D, FFN, HEADS, GROUPS, HEAD = 4096, 14336, 32, 8, 128


def seconds(step: Callable[[], Any]) -> float:
    """The median step of the later three quarters of a second of them, each timed on the GPU."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    once = _timed(step)
    times = [_timed(step) for _ in range(max(LEAST, int(BUSY_S / once)))]
    return median(times[len(times) // 4 :])


def _timed(step: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


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


def llama(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    layers = [decoder() for _ in range(options.layers)]
    x, turn = drawn(options.tokens, D, dtype=torch.bfloat16), angles(torch.arange(options.tokens))
    compiled = torch.compile(forward)
    return {
        "torch eager": lambda: forward(x, layers, turn),
        "torch.compile": lambda: compiled(x, layers, turn),
    }


# -- corners -------------------------------------------------------------------------------------------------------


def corners(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
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

    photo = torch.rand(options.side, options.side, 3) * 255
    compiled = torch.compile(harris)
    return {"torch eager": lambda: harris(photo), "torch.compile": lambda: compiled(photo)}


# -- convnet -------------------------------------------------------------------------------------------------------


def convnet(options: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """The example's network, images [n, c, y, x] whose channels lie together."""
    c, hidden = 96, 384

    def block() -> dict[str, torch.Tensor]:
        return {
            "window": drawn(c, 1, 7, 7, scale=1 / 7), "scale": torch.ones(c),
            "shift": torch.zeros(c), "grow": drawn(hidden, c, scale=c**-0.5),
            "shrink": drawn(c, hidden, scale=hidden**-0.5),
        }  # fmt: skip

    stem, blocks = drawn(c, 3, 4, 4, scale=1 / 7), [block() for _ in range(3)]
    images = drawn(options.images, 3, options.side, options.side).to(memory_format=torch.channels_last)

    def network(images: torch.Tensor) -> torch.Tensor:
        h = F.layer_norm(F.conv2d(images, stem, stride=4).permute(0, 2, 3, 1), (c,))
        for layer in blocks:
            mixed = F.conv2d(h.permute(0, 3, 1, 2), layer["window"], padding=3, groups=c).permute(0, 2, 3, 1)
            grown = F.gelu(F.linear(F.layer_norm(mixed, (c,), layer["scale"], layer["shift"]), layer["grow"]))
            h = h + F.linear(grown, layer["shrink"])
        return h

    compiled = torch.compile(network)
    return {"torch eager": lambda: network(images), "torch.compile": lambda: compiled(images)}


MODELS = {"llama": llama, "corners": corners, "convnet": convnet}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--side", type=int, default=2048)
    parser.add_argument("--images", type=int, default=1)
    options = parser.parse_args()
    torch.set_default_device("cuda")
    torch.manual_seed(0)
    # f32 is f32, as in the programs these stand beside.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    found: dict[str, float] = {}
    with torch.no_grad():
        for name, step in MODELS[options.model](options).items():
            found[name] = seconds(step)
            print(json.dumps(found), flush=True)
    if not all(math.isfinite(value) for value in found.values()):
        raise SystemExit("a time is not finite")


if __name__ == "__main__":
    main()
