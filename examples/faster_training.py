"""A torch model trained as it is, and with kernels in place of its layers: the same losses, on a GPU in less time.

    python examples/faster_training.py
    python examples/faster_training.py --size 112 --width 64 --batch 128    # on a GPU, where kernels are

Two calls do it: `fuse_for_training(model)` before training, `fuse_for_inference(model)` after it. Without a GPU the
fused layers are torch's own functions, so that all but the times can be seen anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import tapestry.kernels.torch as tk
from tapestry.kernels.warm_up import warm_up

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HELD_BACK = 360  # images of scikit-learn's 1,797 that are not learned from


class SqueezeExcite(nn.Module):
    """Each channel of an image times a number that the means of all of them say."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool, self.act, self.gate = nn.AdaptiveAvgPool2d(1), nn.SiLU(), nn.Sigmoid()
        self.squeeze, self.expand = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = self.gate(self.expand(self.act(self.squeeze(self.pool(x)))))
        return x * gate


class Inverted(nn.Module):
    """EfficientNet's block: channels are spread, filtered one by one, weighed, and brought together again."""

    def __init__(self, channels: int, filter: int) -> None:
        super().__init__()
        wide = 4 * channels
        self.spread, self.norm1, self.act1 = nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU()
        self.filter = nn.Conv2d(wide, wide, filter, padding=filter // 2, groups=wide, bias=False)
        self.norm2, self.act2, self.excite = nn.BatchNorm2d(wide), nn.SiLU(), SqueezeExcite(wide)
        self.gather, self.norm3 = nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act1(self.norm1(self.spread(x)))
        y = self.excite(self.act2(self.norm2(self.filter(y))))
        y = self.norm3(self.gather(y))
        return y + x


class ConvNeXt(nn.Module):
    """ConvNeXt's: large filters of single channels, a norm over channels, a small network of each pixel, a scale."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.filter = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.up, self.act = nn.LayerNorm(channels), nn.Linear(channels, 4 * channels), nn.GELU()
        self.down, self.gamma = nn.Linear(4 * channels, channels), nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(self.act(self.up(self.norm(self.filter(x).permute(0, 2, 3, 1)))))
        return x + y.permute(0, 3, 1, 2) * self.gamma.view(1, -1, 1, 1)


def network(width: int) -> nn.Module:
    """Images [n, 3, y, x] -> logits [n, 10]."""
    torch.manual_seed(0)
    made: Any = nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.SiLU(),
        Inverted(width, 3), Inverted(width, 5), nn.AvgPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1, groups=width // 8, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
        ConvNeXt(2 * width), ConvNeXt(2 * width),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip
    model: nn.Module = made.to(DEVICE, memory_format=torch.channels_last)
    return model


def data(size: int) -> tuple[Tensor, Tensor]:
    """scikit-learn's digits in a fixed order, drawn larger: images [n, 3, size, size] in [0, 1], labels."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(1))
    images = torch.tensor(digits.images, dtype=torch.float32)[order, None] / 16
    images = functional.interpolate(images, size=(size, size)).expand(-1, 3, -1, -1)
    labels = torch.tensor(digits.target)[order]
    return images.to(DEVICE, memory_format=torch.channels_last), labels.to(DEVICE)


def lowered() -> contextlib.AbstractContextManager[Any]:
    """bf16 autocast on a GPU; f32 elsewhere."""
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False) if DEVICE == "cuda" else contextlib.nullcontext()


def batches(images: Tensor, labels: Tensor, size: int, steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Each of the images that are learned from in turn."""
    count = len(labels) - HELD_BACK
    for step in range(steps):
        chosen = torch.arange(step * size, (step + 1) * size, device=DEVICE) % count
        yield images[chosen], labels[chosen]


def trained(model: nn.Module, given: tuple[Tensor, Tensor], size: int, steps: int) -> list[float]:
    """The losses of steps of AdamW, whose rate goes down to nothing: then running statistics are those of the end."""
    optimizer, losses = torch.optim.AdamW(model.train().parameters(), 2e-3), []
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for images, labels in batches(*given, size, steps):
        optimizer.zero_grad()
        with lowered():
            loss = functional.cross_entropy(model(images).float(), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return [float(loss) for loss in losses]


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images held back whose largest logit is that of their label."""
    with lowered():
        found = model.eval()(images[-HELD_BACK:]).argmax(1)
    return float((found == labels[-HELD_BACK:]).float().mean())


def milliseconds(call: Callable[[], object], times: int = 20) -> float:
    """Of a call, the least of three runs of so many."""
    found = []
    for _ in range(4):  # the first one warms up
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(times):
            call()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - began) / times * 1e3)
    return min(found[1:])


def step_times(model: nn.Module, x: Tensor) -> tuple[float, float]:
    """Forward and backward, called and captured in a CUDA graph, ms."""

    def step(network: Callable[[Tensor], Tensor]) -> None:
        with lowered():
            torch.autograd.backward(network(x).float().sum())

    called, to_capture = copy.deepcopy(model).train(), copy.deepcopy(model).train()
    eager = milliseconds(lambda: step(called))
    with lowered():
        captured: Any = torch.cuda.make_graphed_callables(to_capture, (x,))
    return eager, milliseconds(lambda: step(captured))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--steps", type=int, default=120)
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--size", type=int, default=32, help="rows and columns of an image")
    options.add_argument("--width", type=int, default=16, help="channels behind the first layer, a multiple of 8")
    given = options.parse_args()
    images, labels = data(given.size)
    plain, fused = network(given.width), network(given.width)
    print(tk.fuse_for_training(fused))
    if DEVICE == "cuda":
        with lowered():
            warm_up(fused, images[: given.batch], progress=True)
    ends = {}
    for name, model in {"as it was": plain, "fused": fused}.items():
        losses = trained(model, (images, labels), given.batch, given.steps)
        ends[name] = losses[-1]
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, accuracy {accuracy(model, images, labels):.1%}")
    print(f"last losses apart: {abs(ends['fused'] - ends['as it was']):.1e}")
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float32
    served = tk.fuse_for_inference(fused, dtype)
    with torch.autocast(DEVICE, enabled=False):
        print(f"fused for inference, {dtype}: accuracy {accuracy(served, images.to(dtype), labels):.1%}")
    if DEVICE != "cuda":
        print("no GPU here: torch computed all of it, and there is nothing to time")
        return
    x = images[: given.batch]
    for name, model in {"as it was": plain, "fused": fused}.items():
        eager, captured = step_times(model, x)
        print(f"{name}: forward and backward {eager:.2f} ms, in a CUDA graph {captured:.2f} ms")


if __name__ == "__main__":
    main()
