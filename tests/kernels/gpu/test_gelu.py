"""Gelu behind layers whose biases learn on a GPU, by the extension, beside f64. Skipped where there is none."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tapestry.kernels.tensors import native_calls
from tapestry.kernels.torch import fuse_biases

from .closeness import close
from .graphs import captured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

BF16, F16 = torch.bfloat16, torch.float16
CASES = [
    (nn.Linear(96, 384), (64, 56, 56, 96)), (nn.Linear(64, 100), (7, 64)), (nn.Linear(16, 24), (3, 5, 16)),
    (nn.Conv2d(96, 384, 1), (64, 96, 56, 56)), (nn.Conv2d(16, 17, 3, padding=1), (5, 16, 9, 7)),
    (nn.Linear(768, 3072), (64, 49, 768)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _with_the_extension() -> None:
    if native_calls.wait() != "ready":
        pytest.skip(native_calls.state())


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").to(dtype)


def laid(made: Tensor, layer: nn.Module) -> Tensor:
    return made.contiguous(memory_format=torch.channels_last) if isinstance(layer, nn.Conv2d) else made


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize(("layer", "shape"), CASES, ids=str)
def test_values_and_gradients(layer: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(copy.deepcopy(layer), nn.GELU()).cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert fuse_biases(model) == ["0"]
    x = laid(drawn(shape, dtype, 1), layer)
    for _ in range(2):  # by Python, which tells the extension
        with torch.autocast("cuda", dtype):
            between = model[0](x)
            y = model[1](between)
        assert "Gelu" in y.grad_fn.name()
        assert "tapestry" in y.grad_fn.name()
        dy = laid(drawn(tuple(y.shape), dtype, 2), layer)
        slope, to_bias = torch.autograd.grad(y, [between, model[0].bias], dy)
        wide = between.detach().double().requires_grad_()
        expected = functional.gelu(wide)
        (exact,) = torch.autograd.grad(expected, wide, dy.double())
        unit = 2.0**-7 if dtype is BF16 else 2.0**-10
        close(y, expected, unit)
        close(slope, exact, unit)
        over = (0, 2, 3) if isinstance(layer, nn.Conv2d) else tuple(range(y.dim() - 1))
        size = exact.abs().sum(over)
        assert to_bias.dtype is torch.float32
        assert bool(((to_bias.double() - exact.sum(over)).abs() <= 1e-5 * size + 1e-6).all())
        assert (y.stride(), slope.stride()) == (between.stride(), between.stride())


def test_in_a_graph_and_again() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(96, 384), nn.GELU(), nn.Linear(384, 96)).cuda().to(BF16)
    fuse_biases(model)
    x, dy = drawn((1000, 96), BF16, 1).requires_grad_(), drawn((1000, 96), BF16, 2)
    torch.autograd.grad(model(x), model[0].bias, dy)
    graph, found = captured(lambda: torch.autograd.grad(model(x), model[0].bias, dy)[0])
    with torch.no_grad():
        x.mul_(2)
    graph.replay()
    assert torch.equal(found, torch.autograd.grad(model(x), model[0].bias, dy)[0])
