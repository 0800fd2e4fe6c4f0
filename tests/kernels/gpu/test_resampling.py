"""Pools and upsampling on a GPU, beside torch's in f64. Skipped where there is none."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.torch import fuse_for_inference, fuse_resampling

from .closeness import UNITS, close
from .graphs import captured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
POOLS = [
    nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(2),
    nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False), nn.AvgPool2d(3, 2, 1),
    nn.AvgPool2d(3, 1, 1, count_include_pad=False),
]  # fmt: skip
SHAPES = [(64, 64, 112, 112), (5, 256, 57, 43), (3, 40, 9, 5), (2, 17, 20, 30), (1, 8, 300, 301), (300, 768, 7, 7)]


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").to(dtype)
    return made.contiguous(memory_format=torch.channels_last)


def fused(layer: nn.Module) -> nn.Module:
    model = nn.Sequential(copy.deepcopy(layer))
    assert fuse_resampling(model) == ["0"]
    return model[0]


def of_torch_right(x: Tensor) -> Tensor:
    """In f64, channels-first: torch's gradients of channels-last images are not those of what it computed where
    averages have padding, nor where all of a window is minus infinity (torch 2.11).
    """
    return x.detach().double().contiguous().requires_grad_()


@pytest.mark.parametrize("layer", POOLS, ids=str)
@pytest.mark.parametrize("dtype", [BF16, F16, F32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients(layer: nn.Module, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    ours, x = fused(layer), drawn(shape, dtype, 1).requires_grad_()
    y, of_torch = ours(x), layer(x)
    assert y.grad_fn is not None
    assert y.grad_fn.name() in ("_MaximaBackward", "_AveragesBackward")
    assert (y.shape, y.dtype, y.stride()) == (of_torch.shape, of_torch.dtype, of_torch.stride())
    dy = drawn(y.shape, dtype, 2)
    wide = of_torch_right(x)
    expected = layer(wide)
    (dx,), (exact,) = torch.autograd.grad(y, x, dy), torch.autograd.grad(expected, wide, dy.double())
    if isinstance(layer, nn.MaxPool2d):
        assert torch.equal(y, of_torch)
    close(y, expected, UNITS[dtype])
    close(dx, exact, UNITS[dtype])
    assert torch.equal(dx, torch.autograd.grad(ours(x), x, dy)[0])
    with torch.no_grad():
        assert torch.equal(ours(x), y)


def test_ties_infinities_and_what_is_no_number() -> None:
    """As torch has them: the gradient goes to one place of a window."""
    for layer in POOLS[:3]:
        x = torch.randint(-2, 3, (4, 16, 30, 31), generator=torch.Generator().manual_seed(1)).cuda().to(BF16)
        x[0], x[1, :, ::7] = -torch.inf, torch.nan
        x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
        wide = of_torch_right(x)
        y, expected = fused(layer)(x), layer(wide)
        torch.testing.assert_close(y.double(), expected, rtol=0, atol=0, equal_nan=True)
        dy = torch.randint(-9, 9, y.shape, generator=torch.Generator().manual_seed(2)).cuda().to(BF16)
        (dx,), (exact,) = torch.autograd.grad(y, x, dy), torch.autograd.grad(expected, wide, dy.double())
        assert torch.equal(dx.double(), exact)


@pytest.mark.parametrize("layer", POOLS, ids=str)
def test_in_a_graph_and_again(layer: nn.Module) -> None:
    ours, x = fused(layer), drawn((8, 64, 56, 56), BF16, 1).requires_grad_()
    dy = drawn(tuple(layer(x).shape), BF16, 2)
    graph, found = captured(lambda: torch.autograd.grad(ours(x), x, dy)[0])
    with torch.no_grad():
        x.mul_(-1)
    graph.replay()
    assert torch.equal(found, torch.autograd.grad(ours(x), x, dy)[0])


def test_less_is_kept() -> None:
    """A byte where torch keeps eight."""
    kept = []
    for layer in (POOLS[0], fused(POOLS[0])):
        x = drawn((64, 64, 112, 112), BF16, 1).requires_grad_()
        before = torch.cuda.memory_allocated()
        y = layer(x)
        kept.append((torch.cuda.memory_allocated() - before) / y.numel())
        del y
    assert kept[1] < 3.1 < 9.9 < kept[0]


@pytest.mark.parametrize("how", [{"scale_factor": 2}, {"size": (30, 20), "align_corners": True}], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_bilinear_upsampling(how: dict[str, Any], dtype: torch.dtype) -> None:
    theirs = nn.Upsample(mode="bilinear", **how)
    ours, x = fused(theirs), drawn((8, 256, 14, 9), dtype, 1).contiguous().requires_grad_()
    found, expected = ours(x), theirs(x)
    assert found.stride() == expected.stride()
    dy = drawn(tuple(found.shape), dtype, 2).contiguous()
    unit = max(UNITS[dtype], 1e-5)
    close(found, expected.double(), unit)
    close(torch.autograd.grad(found, x, dy)[0], torch.autograd.grad(expected, x, dy)[0].double(), 4 * unit)


def test_fused_inference() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)
    )
    model = model.cuda().eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = drawn((4, 3, 64, 64), F32, 1)
    with torch.no_grad():
        close(fuse_for_inference(model)(x.to(BF16)), model.double()(x.double()), 2.0**-5)
