"""A grouped convolution whose rows lie on several GPUs: halo rows beside the shard, interior first, or the usual way.

The usual way exchanges the halos, concatenates them with the shard and convolves. Needs two GPUs or more, torch with
CUDA, and CuPy. `python benchmarks/sharded_convolution.py [--devices 2]` prints a table in Markdown; times are of one
step of all GPUs together, over many steps queued at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

STEPS, ROUNDS = 60, 7
# n, h = w, c, filter; group width 8
COLUMNS = (
    "N x H=W x C, filter", "one GPU, whole", "shards, no halo", "halo beside, overlapped", "exchange, concatenate",
    "exchange alone", "same",
)  # fmt: skip
SHAPES = [(64, 64, 64, 3), (64, 128, 64, 3), (256, 64, 64, 3), (32, 128, 256, 5), (8, 512, 64, 5)]


@dataclass
class Shard:
    """What one GPU has: its rows, room for its neighbours', its result, streams for work and for copies."""

    device: int
    x: Any
    w: Any
    y: Any
    above: Any
    below: Any
    work: Any
    copies: Any


def shards_of(shape: tuple[int, int, int, int], devices: int) -> list[Shard]:
    """Random shards of equal rows."""
    import torch

    n, size, c, k = shape
    found = []
    for device in range(devices):
        with torch.cuda.device(device):
            rows = (device + 1) * size // devices - device * size // devices
            x = torch.randn(n, rows, size, c, device="cuda").half()
            halo = [torch.zeros(n, k // 2, size, c, device="cuda").half() for _ in range(2)]
            above, below = (halo[0] if device else None), (halo[1] if device + 1 < devices else None)
            w = torch.randn(c, k, k, 8, device="cuda").half()
            streams = torch.cuda.Stream(), torch.cuda.Stream()
            found.append(Shard(device, x, w, torch.empty_like(x), above, below, *streams))
    return found


def exchange(shards: list[Shard], shard: Shard) -> Any:
    """Copies of the neighbours' rows on the shard's own stream for copies; the event behind them."""
    import torch

    arrived = torch.cuda.Event()
    with torch.cuda.stream(shard.copies):
        if shard.above is not None:
            shard.above.copy_(shards[shard.device - 1].x[:, -shard.above.shape[1] :], non_blocking=True)
        if shard.below is not None:
            shard.below.copy_(shards[shard.device + 1].x[:, : shard.below.shape[1]], non_blocking=True)
        arrived.record()
    return arrived


def step_beside(shards: list[Shard], k: int) -> None:
    """Interior first, the boundary when the halo is there."""
    import torch

    from tapestry.kernels.sharded import conv2d_shard

    for shard in shards:
        with torch.cuda.device(shard.device):
            shard.copies.wait_stream(shard.work)  # the step before has read the halo
            arrived = exchange(shards, shard)
            with torch.cuda.stream(shard.work):
                halo = {"above": shard.above, "below": shard.below, "arrived": arrived}
                conv2d_shard(shard.x, shard.w, **halo, groups=shard.x.shape[3] // 8, padding=k // 2, out=shard.y)


def step_concatenated(shards: list[Shard], k: int) -> None:
    """Exchange, concatenate, convolve: our kernel too, so that only the way differs."""
    import torch

    from tapestry.kernels.conv2d import conv2d

    side = k // 2
    for shard in shards:
        with torch.cuda.device(shard.device):
            shard.copies.wait_stream(shard.work)
            arrived = exchange(shards, shard)
            with torch.cuda.stream(shard.work):
                shard.work.wait_event(arrived)
                parts = [part for part in (shard.above, shard.x, shard.below) if part is not None]
                padding = (0 if shard.above is not None else side, 0 if shard.below is not None else side, side, side)
                conv2d(torch.cat(parts, dim=1), shard.w, groups=shard.x.shape[3] // 8, padding=padding, out=shard.y)


def step_exchange(shards: list[Shard], k: int) -> None:
    """The copies alone."""
    import torch

    del k
    for shard in shards:
        with torch.cuda.device(shard.device):
            exchange(shards, shard)


def step_local(shards: list[Shard], k: int) -> None:
    """The shards alone, as if there were no neighbours: what the arithmetic and the memory take."""
    import torch

    from tapestry.kernels.conv2d import conv2d

    for shard in shards:
        with torch.cuda.device(shard.device), torch.cuda.stream(shard.work):
            conv2d(shard.x, shard.w, groups=shard.x.shape[3] // 8, padding=k // 2, out=shard.y)


def step_us(step: Callable[[list[Shard], int], None], shards: list[Shard], k: int) -> float:
    """Microseconds of one step: the least of several rounds of many steps queued behind a pause."""
    import torch

    from tapestry.kernels.cost.gpu import tuned_gpu

    def synchronize() -> None:
        for shard in shards:
            torch.cuda.synchronize(shard.device)

    for _ in range(3):
        step(shards, k)
    synchronize()
    begun = perf_counter()
    for _ in range(STEPS):
        step(shards, k)
    queued = perf_counter() - begun
    synchronize()
    best = float("inf")
    for _ in range(ROUNDS):
        ends = []
        for shard in shards:
            with torch.cuda.device(shard.device), torch.cuda.stream(shard.work):
                torch.cuda._sleep(int((2 * queued + 1e-3) * tuned_gpu().clock_hz))
                shard.copies.wait_stream(shard.work)
                start = torch.cuda.Event(enable_timing=True)
                start.record()
                ends.append((start, torch.cuda.Event(enable_timing=True)))
        for _ in range(STEPS):
            step(shards, k)
        for shard, (_, end) in zip(shards, ends, strict=True):
            with torch.cuda.device(shard.device), torch.cuda.stream(shard.work):
                shard.work.wait_stream(shard.copies)
                end.record()
        synchronize()
        best = min(best, max(start.elapsed_time(end) for start, end in ends) / STEPS * 1e3)
    return best


def right(shards: list[Shard], k: int) -> bool:
    """Whether both ways give the same bits."""
    import torch

    results = []
    for step in (step_beside, step_concatenated):
        for shard in shards:
            shard.y.fill_(float("nan"))
            torch.cuda.synchronize(shard.device)
        step(shards, k)
        for shard in shards:
            torch.cuda.synchronize(shard.device)
        results.append([shard.y.clone() for shard in shards])
    return all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=2)
    devices = parser.parse_args().devices
    try:
        import torch

        there = torch.cuda.device_count()
    except ImportError as error:
        print(f"torch is not installed ({error})", file=sys.stderr)
        return 2
    if there < devices:
        print(f"needs {devices} GPUs and there are {there}: --devices says how many to use", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, {devices} GPUs, µs a step\n")
    print("| " + " | ".join(COLUMNS) + " |\n| --- |" + " ---: |" * (len(COLUMNS) - 2) + " --- |")
    for shape in SHAPES:
        n, size, c, k = shape
        alone, shards = shards_of(shape, 1), shards_of(shape, devices)
        same = right(shards, k)
        times = [step_us(step_local, alone, k)]
        times += [step_us(step, shards, k) for step in (step_local, step_beside, step_concatenated, step_exchange)]
        print(f"| {n} x {size} x {c}, {k}x{k} | " + " | ".join(f"{t:.1f}" for t in times) + f" | {same} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
