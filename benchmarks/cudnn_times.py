"""How long cuDNN takes for grouped convolutions: what `kernels/cost/data/cudnn.json` is made from.

    python benchmarks/cudnn_times.py times.json [--limit 300] [--jobs 12] [--dense 400]

Layers of models come first, then others drawn at random, or with `--dense` so many layers of one group; what was
measured is written as it comes, and a second run goes on there. bf16, channels-last, `cudnn.benchmark` off unless asked
for, operands rotated past the L2, medians of events. cuDNN takes half a second for each pass that it meets for the
first time: with `--jobs` so many processes do that side by side, and time one at a time. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from tapestry.kernels.convolution.problem import MOST_WIDTH
from tapestry.kernels.cost.cudnn import Layer

CALLS = 8
MOST_ELEMENTS = 1 << 27


# Model: batch, then (extent, channels, width, filter, stride) of its distinct grouped layers.
MODELS: dict[str, tuple[int, tuple[tuple[int, int, int, int, int], ...]]] = {
    "efficientnet_b0": (128, (
        (112, 32, 1, 3, 1), (112, 96, 1, 3, 2), (56, 144, 1, 3, 1), (56, 144, 1, 5, 2), (28, 240, 1, 5, 1),
        (28, 240, 1, 3, 2), (14, 480, 1, 3, 1), (14, 480, 1, 5, 1), (14, 672, 1, 5, 1), (14, 672, 1, 5, 2),
        (7, 1152, 1, 5, 1), (7, 1152, 1, 3, 1),
    )),
    "convnext_tiny": (64, ((56, 96, 1, 7, 1), (28, 192, 1, 7, 1), (14, 384, 1, 7, 1), (7, 768, 1, 7, 1))),
    "resnext50": (128, (
        (56, 128, 4, 3, 1), (56, 256, 8, 3, 2), (28, 256, 8, 3, 1), (28, 512, 16, 3, 2), (14, 512, 16, 3, 1),
        (14, 1024, 32, 3, 2), (7, 1024, 32, 3, 1),
    )),
    "regnety_016": (128, (
        (112, 48, 24, 3, 2), (56, 48, 24, 3, 1), (56, 120, 24, 3, 2), (28, 120, 24, 3, 1), (28, 336, 24, 3, 2),
        (14, 336, 24, 3, 1), (14, 888, 24, 3, 2), (7, 888, 24, 3, 1),
    )),
    "mobilenetv3_large_100": (128, (
        (112, 16, 1, 3, 1), (112, 64, 1, 3, 2), (56, 72, 1, 3, 1), (56, 72, 1, 5, 2), (28, 120, 1, 5, 1),
        (28, 240, 1, 3, 2), (14, 200, 1, 3, 1), (14, 184, 1, 3, 1), (14, 480, 1, 3, 1), (14, 672, 1, 3, 1),
        (14, 672, 1, 5, 2), (7, 960, 1, 5, 1),
    )),
    "regnetx_032": (64, (
        (112, 96, 48, 3, 2), (56, 96, 48, 3, 1), (56, 192, 48, 3, 2), (28, 192, 48, 3, 1), (28, 432, 48, 3, 2),
        (14, 432, 48, 3, 1), (14, 1008, 48, 3, 2), (7, 1008, 48, 3, 1),
    )),
    "convnextv2_atto": (128, ((56, 40, 1, 7, 1), (28, 80, 1, 7, 1), (14, 160, 1, 7, 1), (7, 320, 1, 7, 1))),
    "efficientnet_b4": (32, (
        (190, 48, 1, 3, 1), (190, 144, 1, 3, 2), (95, 192, 1, 3, 1), (95, 192, 1, 5, 2), (48, 336, 1, 5, 1),
        (48, 336, 1, 3, 2), (24, 672, 1, 3, 1), (24, 960, 1, 5, 1), (24, 960, 1, 5, 2), (12, 1632, 1, 5, 1),
        (12, 2688, 1, 3, 1),
    )),
    "regnety_032": (64, (
        (112, 72, 24, 3, 2), (56, 72, 24, 3, 1), (56, 216, 24, 3, 2), (28, 216, 24, 3, 1), (28, 576, 24, 3, 2),
        (14, 576, 24, 3, 1), (14, 1512, 24, 3, 2), (7, 1512, 24, 3, 1),
    )),
    "edgenext_small": (64, ((64, 48, 1, 3, 1), (32, 96, 1, 5, 1), (16, 160, 1, 7, 1), (8, 304, 1, 9, 1))),
}  # fmt: skip
WIDTHS = (1, 1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 112, 120, 128)


def layers() -> Iterator[Layer]:
    """Without end: the models' and then others, always the same."""
    for batch, found in MODELS.values():
        for row in found:
            yield Layer(batch, *row)
    draw = random.Random(0)
    while True:
        width, extent = draw.choice(WIDTHS), draw.choice((7, 10, 12, 14, 20, 24, 28, 40, 56, 80, 112))
        channels = width * draw.choice((1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512))
        size, stride = draw.choice((1, 2, 3, 3, 3, 4, 5, 5, 6, 7)), draw.choice((1, 1, 2))
        batch = draw.choice((1, 4, 8, 16, 32, 64, 128, 256))
        if 16 <= channels <= 2048 and channels % 8 == 0 and batch * extent**2 * channels <= MOST_ELEMENTS:
            yield Layer(batch, extent, channels, width, size, stride)


