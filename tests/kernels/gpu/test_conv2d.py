"""On a GPU: every shape of the list, every pass, against torch in f32; outputs are prefilled with NaN.

`python tests/kernels/gpu/test_conv2d.py --configurations 3` also tries other configurations than the chosen one, and
prints what is wrong.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import zlib
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[1])]

from tapestry.kernels.conv2d import conv2d, conv2d_input_gradient, conv2d_weight_gradient
from tapestry.kernels.convolution import choices, weight_gradient_candidates, wide, wide_candidates, wide_sweep
from tapestry.kernels.convolution.candidates import configurations
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.recipes import (
    PASSES,
    Pass,
    forward_recipe,
    recipes,
    walk,
    weight_gradient_recipes,
)
from tapestry.kernels.convolution.wide_forward_configuration import WideConfiguration, WideCut, legal
from tapestry.kernels.cost.gpu import described_gpu
from tapestry.kernels.errors import Unavailable
from tapestry.kernels.runtime.compiler import Recipe
from tapestry.kernels.runtime.device import device_architecture, device_count, properties
from tapestry.kernels.runtime.parallel import compile_all

try:
    from ..shapes import SHAPES
except ImportError:  # run as a script
    from shapes import SHAPES  # type: ignore[import-not-found,no-redef]


def absent() -> str:
    """Why there is nothing to test here, or nothing."""
    try:
        return "" if device_count() else "no GPU"
    except Unavailable as error:
        return error.what


pytestmark = pytest.mark.skipif(bool(absent()), reason=absent() or "a GPU is here")

UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8}


class Case:
    """Random operands of a problem and, when asked for, what torch makes of them in f32."""

    def __init__(self, problem: ConvolutionProblem, seed: int) -> None:
        import torch

        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        self.torch, self.problem = torch, problem
        self.kind = {"f16": torch.float16, "bf16": torch.bfloat16}[problem.dtype]
        self.generator = torch.Generator("cuda").manual_seed(seed)
        self.x, self.w = self.normal(problem.input_shape), self.normal(problem.weight_shape)
        self.dy = self.normal(problem.output_shape)
        self._wanted: dict[str, Any] = {}

    def normal(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        return self.torch.randn(shape, generator=self.generator, device="cuda").to(dtype or self.kind)

    def nothing(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        return self.torch.full(shape, float("nan"), device="cuda", dtype=dtype or self.kind)

    @property
    def steps(self) -> dict[str, Any]:
        problem = self.problem
        return {
            "groups": problem.groups, "stride": problem.stride, "padding": problem.padding,
            "dilation": problem.dilation,
        }  # fmt: skip

    def wanted(self, what: str) -> Any:
        """In f32, channels last: forward, input_gradient or weight_gradient."""
        if not self._wanted:
            torch, problem = self.torch, self.problem
            top, bottom, left, right = problem.padding
            x, w = (t.float().permute(0, 3, 1, 2).requires_grad_() for t in (self.x, self.w))
            padded = torch.nn.functional.pad(x, (left, right, top, bottom))
            y = torch.nn.functional.conv2d(padded, w, None, problem.stride, 0, problem.dilation, problem.groups)
            dx, dw = torch.autograd.grad(y, (x, w), self.dy.float().permute(0, 3, 1, 2))
            found = {"forward": y.detach(), "input_gradient": dx, "weight_gradient": dw}
            self._wanted = {name: value.permute(0, 2, 3, 1).contiguous() for name, value in found.items()}
        return self._wanted[what]

    def run(self, what: Pass, configuration: Any = None, partial: bool = False) -> Any:
        """A pass into an output full of NaN."""
        problem, given = self.problem, {"configuration": configuration, **self.steps}
        if what == "forward":
            return conv2d(self.x, self.w, out=self.nothing(problem.output_shape), **given)
        if what == "input_gradient":
            out = self.nothing(problem.input_shape)
            return conv2d_input_gradient(self.dy, self.w, shape=problem.input_shape, out=out, **given)
        out = self.nothing(problem.weight_shape, self.torch.float32 if partial else None)
        return conv2d_weight_gradient(self.x, self.dy, filter=(problem.r, problem.s), partial=partial, out=out, **given)

    def excess(self, got: Any, wanted: Any, depth: int, unit: float) -> float:
        """The worst error over what is allowed: one rounding of the result, and f32 sums of so many terms.

        Terms have random signs, so that a sum is no larger on its way than at its end; each of `depth` additions may
        lose 2^-24 of that at random, and each of the tensor cores' (16 terms) another 2^-23 by cutting off.
        """
        if got.isnan().any():
            return math.inf
        sums = (8 * math.sqrt(depth) + depth / 8) * 2.0**-24 * float(wanted.abs().max())
        allowed = 1.01 * unit * wanted.abs() + sums + 2.0**-24
        return float(((got.float() - wanted).abs() / allowed).max())

    def depth(self, what: str) -> int:
        problem = self.problem
        if what == "weight_gradient":
            return problem.n * problem.p * problem.q
        return problem.r * problem.s * problem.width

    def check(self, what: Pass, configuration: Any = None) -> float:
        """`excess` of a pass. A weight gradient that torch's f32 finds wrong is judged by f64.

        cuDNN's own in f32 were seen to be further off than ours, for 5 x 5 filters with little padding.
        """
        got, depth, unit = self.run(what, configuration), self.depth(what), UNIT[self.problem.dtype]
        found = self.excess(got, self.wanted(what), depth, unit)
        if found <= 1 or what != "weight_gradient":
            return found
        return self.excess(got, exact_weight_gradient(self.problem, self.x, self.dy), depth, unit)


def exact_weight_gradient(problem: ConvolutionProblem, x: Any, dy: Any) -> Any:
    """The weight gradient [k, r, s, j] in f64, a product of matrices for every tap and image, added up."""
    import torch

    (sy, sx), gaps, (top, bottom, left, right) = problem.stride, problem.dilation, problem.padding
    high, broad = sy * (problem.p - 1) + 1, sx * (problem.q - 1) + 1
    wide = torch.nn.functional.pad(x, (0, 0, left, right, top, bottom))
    split = (problem.groups, problem.width)
    found = torch.zeros(problem.weight_shape, dtype=torch.float64, device=x.device)
    for image, outputs in zip(wide, dy.double().flatten(1, 2).unflatten(2, split), strict=True):
        for r in range(problem.r):
            for s in range(problem.s):
                row, column = r * gaps[0], s * gaps[1]
                seen = image[row : row + high : sy, column : column + broad : sx]
                taps = seen.double().flatten(0, 1).unflatten(1, split)
                found[:, r, s] += torch.einsum("agk,agj->gkj", outputs, taps).flatten(0, 1)
    return found


def seed_of(name: str) -> int:
    return zlib.crc32(name.encode())


def compiled(name: str, what: Pass) -> None:
    """The kernels of a pass, ahead of it."""
    compile_all(to_compile(SHAPES[name], what, None), device_architecture(0), 1)


@pytest.mark.compiles.with_args(compiled)  # called, a mark would take a function for what it marks
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("what", PASSES)
def test_every_shape(name: str, what: Pass) -> None:
    assert Case(SHAPES[name], seed_of(name)).check(what) <= 1


SMALL = ConvolutionProblem(3, 15, 13, 64, 8, 3, 3, padding=(1, 2, 0, 1))


@pytest.mark.parametrize("activation", [None, "relu", "silu", "gelu"])
@pytest.mark.parametrize("c", [64, 12])
def test_what_is_fused_follows_the_sum(activation: str | None, c: int) -> None:
    problem = ConvolutionProblem(3, 15, 13, c, c // 4, 3, 3, padding=(1, 2, 0, 1))
    case = Case(problem, 1)
    torch = case.torch
    scale, bias = (case.normal((c,), torch.float32) for _ in range(2))
    added = case.normal(problem.output_shape)
    out = case.nothing(problem.output_shape)
    conv2d(case.x, case.w, bias, scale=scale, residual=added, activation=activation, out=out, **case.steps)
    value = case.wanted("forward") * scale + bias + added.float()
    functions = {
        None: lambda v: v, "relu": torch.relu, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
    }  # fmt: skip
    assert case.excess(out, functions[activation](value), 64, 2 * UNIT["f16"]) <= 1


def test_the_weight_gradient_has_the_same_bits_every_time() -> None:
    case = Case(ConvolutionProblem(32, 28, 28, 256, 32, 3, 3, padding=(1, 1, 1, 1)), 2)
    first = case.run("weight_gradient", partial=True)
    assert case.excess(first, case.wanted("weight_gradient"), case.depth("weight_gradient"), 2.0**-23) <= 1
    assert all(case.torch.equal(first, case.run("weight_gradient", partial=True)) for _ in range(5))


def test_views_are_read_and_written_where_they_lie() -> None:
    case = Case(SMALL, 3)
    torch = case.torch
    big = torch.zeros((3, 40, 20, 128), device="cuda", dtype=case.kind)
    x = big[:, 4:34:2, 5:18, 64:]
    x.copy_(case.x)
    room = case.nothing((3, 32, 30, 192))
    out = room[:, 1 : 1 + 2 * SMALL.p : 2, 7 : 7 + SMALL.q, 64:128]
    conv2d(x, case.w, out=out, **case.steps)
    assert case.excess(out, case.wanted("forward"), case.depth("forward"), UNIT["f16"]) <= 1
    assert int((~room.isnan()).sum()) == out.numel()


# Of few channels, whose rows are copied whole: all three numbers of them, strides, odd extents, padding on few sides.
WHOLE = {
    "16": ConvolutionProblem(40, 75, 101, 16, 2, 3, 3, padding=(1, 1, 1, 1)),
    "24": ConvolutionProblem(24, 112, 112, 24, 24, 3, 3, padding=(1, 0, 2, 1), dtype="bf16"),
    "72": ConvolutionProblem(32, 56, 56, 72, 72, 5, 5, (2, 2), padding=(2, 2, 2, 2)),
    "72 odd": ConvolutionProblem(30, 57, 61, 72, 72, 3, 3, (2, 2), padding=(1, 2, 0, 1), dtype="bf16"),
}


def whole(problem: ConvolutionProblem, what: Pass) -> bool:
    """Whether rows are copied whole."""
    gpu = described_gpu(properties(0))
    if what == "weight_gradient":
        return bool(getattr(choices.gradient_cut(problem, gpu), "flat", False))
    return bool(choices.cut(walk(problem, what).problem, what, gpu).flat)


@pytest.mark.parametrize("what", PASSES)
@pytest.mark.parametrize("name", WHOLE)
def test_rows_of_few_channels_are_copied_whole(name: str, what: Pass) -> None:
    assert whole(WHOLE[name], what)
    assert Case(WHOLE[name], 6).check(what) <= 1


WIDE_WHOLE = {
    "24, five": ConvolutionProblem(21, 19, 28, 120, 5, 3, 3, padding=(1, 1, 1, 1), dtype="bf16"),
    "3": ConvolutionProblem(9, 40, 61, 24, 8, 3, 3, padding=(1, 0, 2, 1)),
    "24, stride 2": ConvolutionProblem(9, 30, 57, 72, 3, 3, 3, (2, 2), padding=(1, 2, 0, 1), dtype="bf16"),
    "8 to 16": ConvolutionProblem(5, 33, 56, 24, 3, 3, 3, padding=(1, 1, 1, 1), dtype="bf16", channels_out=48),
    "40": ConvolutionProblem(6, 27, 30, 40, 1, 3, 3, padding=(0, 1, 1, 0)),
}


@pytest.mark.parametrize(
    ("name", "what"),
    # Of twice as many channels out a gradient reads an even number of octets.
    [(name, what) for name in WIDE_WHOLE for what in PASSES[:2] if (name, what) != ("8 to 16", "input_gradient")],
)
def test_rows_of_wide_groups_are_copied_whole(name: str, what: wide.Walked) -> None:
    """By the first guesses that do."""
    problem, gpu = WIDE_WHOLE[name], described_gpu(properties(0))
    if not wide.computes(problem, gpu):
        pytest.skip("no products of warpgroups")
    (part,), case = wide_sweep.ways(problem, what)[0], Case(problem, 9)
    cuts = [WideCut(part.sweep, cut, whole=True) for cut in wide_candidates.all_cuts(part.sweep, gpu, False, True)]
    found = sorted((cut for cut in cuts if cut.flat), key=lambda cut: wide_candidates.clocks(cut, gpu))[:3]
    assert found
    for cut in found:
        assert case.check(what, (0, (cut.configuration,))) <= 1


STRIDED = {
    "24": ConvolutionProblem(9, 27, 30, 48, 2, 3, 3, (2, 2), padding=(1, 0, 2, 1), dtype="bf16"),
    "32": ConvolutionProblem(12, 20, 31, 64, 2, 3, 3, (2, 2), padding=(1, 1, 1, 1)),
    "56": ConvolutionProblem(5, 29, 28, 112, 2, 5, 5, (2, 2), padding=(2, 2, 2, 2), dtype="bf16"),
    "64": ConvolutionProblem(7, 27, 30, 128, 2, 3, 3, (2, 2), padding=(0, 1, 1, 0)),
    "112": ConvolutionProblem(9, 28, 28, 224, 2, 3, 3, (2, 2), padding=(1, 1, 1, 1), dtype="bf16"),
    "120": ConvolutionProblem(3, 15, 56, 120, 1, 3, 3, (2, 2), padding=(1, 1, 1, 1)),
    "24, across": ConvolutionProblem(6, 14, 27, 48, 2, 2, 3, (1, 2), padding=(1, 0, 1, 1)),
}


@pytest.mark.parametrize("way", [0, 1], ids=["cells", "parities"])
@pytest.mark.parametrize("name", STRIDED)
def test_strided_input_gradients_go_both_ways(name: str, way: int) -> None:
    """By the first guesses."""
    problem, gpu = STRIDED[name], described_gpu(properties(0))
    if not wide.computes(problem, gpu):
        pytest.skip("no products of warpgroups")
    parts = wide_sweep.ways(problem, "input_gradient")[way]
    found, case = wide.options(parts, gpu, False)[:4], Case(problem, 7)
    assert found
    for cuts in found:
        assert case.check("input_gradient", (way, cuts)) <= 1


APART = {
    "32": [(1, 1, 1, 2, 8, 2, 4, 1), (1, 1, 1, 1, 4, 2, 3, 1)],
    "56": [(1, 2, 1, 1, 4, 2, 3, 1), (1, 2, 1, 2, 8, 2, 2, 1)],
    "64": [(1, 2, 1, 2, 8, 2, 3, 1), (1, 2, 1, 1, 4, 2, 4, 1)],
}


@pytest.mark.parametrize("name", APART)
def test_outputs_of_cells_have_products_of_their_own(name: str) -> None:
    problem, gpu = STRIDED[name], described_gpu(properties(0))
    if not wide.computes(problem, gpu):
        pytest.skip("no products of warpgroups")
    case, (part,) = Case(problem, 8), wide_sweep.ways(problem, "input_gradient")[0]
    for chosen in starmap(WideConfiguration, APART[name]):
        cut = WideCut(part.sweep, chosen)
        assert cut.apart
        assert legal(cut, gpu.shared_per_block)
        assert case.check("input_gradient", (0, (chosen,))) <= 1


@pytest.mark.parametrize("problem", [WHOLE["24"], WIDE_WHOLE["3"]], ids=["narrow groups", "wide ones"])
@pytest.mark.parametrize("apart", [0, 8], ids=["whole", "by boxes"])
def test_rows_of_a_part_of_a_tensor(problem: ConvolutionProblem, apart: int) -> None:
    """Rows that are stretches of memory, with others between them; and those of which channels lie apart."""
    case, unit = Case(problem, 7), UNIT[problem.dtype]
    torch, (n, h, w, c) = case.torch, problem.input_shape
    big = torch.zeros((n, h + 3, w + 5, c + apart), device="cuda", dtype=case.kind)
    x = big[:, 2:-1, 3:-2, :c]
    x.copy_(case.x)
    room = case.nothing((n, problem.p + 2, problem.q + 3, c + apart))
    out = room[:, 1:-1, 2:-1, :c]
    added = case.normal(problem.output_shape)
    bias = case.normal((c,), torch.float32)
    conv2d(x, case.w, bias, residual=added, activation="relu", out=out, **case.steps)
    wanted = torch.relu(case.wanted("forward") + bias + added.float())
    assert case.excess(out, wanted, 64, 2 * unit) <= 1
    assert int((~room.isnan()).sum()) == out.numel()
    room = case.nothing((n, h + 2, w + 3, c + apart))
    out = room[:, 1:-1, 2:-1, :c]
    conv2d_input_gradient(case.dy, case.w, shape=problem.input_shape, out=out, **case.steps)
    assert case.excess(out, case.wanted("input_gradient"), case.depth("input_gradient"), unit) <= 1
    assert int((~room.isnan()).sum()) == out.numel()
    dw = conv2d_weight_gradient(x, case.dy, filter=(problem.r, problem.s), partial=True, **case.steps)
    assert case.excess(dw, case.wanted("weight_gradient"), case.depth("weight_gradient"), 2.0**-23) <= 1


@pytest.mark.parametrize("what", PASSES)
def test_calls_are_captured_in_a_graph(what: Pass) -> None:
    case = Case(SMALL, 4)
    torch = case.torch
    case.run(what)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = case.run(what)
    fresh = Case(SMALL, 5)
    for name in ("x", "w", "dy"):
        getattr(case, name).copy_(getattr(fresh, name))
    graph.replay()
    torch.cuda.synchronize()
    assert case.excess(out, fresh.wanted(what), case.depth(what), UNIT["f16"]) <= 1


def alternatives(problem: ConvolutionProblem, what: Pass, count: int, seed: int) -> list[Any]:
    """None, for the chosen configuration, and others at random."""
    pick = random.Random(seed)
    if what == "weight_gradient":
        known: Any = weight_gradient_candidates.configurations(problem, described_gpu(properties(0)))
        return [None, *pick.sample(known, min(count, len(known)))]
    known = configurations(walk(problem, what).problem, described_gpu(properties(0)))
    return [None, *pick.sample(known, min(count, len(known)))]


def to_compile(problem: ConvolutionProblem, what: Pass, given: Any) -> list[Recipe]:
    if given is None:
        return recipes(problem, what, described_gpu(properties(0)))
    if what == "weight_gradient":
        return weight_gradient_recipes(problem, given)
    walked = walk(problem, what)
    return [forward_recipe(walked.problem, given, {"transposed": what == "input_gradient", "taps": walked.taps})]


def jobs(names: list[str], passes: list[Pass], count: int) -> Iterator[tuple[str, Pass, list[Any]]]:
    for name in names:
        for what in passes:
            yield name, what, alternatives(SHAPES[name], what, count, seed_of(name + what))


def main() -> int:
    """Check shapes and configurations; print every failure and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--match", default="", help="only shapes whose name contains this")
    parser.add_argument("--every", type=int, default=1, help="only every so-manieth shape")
    parser.add_argument("--configurations", type=int, default=0, help="others than the chosen one, per shape and pass")
    given = parser.parse_args()
    names = [name for name in SHAPES if given.match in name][:: given.every]
    work = list(jobs(names, given.passes.split(","), given.configurations))
    wanted = [
        recipe
        for name, what, options in work
        for option in options
        for recipe in to_compile(SHAPES[name], what, option)
    ]
    compile_all(wanted, device_architecture(0), os.cpu_count())
    print(f"{len(set(wanted))} kernels compiled", flush=True)
    return report(work)


def report(work: list[tuple[str, Pass, list[Any]]]) -> int:
    done = failed = 0
    worst: dict[str, float] = {}
    cases: dict[str, Case] = {}
    for name, what, options in work:
        if name not in cases:
            cases = {name: Case(SHAPES[name], seed_of(name))}
        for option in options:
            try:
                excess, why = cases[name].check(what, option), ""
            except Exception as error:
                excess, why = math.inf, f"{type(error).__name__}: {error}"
                if "illegal" in why.lower() or "unspecified" in why.lower():
                    raise
            done += 1
            if not excess <= 1:
                failed += 1
                print(f"FAILED {name} {what} excess {excess:.3g} {option or 'chosen'} {SHAPES[name]} {why}", flush=True)
            else:
                worst[what] = max(worst.get(what, 0), excess)
    print(f"{done} runs, {failed} failed; worst error over allowed {worst}")
    return failed > 0


if __name__ == "__main__":
    raise SystemExit(main())
