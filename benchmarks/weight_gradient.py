"""The weight gradient on one GPU: right on every shape of the test list, then timed in every configuration.

    python benchmarks/weight_gradient.py correct [--each 2] [--only TEXT]
    python benchmarks/weight_gradient.py time [--only TEXT] [--limit 400] [--out FILE]

Timing: medians by events, inputs rotated past the L2, beside cuDNN and the copy ceiling of the same run. The share is
(x + dy + dw once each) / time / ceiling.
"""

# ruff: noqa: E402 (the checkout and the list of shapes are put on the path first)
from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "tests/kernels")]

import torch
from shapes import SHAPES, TABLE

from tapestry.kernels.convolution.launch import View
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.weight_gradient import kernel_names, run, source, workspace_bytes
from tapestry.kernels.convolution.weight_gradient_candidates import configurations
from tapestry.kernels.convolution.weight_gradient_configuration import WeightGradientConfiguration
from tapestry.kernels.cost.gpu import described_gpu
from tapestry.kernels.runtime.device import properties

Job = tuple[ConvolutionProblem, WeightGradientConfiguration]
TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def compile_job(text_and_name: tuple[str, str]) -> str | None:
    """Fill the disk cache; a message where registers were spilled."""
    from tapestry.kernels.runtime.compiler import compile_source

    text, name = text_and_name
    made = compile_source(text, name=name)
    return f"spills {made.spill_stores} bytes" if made.spill_stores or made.stack else None


def compile_all(jobs: list[Job], *, partial: bool, rounded: bool = True) -> None:
    wanted = {}
    for problem, chosen in jobs:
        text = source(problem, chosen)
        kinds = [*([True] if partial else []), *([False] if rounded else [])]
        names = [name for kind in kinds for name in kernel_names(chosen, kind)]
        wanted.update({(text, name): chosen for name in names})
    start = time.time()
    with ProcessPoolExecutor() as pool:
        for key, said in zip(wanted, pool.map(compile_job, wanted, chunksize=4), strict=True):
            if said:
                print(said, wanted[key], flush=True)
    print(f"{len(wanted)} kernels compiled in {time.time() - start:.1f} s", flush=True)


