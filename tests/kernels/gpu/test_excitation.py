"""Squeeze-and-excitations on a GPU, against f64. Skipped where there is none."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.torch import fuse_excitations

from .graphs import captured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

UNITS = {torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6, torch.float32: 2.0**-17}


@pytest.fixture(autouse=True)
def single_precision() -> Iterator[None]:
    """Of the small convolutions in between, whose operands torch rounds to eleven bits otherwise."""
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


class Excite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce, self.act = nn.Conv2d(channels, 8, 1), nn.SiLU(inplace=True)
        self.expand, self.gate = nn.Conv2d(8, channels, 1), nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x * self.gate(self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True)))))
        return out


def images(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    random = torch.Generator("cuda").manual_seed(seed)
    x = torch.randn(shape, generator=random, device="cuda") + 0.5
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


def models(channels: int, dtype: torch.dtype) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(Excite(channels)).to("cuda", dtype, memory_format=torch.channels_last)
    exact = copy.deepcopy(model).double()
    assert fuse_excitations(model) == ["0"]
    return model, exact


SHAPES = [
    (128, 96, 14, 14), (70, 24, 31, 17), (64, 1152, 7, 7), (80, 18, 9, 9),
    (8, 144, 95, 95), (32, 24, 190, 190), (9, 40, 57, 57), (32, 1632, 12, 12),  # images cut among several blocks
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", list(UNITS), ids=str)
def test_values_and_gradients(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    model, exact = models(shape[1], dtype)
    # Sums over 36,100 pixels would be too large for f16.
    x, dy, unit = images(shape, dtype, 1).requires_grad_(), images(shape, dtype, 2) / 16, UNITS[dtype]
    y, wide = model(x), x.detach().double().requires_grad_()
    assert "Excite" in y.grad_fn.name()
    expected = exact(wide)
    found = [y, *torch.autograd.grad(y, [x, *model.parameters()], dy)]
    wanted = [expected, *torch.autograd.grad(expected, [wide, *exact.parameters()], dy.double())]
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        error = float((one.detach().double() - other.detach()).norm() / other.detach().norm())
        assert error < (unit if number < 2 else 8 * unit), number


def test_gradients_that_are_not_dense() -> None:
    model, exact = models(32, torch.bfloat16)
    x = images((64, 32, 8, 8), torch.bfloat16, 1).requires_grad_()
    wide = x.detach().double().requires_grad_()
    (found,) = torch.autograd.grad(model(x).mean((2, 3)).float().square().sum(), x)
    (expected,) = torch.autograd.grad(exact(wide).mean((2, 3)).square().sum(), wide)
    assert float((found.double() - expected).norm() / expected.norm()) < 0.02


def test_in_a_graph_it_follows() -> None:
    model, exact = models(32, torch.float32)
    x, dy = images((64, 32, 8, 8), torch.float32, 1).requires_grad_(), images((64, 32, 8, 8), torch.float32, 2)
    graph, dx = captured(lambda: torch.autograd.grad(model(x), x, dy)[0])
    with torch.no_grad():
        x.copy_(images((64, 32, 8, 8), torch.float32, 9))
    graph.replay()
    wide = x.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(exact(wide), wide, dy.double())
    assert float((dx.double() - expected).norm() / expected.norm()) < 1e-4