def dense_layers() -> Iterator[Layer]:
    """Layers of one group of up to 128 channels, without end and always the same."""
    draw, seen = random.Random(1), set()
    while True:
        width, out = (8 * draw.randint(1, 16) for _ in range(2))
        out = draw.choice((width, width, 2 * width, out))
        extent, batch = draw.choice((7, 14, 16, 28, 32, 56, 64, 112, 128)), draw.choice((1, 8, 16, 32, 64, 128, 256))
        size, stride = draw.choice((1, 2, 2, 3, 3, 3, 3, 4, 5, 7)), draw.choice((1, 1, 2))
        layer = Layer(batch, extent, width, width, size, stride, None if out == width else out)
        if out <= MOST_WIDTH and layer not in seen and batch * extent**2 * max(width, out) <= MOST_ELEMENTS:
            seen.add(layer)
            yield layer


def calls_of(layer: Layer, memory: Any) -> list[Callable[[int], Any]]:
    """The forward pass, the input gradient and the weight gradient, each of operands in rotation."""
    import torch

    n, extent, channels, width, size, stride = layer[:6]
    groups, pad = channels // width, size // 2
    out, written = (extent + 2 * pad - size) // stride + 1, layer.channels_out or channels
    xs, dys = (
        [t.permute(0, 3, 1, 2) for t in memory[i].rotation((n, side, side, count), CALLS)]
        for i, side, count in ((0, extent, channels), (1, out, written))
    )
    w = torch.randn(written, width, size, size, device="cuda", dtype=torch.bfloat16)
    w = w.contiguous(memory_format=torch.channels_last)

    def forward(i: int) -> Any:
        return torch.nn.functional.conv2d(xs[i % len(xs)], w, None, stride, pad, 1, groups)

    def backward(mask: list[bool]) -> Any:
        again, steps = torch.ops.aten.convolution_backward, [[stride] * 2, [pad] * 2, [1, 1]]
        return lambda i: again(
            dys[i % len(dys)], xs[i % len(xs)], w, None, *steps, False, [0, 0], groups, [*mask, False]
        )

    return [forward, backward([True, False]), backward([False, True])]


def measure(given: argparse.Namespace) -> None:
    """This process's share of the layers."""
    import torch
    from gpu_timing import Pool, median_us  # type: ignore[import-not-found, unused-ignore]
    from model_steps import alone  # type: ignore[import-not-found, unused-ignore]

    torch.backends.cudnn.benchmark = given.cudnn_benchmark
    deadline = monotonic() + given.limit
    known, rows = {layer for layer, _ in rows_of(given.times)}, []
    memory = [Pool(torch.bfloat16, 1 << 29, seed) for seed in (0, 1)]
    first, step = given.share
    for layer in islice(dense_layers() if given.dense else layers(), first, given.dense or None, step):
        if monotonic() > deadline:
            return
        if layer in known:
            continue
        known.add(layer)
        calls = calls_of(layer, memory)
        for call in calls:
            call(0)  # prepared by cuDNN, beside the other processes
        torch.cuda.synchronize()
        with alone(given.lock):
            rows.append((layer, [round(median_us(call, CALLS), 2) for call in calls]))
        write(given.part or given.times, rows if given.part else [*rows_of(given.times), rows[-1]])


def side_by_side(given: argparse.Namespace) -> None:
    """Processes that each measure a share; what they leave is put together."""
    lock, parts = given.lock or given.times.with_suffix(".lock"), []
    command = [sys.executable, __file__, str(given.times), "--limit", str(given.limit), "--lock", str(lock)]
    command += ["--cudnn-benchmark"] if given.cudnn_benchmark else []
    command += ["--dense", str(given.dense)] if given.dense else []
    running = []
    for number in range(given.jobs):
        parts.append(given.times.with_suffix(f".{number}.json"))
        share = ["--share", str(number), str(given.jobs), "--part", str(parts[-1])]
        running.append(subprocess.Popen([*command, *share]))
    for process in running:
        process.wait()
    write(given.times, [*rows_of(given.times), *(row for part in parts for row in rows_of(part))])
    for part in parts:
        part.unlink(missing_ok=True)


def rows_of(path: Path) -> list[tuple[Layer, list[float]]]:
    """What was measured before."""
    return [(Layer(*layer), times) for layer, times in json.loads(path.read_text())] if path.exists() else []


def write(path: Path, rows: list[tuple[Layer, list[float]]]) -> None:
    lines = ",\n".join(json.dumps([list(layer), times]) for layer, times in dict(rows).items())
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=Path)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--dense", type=int, default=0, help="so many layers of one group instead")
    parser.add_argument("--lock", type=Path, help="a file that is locked while something is timed")
    parser.add_argument("--share", type=int, nargs=2, default=(0, 1), help="the first layer, and every how many")
    parser.add_argument("--part", type=Path, help="where this process's rows go")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="let cuDNN time its algorithms (2 s a layer)")
    given = parser.parse_args()
    if given.jobs > 1:
        side_by_side(given)
    else:
        measure(given)
    print(f"{len(rows_of(given.times))} layers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
