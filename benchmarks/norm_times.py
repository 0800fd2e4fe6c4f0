"""Times of batch norms in training with the activations behind them, torch's beside ours, forward and backward.

    python benchmarks/norm_times.py [--json results.json] [--only 56x144 7x1152]

Of shapes of models, mostly at a batch of 128: GPU µs of a call in a CUDA graph over so many tensors that none is still
in the second cache, and what that is of the rate at which a copy moves the bytes that ours has to (x is read twice, y
written forward; x and dy are read twice and dx written backward). Then host µs of a call of a small layer.
Needs a GPU and torch; takes half a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

BATCH, POOL, MOST, ROUNDS = 128, 400 << 20, 24, 7
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "": nn.Identity,
    "relu": lambda: nn.ReLU(inplace=True),
    "silu": lambda: nn.SiLU(inplace=True),
    "hardswish": lambda: nn.Hardswish(inplace=True),
}


class Shape(NamedTuple):
    """Images of extent² x channels."""

    extent: int
    channels: int
    activation: str
    batch: int = BATCH
    residual: bool = False
    dtype: torch.dtype = torch.bfloat16

    @property
    def name(self) -> str:
        kind = "" if self.dtype is torch.bfloat16 else " f32"
        return f"{self.extent}x{self.channels} {self.activation or '-'}{' +' if self.residual else ''}{kind}"

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize * self.batch * self.extent**2 * self.channels

    @property
    def tensors(self) -> int:
        return min(MOST, max(2, POOL // self.bytes))


SHAPES = [
    Shape(112, 96, "silu"), Shape(112, 32, "silu"), Shape(112, 16, ""), Shape(56, 144, "silu"), Shape(56, 24, ""),
    Shape(28, 240, "silu"), Shape(28, 40, ""), Shape(14, 672, "silu"), Shape(14, 480, "silu"), Shape(14, 112, ""),
    Shape(14, 80, ""), Shape(7, 1280, "silu"), Shape(7, 1152, "silu"), Shape(7, 320, ""), Shape(7, 192, ""),
    Shape(112, 64, "relu"), Shape(56, 72, "relu"), Shape(28, 120, "relu"), Shape(14, 184, "hardswish"),
    Shape(7, 960, "hardswish"), Shape(7, 160, ""), Shape(56, 256, ""), Shape(56, 256, "relu", residual=True),
    Shape(14, 1024, "relu", residual=True), Shape(7, 2048, ""), Shape(14, 888, "relu"), Shape(7, 1152, "silu", 8),
    Shape(14, 80, "", 8), Shape(7, 64, "relu", 2), Shape(28, 12, "relu"), Shape(28, 17, "relu"), Shape(28, 18, "relu"),
    Shape(112, 64, "relu", dtype=torch.float32), Shape(28, 240, "silu", dtype=torch.float32),
    Shape(7, 192, "", dtype=torch.float32), Shape(28, 17, "relu", dtype=torch.float32), Shape(7, 2048, "", 16),
]  # fmt: skip


class Case:
    """One shape: torch's layers and ours, and tensors in turn."""

    def __init__(self, shape: Shape) -> None:
        from tapestry.kernels.layers.norms import NormAct2d

        torch.manual_seed(0)
        self.shape = shape
        norm, self.act = nn.BatchNorm2d(shape.channels, device="cuda"), ACTIVATIONS[shape.activation]()
        self.norm = norm
        self.ours = NormAct2d(norm, ACTIVATIONS[shape.activation]())
        extents = (shape.batch, shape.channels, shape.extent, shape.extent)

        def made() -> Tensor:
            x = torch.randn(extents, device="cuda", dtype=shape.dtype)
            return x.contiguous(memory_format=torch.channels_last)

        count = shape.tensors
        self.xs, self.dys = [made().requires_grad_() for _ in range(count)], [made() for _ in range(count)]
        self.residuals = [made().requires_grad_() if shape.residual else None for _ in range(count)]

    def forward(self, ours: bool, k: int) -> Tensor:
        x, residual = self.xs[k], self.residuals[k]
        if ours:
            made: Tensor = self.ours(x, residual)
            return made
        y = self.norm(x)
        if residual is not None:
            y += residual
        result: Tensor = self.act(y)
        return result

    def passes(self, ours: bool) -> tuple[float, float]:
        """µs of a call forward, and backward."""
        count, kept = self.shape.tensors, []

        def forward() -> None:
            kept[:] = [self.forward(ours, k) for k in range(count)]

        def both() -> None:
            forward()
            for k in range(count):
                given = [t for t in (self.xs[k], self.residuals[k], self.norm.weight, self.norm.bias) if t is not None]
                torch.autograd.grad(kept[k], given, self.dys[k])

        one, two = graph_us(forward) / count, graph_us(both) / count
        return one, two - one


def graph_us(call: Callable[[], Any]) -> float:
    """Median µs of a replay."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    for _ in range(ROUNDS):
        graph.replay()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(found)


def copy_rate() -> float:
    """Bytes read and written a second, by the simplest kernel there is."""
    a = torch.zeros(1 << 29, dtype=torch.bfloat16, device="cuda")
    b = torch.empty_like(a)
    return 4 * a.numel() / graph_us(lambda: torch.neg(a, out=b)) * 1e6


def host_us(call: Callable[[], Any]) -> float:
    found = []
    for _ in range(9):
        torch.cuda.synchronize()
        begun = perf_counter()
        for _ in range(40):
            call()
        found.append((perf_counter() - begun) / 40 * 1e6)
    torch.cuda.synchronize()
    return statistics.median(found)


def hosts(shape: Shape) -> dict[str, float]:
    case, found = Case(shape), {}
    for who, ours in (("torch", False), ("ours", True)):
        given = [case.xs[0], case.norm.weight, case.norm.bias]

        def both(ours: bool = ours, given: list[Tensor] = given) -> None:
            torch.autograd.grad(case.forward(ours, 0), given, case.dys[0])

        found[f"{who} forward"] = host_us(lambda ours=ours: case.forward(ours, 0))
        found[f"{who} forward + backward"] = host_us(both)
    return {what: round(us, 1) for what, us in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="where the figures go too")
    parser.add_argument("--only", nargs="+", help="shapes, as they are printed, without the activation")
    given, rows = parser.parse_args(), {}
    rate = copy_rate()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {rate / 1e12:.2f} TB/s")
    heads = ("forward: torch", "backward: torch")
    print(f"{'shape':<22}" + "".join(f"{head:>17}{'ours':>8}{'x':>7}{'share':>7}" for head in heads))
    for shape in SHAPES:
        if given.only and shape.name.split()[0] not in given.only:
            continue
        case = Case(shape)
        theirs, ours = case.passes(False), case.passes(True)
        least = [n * shape.bytes / rate * 1e6 for n in ((4, 7) if shape.residual else (3, 5))]
        cells = "".join(
            f"{a:>{w}.1f}{b:>8.1f}{a / b:>7.2f}{least[i] / b:>7.2f}"
            for i, (a, b, w) in enumerate(zip(theirs, ours, (17, 17), strict=True))
        )
        print(f"{shape.name + (f', {shape.batch}' if shape.batch != BATCH else ''):<22}{cells}", flush=True)
        rows[f"{shape.name}, {shape.batch}"] = [*theirs, *ours, *least]
        del case
        torch.cuda.empty_cache()
    host = hosts(Shape(7, 64, "silu", 2))
    print("host µs:", ", ".join(f"{what} {us}" for what, us in host.items()))
    if given.json:
        given.json.write_text(json.dumps({"copy": rate, "rows": rows, "host": host}, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
