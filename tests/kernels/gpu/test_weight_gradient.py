"""On a GPU: the weight gradient against products in f32, its repeatability, and shards against the whole.

Outputs and workspaces are prefilled with NaN, so that what nobody wrote shows. Two bounds: on the f32 partial, growing
with the root of the depth of the sum; and the rounded result is the partial's rounding, bit by bit.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.weight_gradient_candidates import configurations
from tapestry.kernels.convolution.weight_gradient_configuration import WeightGradientConfiguration
from tapestry.kernels.cost.gpu import described_gpu
from tapestry.kernels.runtime.device import properties

from ..shapes import SHAPES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels run on an NVIDIA GPU, and there is none")

SAMPLE = random.Random(0).sample(sorted(SHAPES), 60)


def tensors(problem: ConvolutionProblem) -> tuple[Any, Any]:
    """Fresh random x and dy."""
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[problem.dtype]
    shapes = problem.input_shape, problem.output_shape
    x, dy = (torch.randn(shape, device="cuda").to(kind) for shape in shapes)
    return x, dy


def reference(problem: ConvolutionProblem, x: Any, dy: Any) -> Any:
    """[k, r, s, j] in f64: products in f32, tap by tap and image by image."""
    top, _, left, _ = problem.padding
    n, p, q, groups, width = problem.n, problem.p, problem.q, problem.groups, problem.width
    reach = [(e - 1) * s + 7 * d + 1 for e, s, d in zip((p, q), problem.stride, problem.dilation, strict=True)]
    sides = (0, 0, left, max(0, reach[1] - left - problem.w), top, max(0, reach[0] - top - problem.h))
    wide = torch.nn.functional.pad(x.float(), sides)
    upstream = dy.float().reshape(n, p * q, groups, width).permute(0, 2, 3, 1).reshape(n * groups, width, p * q)
    dw = torch.empty(problem.weight_shape, dtype=torch.float64, device="cuda")
    for r in range(problem.r):
        for s in range(problem.s):
            seen = wide[:, r * problem.dilation[0] :: problem.stride[0], s * problem.dilation[1] :: problem.stride[1]]
            seen = seen[:, :p, :q].reshape(n, p * q, groups, width).permute(0, 2, 1, 3)
            products = torch.bmm(upstream, seen.reshape(n * groups, p * q, width))
            dw[:, r, s] = products.reshape(n, problem.c, width).double().sum(0)
    return dw


def gradient(function: Any, problem: ConvolutionProblem, x: Any, dy: Any, partial: bool, **more: Any) -> Any:
    """A call with `out` full of NaN."""
    out = torch.full(problem.weight_shape, math.nan, device="cuda", dtype=torch.float32 if partial else x.dtype)
    steps = {"groups": problem.groups, "stride": problem.stride, "dilation": problem.dilation, **more}
    return function(x, dy, filter=(problem.r, problem.s), partial=partial, out=out, **steps)


def assert_near(problem: ConvolutionProblem, got: Any, wanted: Any, what: object) -> None:
    bound = 1e-6 + 3e-7 * math.sqrt(problem.n * problem.p * problem.q)
    error = ((got.double() - wanted).norm() / wanted.norm()).item()
    worst = ((got.double() - wanted).abs().max() / wanted.square().mean().sqrt()).item()
    assert error < bound, what
    assert worst < 16 * bound, what


@pytest.fixture(autouse=True)
def exact_reference() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


ONE_LAUNCH = [
    "groups.3.width1", "groups.5.width4", "groups.12.width1", "groups.1", "groups.4.width2", "extent.1x1", "extent.5x5",
    "batch.1", "batch.1.width32", "groups.1.width16", "groups.64.width32", "extent.31x29.depthwise",
]  # fmt: skip


def variety(problem: ConvolutionProblem) -> set[WeightGradientConfiguration]:
    """The first guess, one from the middle and the last, and of those in one launch the first of each cluster size."""
    found = configurations(problem, described_gpu(properties(0)))
    together = {chosen.splits: chosen for chosen in reversed(found) if chosen.together}
    return {found[0], found[len(found) // 2], found[-1], *together.values()}


@pytest.mark.parametrize("name", [*SAMPLE, *sorted(set(ONE_LAUNCH) - set(SAMPLE))])
def test_the_gradient_is_right_and_the_same_every_time(name: str) -> None:
    from tapestry.kernels.conv2d import conv2d_weight_gradient

    problem = SHAPES[name]
    x, dy = tensors(problem)
    wanted = reference(problem, x, dy)
    for chosen in variety(problem):
        more = {"padding": problem.padding, "configuration": chosen}
        first = gradient(conv2d_weight_gradient, problem, x, dy, True, **more)
        assert_near(problem, first, wanted, chosen)
        assert torch.equal(first, gradient(conv2d_weight_gradient, problem, x, dy, True, **more)), chosen
        rounded = gradient(conv2d_weight_gradient, problem, x, dy, False, **more)
        assert torch.equal(rounded, first.to(x.dtype)), chosen


@pytest.mark.parametrize("name", ["table.64x64x64k3", "table.64x64x64k5", "stride2.width32", "groups.12.width1"])
@pytest.mark.parametrize("shards", [2, 3])
def test_the_shards_of_a_gradient_add_up(name: str, shards: int) -> None:
    from tapestry.kernels.sharded import conv2d_weight_gradient_shard

    problem = SHAPES[name]
    x, dy = tensors(problem)
    wanted = reference(problem, x, dy)
    top, _, left, right = problem.padding
    stride, reach = problem.stride[0], (problem.r - 1) * problem.dilation[0]
    total = torch.zeros(problem.weight_shape, device="cuda")
    for shard in range(shards):
        begin, end = (problem.p * at // shards for at in (shard, shard + 1))
        # Own rows from the first window's start to the next shard's; the window's overhang is the halo below.
        low, high = (
            max(0, begin * stride - top),
            min(problem.h, end * stride - top if shard + 1 < shards else problem.h),
        )
        last = min(problem.h, (end - 1) * stride + reach + 1 - top)
        below = x[:, high:last] if last > high else None
        over = (end - 1) * stride + reach + 1 - top - high
        padding = (low - (begin * stride - top), over, left, right)
        total += gradient(
            conv2d_weight_gradient_shard, problem, x[:, low:high], dy[:, begin:end], True, below=below, padding=padding
        )
    assert_near(problem, total, wanted, name)
