"""Layer scales with the sums behind them, on CPU tensors: the calls that kernels get, which run on the emulated
machine. In models: models/test_scales.py; by the extension: native/test_scales.py; on a GPU: gpu/test_scales.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tapestry.kernels.normalization import scaled_sum as kernels
from tapestry.kernels.tensors import scale_calls
from tapestry.kernels.tensors.scale_calls import scaled_sum

from ..emulated_calls import emulated, kept_elsewhere

BF16, F32, F64 = torch.bfloat16, torch.float32, torch.float64
UNITS = {F32: 1e-5, BF16: 2.0**-7}


def drawn(*shape: int, dtype: torch.dtype = F32, seed: int = 1) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else made


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """CPU tensors are direct, and launches run where there is no GPU; the kernels' names as they are launched."""
    return emulated(monkeypatch, scale_calls, kernels.KERNELS)


CASES = [  # x, gamma, residual; their types and whether images are dropped
    ((3, 24, 4, 5), (1, 24, 1, 1), (BF16, F32, F32), False), ((3, 24, 4, 5), (24, 1, 1), (BF16, F32, BF16), True),
    ((3, 7, 24), (24,), (BF16, F32, F32), True), ((3, 24), (24,), (F32, F32, F32), False),
    ((3, 7, 24), (24,), (BF16, BF16, BF16), True), ((3, 17, 2, 2), (1, 17, 1, 1), (F32, F32, F32), True),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "scale", "types", "dropped"), CASES, ids=str)
def test_calls(shape: tuple[int, ...], scale: tuple[int, ...], types: Any, dropped: bool, launched: list[str]) -> None:
    x, gamma, residual = (
        drawn(*of, dtype=dtype, seed=k) for k, (of, dtype) in enumerate(zip((shape, scale, shape), types, strict=True))
    )
    gamma = gamma.contiguous()
    factors = torch.tensor([1.25, 0.0, 1.25], dtype=gamma.dtype).view(3, *(1,) * (len(shape) - 1)) if dropped else None
    given = [each.requires_grad_() for each in (x, gamma, residual)]
    wide = [each.detach().double().requires_grad_() for each in given]
    expected = wide[0] * wide[1] * (1 if factors is None else factors.double()) + wide[2]
    for turn in range(2):
        y = scaled_sum(*given, factors)
        assert y.dtype is torch.promote_types(torch.promote_types(types[0], types[1]), types[2])
        assert y.stride() == x.stride()
        dy = drawn(*shape, dtype=y.dtype, seed=7)
        dy = dy.contiguous() if turn else dy  # in another order, too
        found = [y, *torch.autograd.grad(y, given, dy)]
        for one, other in zip(
            found, [expected, *torch.autograd.grad(expected, wide, dy.double(), retain_graph=True)], strict=True
        ):
            unit = UNITS[one.dtype]
            torch.testing.assert_close(
                one.double(), other, rtol=unit, atol=unit * max(1, float(other.detach().abs().max()))
            )
        assert [each.dtype for each in found[1:]] == list(types)
        assert [each.shape for each in found[1:]] == [each.shape for each in given]
    assert launched == ["scaled_sum", "scaled_sum_gradient", "scaled_sum_fold"] * 2


@pytest.mark.parametrize(("shape", "scale"), [((3, 24, 4, 5), (24, 1, 1)), ((3, 7, 24), (24,))], ids=str)
def test_what_is_kept_elsewhere(shape: tuple[int, ...], scale: tuple[int, ...], launched: list[str]) -> None:
    x, gamma, residual = (drawn(*of, seed=k) for k, of in enumerate((shape, scale, shape)))
    given = [x.requires_grad_(), gamma.contiguous().requires_grad_()]
    with kept_elsewhere():
        y = scaled_sum(*given, residual)
    dy = drawn(*shape, seed=7)
    for one, other in zip(*(torch.autograd.grad(z, given, dy) for z in (y, given[0] * given[1])), strict=True):
        torch.testing.assert_close(one, other)
    assert launched == ["scaled_sum", "scaled_sum_gradient", "scaled_sum_fold"]


def test_derivatives_of_higher_order(launched: list[str]) -> None:
    x, residual, gamma = (
        (drawn(2, 3, 8, seed=k, dtype=F32).requires_grad_() for k in range(2)),
        drawn(2, 3, 8),
        drawn(8),
    )
    first, _ = x
    gamma.requires_grad_()

    def second(call: Callable[..., Tensor]) -> list[Tensor]:
        (slope,) = torch.autograd.grad(call(first, gamma, residual).sin().sum(), first, create_graph=True)
        return list(torch.autograd.grad(slope.square().sum(), [first, gamma]))

    for one, other in zip(second(scaled_sum), second(lambda x, g, r: x * g + r), strict=True):
        torch.testing.assert_close(one, other)
    assert "scaled_sum" in launched


@pytest.mark.parametrize(
    "given",
    [
        (drawn(2, 8, 3, 3).contiguous(), drawn(1, 8, 1, 1), drawn(2, 8, 3, 3)),
        (drawn(2, 3, 8), drawn(8), drawn(1, 3, 8)),
        (drawn(2, 8, 3, 3), drawn(8, 3, 3), drawn(2, 8, 3, 3)),
        (drawn(2, 3, 8), drawn(1), drawn(2, 3, 8)),
        (drawn(2, 3, 8, dtype=F64), drawn(8, dtype=F64), drawn(2, 3, 8, dtype=F64)),
        (drawn(2, 8, 3, 3), drawn(3), drawn(2, 8, 3, 3)),
        (drawn(0, 3, 8), drawn(8), drawn(0, 3, 8)),
        (drawn(2, 8, 4, 8), drawn(1, 8), drawn(2, 8, 4, 8)),
        (drawn(2, 8, 4, 5), drawn(1, 1, 8, 1, 1), drawn(2, 8, 4, 5)),
    ],
    ids=[
        "another order", "broadcast", "no number a channel", "one number", "f64", "columns", "nothing",
        "two dimensions", "five",
    ],
)  # fmt: skip
def test_other_tensors_are_torchs(given: tuple[Tensor, ...], launched: list[str]) -> None:
    x, gamma, residual = given
    with torch.no_grad():  # else it is one that does not learn
        assert torch.equal(scaled_sum(x, gamma, residual), x * gamma + residual)
    assert launched == []


def test_a_scale_that_does_not_learn_keeps_no_more_than_torchs(launched: list[str]) -> None:
    x, gamma, residual = (drawn(2, 3, 8, seed=seed) for seed in (1, 2, 3))
    y = scaled_sum(x.requires_grad_(), gamma[0, 0], residual)
    assert launched == []
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], gamma[0, 0].expand(2, 3, 8))


def test_gradients_that_are_batched(launched: list[str]) -> None:
    x, gamma, residual = drawn(2, 3, 8).requires_grad_(), drawn(8).requires_grad_(), drawn(2, 3, 8)
    slopes = drawn(4, 2, 3, 8, seed=5).contiguous()
    found = torch.autograd.grad(scaled_sum(x, gamma, residual), [x, gamma], slopes, is_grads_batched=True)
    expected = torch.autograd.grad(x * gamma + residual, [x, gamma], slopes, is_grads_batched=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
