"""Layer scales with the sums behind them on a GPU, against the definition in f64. Skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.tensors import scale_calls
from tapestry.kernels.tensors.scale_calls import scaled_sum
from tapestry.kernels.torch import fuse_for_inference

from .closeness import UNITS, close
from .graphs import captured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
TYPES = [
    (BF16, F32, F32),
    (BF16, F32, BF16),
    (BF16, BF16, BF16),
    (F32, F32, F32),
    (F16, F32, F32),
]  # x, gamma, residual
SHAPES = [
    ((64, 96, 56, 56), (1, 96, 1, 1)), ((64, 768, 7, 7), (768, 1, 1)), ((5, 1000, 384), (384,)), ((77, 17), (17,)),
    ((3, 40, 9, 5), (1, 40, 1, 1)), ((2, 8, 300, 300), (8, 1, 1)), ((128, 50, 24), (24,)),
]  # fmt: skip


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else made


def operands(shape: tuple[int, ...], scale: tuple[int, ...], types: Any) -> list[Tensor]:
    made = [drawn(of, dtype, seed) for seed, (of, dtype) in enumerate(zip((shape, scale, shape), types, strict=True))]
    return [each.requires_grad_() for each in (made[0], made[1].contiguous(), made[2])]


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize(("shape", "scale"), SHAPES, ids=str)
@pytest.mark.parametrize("dropped", [False, True])
def test_values_and_gradients(shape: tuple[int, ...], scale: tuple[int, ...], types: Any, dropped: bool) -> None:
    given = operands(shape, scale, types)
    factors = None
    if dropped:
        kept = torch.arange(shape[0], device="cuda").remainder(3).clamp(max=1).to(given[1].dtype) * 1.25
        factors = kept.view(-1, *(1,) * (len(shape) - 1))
    y = scaled_sum(*given, factors)
    assert "Recorded" in y.grad_fn.name()
    assert y.stride() == given[0].stride()
    wide = [each.detach().double().requires_grad_() for each in given]
    expected = wide[0] * wide[1] * (1 if factors is None else factors.double()) + wide[2]
    dy = drawn(shape, y.dtype, 7)
    found = torch.autograd.grad(y, given, dy)
    exact = torch.autograd.grad(expected, wide, dy.double())
    close(y, expected, UNITS[y.dtype])
    for one, other in zip(found, exact, strict=True):
        close(one, other, UNITS[one.dtype])
    again = torch.autograd.grad(scaled_sum(*given, factors), given, dy)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


def test_addresses_that_are_not_aligned_are_torchs() -> None:
    held = torch.randn(1 + 6 * 8, device="cuda", dtype=BF16)
    x, gamma, residual = held[1:].view(6, 8), drawn((8,), F32, 2), drawn((6, 8), F32, 3)
    with torch.no_grad():
        assert torch.equal(scaled_sum(x, gamma, residual), x * gamma + residual)


def test_in_a_graph_and_again() -> None:
    x, gamma, residual = operands((64, 96, 28, 28), (1, 96, 1, 1), TYPES[0])
    dy = drawn((64, 96, 28, 28), F32, 5)
    graph, found = captured(lambda: torch.autograd.grad(scaled_sum(x, gamma, residual), gamma, dy)[0])
    with torch.no_grad():
        x.mul_(2)
    graph.replay()
    assert torch.equal(found, torch.autograd.grad(scaled_sum(x, gamma, residual), gamma, dy)[0])


class Scaled(nn.Module):
    """A block as ConvNeXt has it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gamma = nn.Conv2d(64, 64, 7, padding=3, groups=64), nn.Parameter(torch.rand(64))
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(nn.functional.gelu(self.up(self.conv(x).permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)
        return x + y.mul(self.gamma.reshape(1, -1, 1, 1))


def test_fused_inference_has_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernels, as nobody else is asked for, of halves; in a graph as well."""
    torch.manual_seed(3)
    model = nn.Sequential(Scaled(), Scaled()).cuda().to(memory_format=torch.channels_last).eval()
    made = fuse_for_inference(model)
    x = drawn((8, 64, 28, 28), BF16, 1)
    with torch.no_grad():
        expected = model(x.float())
        monkeypatch.setattr(scale_calls, "_by_torch", None)
        for _ in range(3):  # by way of Python, then by the extension
            found = made(x)
            assert found.dtype is BF16
            torch.testing.assert_close(found.float(), expected, rtol=3e-2, atol=6e-2)
        graph, again = captured(lambda: made(x))
        graph.replay()
    torch.testing.assert_close(again, found)