class Data:
    """Inputs, outputs full of NaN and a workspace full of NaN for one problem."""

    def __init__(self, problem: ConvolutionProblem, seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        kind = TYPES[problem.dtype]
        self.problem = problem
        self.x = torch.randn(problem.input_shape, generator=generator, device="cuda").to(kind)
        self.dy = torch.randn(problem.output_shape, generator=generator, device="cuda").to(kind)
        self.views = [
            View.dense(t.data_ptr(), tuple(t.shape), problem.dtype)
            for t in (self.x, self.dy)  # type: ignore[arg-type]
        ]

    def run(self, chosen: WeightGradientConfiguration, *, partial: bool) -> torch.Tensor:
        problem = self.problem
        out = torch.full(
            problem.weight_shape, math.nan, device="cuda", dtype=torch.float32 if partial else TYPES[problem.dtype]
        )
        space = torch.full((workspace_bytes(problem, chosen) // 4 + 1,), math.nan, device="cuda")
        self.launch(chosen, space, out, partial=partial)
        return out

    def launch(
        self, chosen: WeightGradientConfiguration, space: torch.Tensor, out: torch.Tensor, *, partial: bool
    ) -> None:
        x, dy = self.views
        stream = torch.cuda.current_stream().cuda_stream
        run(self.problem, chosen, x, dy, space.data_ptr(), out.data_ptr(), partial=partial, device=0, stream=stream)


def reference(data: Data) -> torch.Tensor:
    """[k, r, s, j] in f64 from products in f32, tap by tap, image by image."""
    problem = data.problem
    top, bottom, left, right = problem.padding
    groups, width = problem.groups, problem.width
    x = torch.nn.functional.pad(data.x.float(), (0, 0, left, max(right, 0) + 16, top, max(bottom, 0) + 16))
    n, p, q = problem.n, problem.p, problem.q
    dy = data.dy.float().reshape(n, p * q, groups, width).permute(0, 2, 3, 1).reshape(n * groups, width, p * q)
    dw = torch.empty(problem.weight_shape, dtype=torch.float64, device="cuda")
    for r in range(problem.r):
        for s in range(problem.s):
            y0, x0 = r * problem.dilation[0], s * problem.dilation[1]
            tap = x[:, y0 :: problem.stride[0], x0 :: problem.stride[1]][:, :p, :q]
            tap = tap.reshape(n, p * q, groups, width).permute(0, 2, 1, 3).reshape(n * groups, p * q, width)
            dw[:, r, s] = torch.bmm(dy, tap).reshape(n, problem.c, width).double().sum(0)
    return dw


def check(name: str, problem: ConvolutionProblem, chosen: list[WeightGradientConfiguration], seed: int) -> list[str]:
    """What is wrong, in words."""
    data = Data(problem, seed)
    wanted = reference(data)
    depth = problem.n * problem.p * problem.q
    bound = 1e-6 + 3e-7 * math.sqrt(depth)
    said = []
    for each in chosen:
        got = data.run(each, partial=True)
        again, rounded = data.run(each, partial=True), data.run(each, partial=False)
        error = float((got.double() - wanted).norm() / wanted.norm())
        worst = float((got.double() - wanted).abs().max() / wanted.square().mean().sqrt())
        if not (error < bound and worst < 16 * bound):
            said.append(f"{name} {each}: error {error:.2e}, worst {worst:.2e}, bound {bound:.2e}")
        if not torch.equal(got, again):
            said.append(f"{name} {each}: two runs differ")
        if not torch.equal(got.to(rounded.dtype), rounded):
            said.append(f"{name} {each}: the rounded result is not the partial's")
    return said


def correct(each: int, only: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    pick = random.Random(0)
    jobs: dict[str, tuple[ConvolutionProblem, list[WeightGradientConfiguration]]] = {}
    for name, problem in SHAPES.items():
        if only in name:
            found = configurations(problem, described_gpu(properties(0)))
            jobs[name] = problem, [found[0], *pick.sample(found[1:], min(each - 1, len(found) - 1))]
    compile_all([(problem, one) for problem, chosen in jobs.values() for one in chosen], partial=True)
    wrong, runs = [], 0
    start = time.time()
    for seed, (name, (problem, chosen)) in enumerate(jobs.items()):
        wrong += check(name, problem, chosen, seed)
        runs += len(chosen)
    print(*wrong[:40], sep="\n")
    print(f"{runs} checks of {len(jobs)} shapes in {time.time() - start:.1f} s: {len(wrong)} wrong", flush=True)


def median(call: Callable[[int], object], repeats: int, warm: int) -> float:
    """Seconds: the median by events of calls queued behind a pause."""
    for turn in range(warm):
        call(turn)
    torch.cuda.synchronize()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    torch.cuda._sleep(3_000_000)
    for turn, (start, end) in enumerate(events):
        start.record()
        call(turn)
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events) / 1e3


def copy_ceiling() -> float:
    source_, target = (torch.empty(1 << 31, dtype=torch.uint8, device="cuda") for _ in range(2))
    return 2 * source_.numel() / median(lambda _: target.copy_(source_), 10, 3)


def timed(only: str, limit: int, out: str | None) -> None:
    torch.backends.cudnn.benchmark = True
    ceiling = copy_ceiling()
    print(f"copy {ceiling / 1e9:.0f} GB/s", flush=True)
    chosen_of = {
        problem: list(configurations(problem, described_gpu(properties(0))))[:limit]
        for name, problem in TABLE.items()
        if only in name
    }
    compile_all([(problem, one) for problem, found in chosen_of.items() for one in found], partial=False)
    rows = []
    for problem, found in chosen_of.items():
        rows += time_problem(problem, found, ceiling)
    if out:
        Path(out).write_text("\n".join(map(json.dumps, rows)))


def time_problem(problem: ConvolutionProblem, found: list[WeightGradientConfiguration], ceiling: float) -> list[dict]:
    sets = [Data(problem, seed) for seed in range(max(2, int(2e8 // (2 * problem.input_elements)) + 1))]
    out = torch.empty(problem.weight_shape, device="cuda", dtype=TYPES[problem.dtype])
    space = torch.empty(max(workspace_bytes(problem, one) for one in found) // 4 + 1, device="cuda")
    share = lambda seconds: problem.bytes_moved / seconds / ceiling  # noqa: E731
    peer = share(cudnn(problem, sets))
    results = []
    for one in found:
        seconds = median(lambda turn: sets[turn % len(sets)].launch(one, space, out, partial=False), 15, 3)  # noqa: B023
        results.append((share(seconds), seconds, one))
    ranked = sorted(results, reverse=True, key=lambda result: result[0])
    print(f"n={problem.n} c={problem.c} h={problem.h} k={problem.r}: cuDNN {peer:.3f}, first guess {results[0][0]:.3f}")
    for each in ranked[:6]:
        print(f"  {each[0]:.3f} {each[1] * 1e6:7.1f} us  {brief(each[2])}", flush=True)
    again = median(lambda turn: sets[turn % len(sets)].launch(ranked[0][2], space, out, partial=False), 25, 3)
    print(f"  best again {share(again):.3f}", flush=True)
    return [
        {"n": problem.n, "c": problem.c, "h": problem.h, "k": problem.r, "of_copy": a, "us": b * 1e6, "cut": brief(one)}
        for a, b, one in results
    ]


def brief(chosen: WeightGradientConfiguration) -> str:
    names = ("c", "parts", "u", "i", "o", "sh", "st", "res", "split", "together")
    values = [getattr(chosen, name) for name in chosen.__dataclass_fields__]
    return " ".join(f"{name}{value}" for name, value in zip(names, values, strict=True))


def cudnn(problem: ConvolutionProblem, sets: list[Data]) -> float:
    """torch's weight gradient of the same tensors, channels last; its padding is symmetric."""
    top, _, left, _ = problem.padding
    w = torch.empty(problem.c, problem.width, problem.r, problem.s, device="cuda", dtype=TYPES[problem.dtype])
    w = w.contiguous(memory_format=torch.channels_last)

    def call(turn: int) -> object:
        data = sets[turn % len(sets)]
        x, dy = data.x.permute(0, 3, 1, 2), data.dy.permute(0, 3, 1, 2)
        steps = (list(problem.stride), [top, left], list(problem.dilation))
        return torch.ops.aten.convolution_backward(
            dy, x, w, None, *steps, False, [0, 0], problem.groups, [False, True, False]
        )

    return median(call, 15, 4)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("what", choices=("correct", "time"))
    reader.add_argument("--each", type=int, default=2)
    reader.add_argument("--only", default="")
    reader.add_argument("--limit", type=int, default=400)
    reader.add_argument("--out")
    given = reader.parse_args()
    if given.what == "correct":
        correct(given.each, given.only)
    else:
        timed(given.only, given.limit, given.out)


if __name__ == "__main__":
    main()
