"""On a GPU: shards of rows with their halos in other buffers, against the whole convolution in f32.

Outputs are prefilled with NaN, so that an element nobody wrote shows. The bound is that of one rounding to the output's
type, and of f32 sums of so many terms: depth * 2**-22 * sum |x| |w|.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tapestry.kernels.convolution.problem import ConvolutionProblem

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels run on an NVIDIA GPU, and there is none")

ROUNDING = {"f16": 2.0**-11, "bf16": 2.0**-8}
SMALLEST = {"f16": 2.0**-24, "bf16": 2.0**-126}


def tensor(shape: tuple[int, ...], dtype: str) -> Any:
    """Fresh random numbers."""
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    return torch.randn(shape, device="cuda").to(kind)


def blank(shape: tuple[int, ...], like: Any) -> Any:
    return torch.full(shape, float("nan"), device="cuda", dtype=like.dtype)


def convolved(problem: ConvolutionProblem, x: Any, w: Any) -> Any:
    """torch's convolution in f32, from [n, h, w, c] to [n, p, q, k]."""
    top, bottom, left, right = problem.padding
    padded = torch.nn.functional.pad(x.permute(0, 3, 1, 2).float(), (left, right, top, bottom))
    taps = w.permute(0, 3, 1, 2).float()
    return torch.nn.functional.conv2d(
        padded, taps, stride=problem.stride, dilation=problem.dilation, groups=problem.groups
    ).permute(0, 2, 3, 1)


def reference_gradient(problem: ConvolutionProblem, dy: Any, w: Any) -> Any:
    """torch's input gradient in f32."""
    x = torch.zeros(problem.input_shape, device="cuda", requires_grad=True)
    convolved(problem, x, w).backward(dy.float())
    return x.grad


def assert_close(problem: ConvolutionProblem, got: Any, want: Any, magnitude: Any, what: object) -> None:
    """Every element written, and within the bound."""
    depth = problem.r * problem.s * problem.width
    allowed = 1.01 * ROUNDING[problem.dtype] * want.abs() + depth * 2.0**-22 * magnitude + SMALLEST[problem.dtype]
    assert not got.isnan().any(), f"{int(got.isnan().sum())} elements not written: {what}"
    worst = ((got.float() - want).abs() / allowed).max().item()
    assert worst <= 1, f"error {worst:.3g} times the bound: {what}"


@pytest.fixture(autouse=True)
def exact_reference() -> None:
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def halves(extent: int, parts: int) -> list[tuple[int, int]]:
    """Cuts of rows at floor(r N / P)."""
    edges = [part * extent // parts for part in range(parts + 1)]
    return list(itertools.pairwise(edges))


def continued(x: Any, begin: int, end: int, above: int, below: int) -> tuple[Any, Any, Any]:
    """Copies of the rows above, of and below a shard; None where the image ends."""
    upper = x[:, max(0, begin - above) : begin].contiguous() if begin and above else None
    lower = x[:, end : end + below].contiguous() if end < x.shape[1] and below else None
    return upper, x[:, begin:end].contiguous(), lower


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("size", [1, 3, 5, 7])
@pytest.mark.parametrize("width", [1, 3, 8, 32])
def test_shards_of_the_rows_give_the_whole(width: int, size: int, parts: int) -> None:
    """Forward and input gradient, stride 1, "same" padding, the halos in buffers of their own."""
    from tapestry.kernels.sharded import conv2d_input_gradient_shard, conv2d_shard

    width, channels = (1, 9) if width == 3 else (width, 2 * max(width, 12))
    pad = size // 2
    whole = ConvolutionProblem(3, 29, 17, channels, channels // width, size, size, padding=(pad,) * 4)
    x, w = tensor(whole.input_shape, "f16"), tensor(whole.weight_shape, "f16")
    want, magnitude = convolved(whole, x, w), convolved(whole, x.abs(), w.abs())
    gradient, spread = reference_gradient(whole, x, w), reference_gradient(whole, x.abs(), w.abs())
    for begin, end in halves(whole.h, parts):
        above, middle, below = continued(x, begin, end, pad, pad)
        sides = (pad, pad, pad, pad)
        arrived = torch.cuda.Event()
        arrived.record()
        options = {"above": above, "below": below, "groups": whole.groups, "padding": sides, "arrived": arrived}
        out = blank(middle.shape, x)
        conv2d_shard(middle, w, out=out, **options)
        assert_close(whole, out, want[:, begin:end], magnitude[:, begin:end], ("forward", begin, end))
        out = blank(middle.shape, x)
        conv2d_input_gradient_shard(middle, w, shape=middle.shape, out=out, **options)
        assert_close(whole, out, gradient[:, begin:end], spread[:, begin:end], ("gradient", begin, end))


@pytest.mark.parametrize("size", [3, 5])
def test_strided_shards(size: int) -> None:
    """Stride 2: shards that begin at even rows."""
    from tapestry.kernels.sharded import conv2d_shard

    pad = size // 2
    whole = ConvolutionProblem(2, 32, 16, 64, 8, size, size, stride=(2, 2), padding=(pad,) * 4)
    x, w = tensor(whole.input_shape, "f16"), tensor(whole.weight_shape, "f16")
    want, magnitude = convolved(whole, x, w), convolved(whole, x.abs(), w.abs())
    for begin, end in ((0, 12), (12, 32)):
        above, middle, below = continued(x, begin, end, pad, pad - 1)
        rows = slice(begin // 2, end // 2)
        bottom = pad if below is None else pad - 1
        out = blank((2, (end - begin) // 2, *want.shape[2:]), x)
        conv2d_shard(middle, w, above=above, below=below, groups=8, stride=2, padding=(pad, bottom, pad, pad), out=out)
        assert_close(whole, out, want[:, rows], magnitude[:, rows], (begin, end))
