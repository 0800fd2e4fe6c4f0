"""Convolutions with what follows them, by the extension as in Python."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.layers.fused import FusedConv2d
from tapestry.kernels.tensors import fused_calls, native_calls
from tapestry.kernels.tensors.geometry import Geometry, packed

from .driver import Driver
from .steps import BF16, autocast, layer, operands, told


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("activation", ["", "silu"])
def test_what_follows_a_convolution(driver: Driver, scale: bool, residual: bool, activation: str) -> None:
    x, other = operands()
    geometry = Geometry((1, 1), (1, 1, 1, 1), (1, 1), 2)
    scaled = torch.rand(16) if scale else None
    conv = FusedConv2d(layer().weight, scaled, torch.randn(16), activation, geometry)
    added = other if residual else None
    with torch.no_grad():
        found = [conv(x, added) for _ in range(3)]
        assert driver.ran == ["python", "native", "native"]
        assert all(torch.equal(one, found[0]) for one in found)
        y = nn.functional.conv2d(x.float(), conv.weight.float(), padding=1, groups=2)
        y = (y if scaled is None else y * scaled[:, None, None]) + conv.bias[:, None, None]  # type: ignore[index]
        y = y if added is None else y + added
        torch.testing.assert_close(found[0].float(), nn.functional.silu(y) if activation else y, atol=0.05, rtol=0.02)
        conv(x.contiguous(), added), conv(x, other.contiguous() if residual else None)
        assert driver.ran[3:] == (["python"] * 2 if residual else ["python", "native"])
        turned = [other.contiguous(), torch.cat([other, other], 1).split(16, 1)[0]] if residual else [None]
        for one in turned * 2:  # the same numbers, whatever is copied before
            given = torch.cat([x, x], 1).split(16, 1)[1]
            assert torch.equal(conv(x.contiguous(), one), found[0])
            assert torch.equal(conv(given, one), found[0])
        assert driver.ran[-2 * len(turned) :] == ["native"] * 2 * len(turned)
        driver.ran.clear()
        with autocast():
            torch.testing.assert_close(
                conv(x, added), found[0], atol=0.05, rtol=0.02
            )  # torch, one step after the other
        assert not driver.ran
        assert native_calls.fused is not None
        rest = (fused_calls._NUMBERS[activation], packed(*geometry[:3]), 2)
        assert native_calls.fused(x, conv.weight, conv.scale, conv.bias, added, *rest) is not None
        for unfit in (x.float(), x[0], x.to("meta"), torch.randn(2, 16, 9, 6, dtype=BF16)):
            assert native_calls.fused(unfit, conv.weight, conv.scale, conv.bias, added, *rest) is None
        assert native_calls.fused(x, conv.weight, conv.scale, None, added, *rest) is None
        assert native_calls.fused(x, conv.weight, conv.scale, conv.bias[:8], added, *rest) is None  # type: ignore[index]


def test_tangents_traces_and_slopes(driver: Driver) -> None:
    """A gradient of images, too, of which the launch knows as little."""
    x, _ = operands()
    conv = FusedConv2d(layer().weight, None, torch.randn(16), "silu", Geometry((1, 1), (1, 1, 1, 1), (1, 1), 2))
    conv(x), conv(x)
    assert driver.ran[-1] == "native"

    def theirs(given: Tensor) -> Tensor:
        y = nn.functional.conv2d(given, conv.weight, padding=1, groups=2)
        return nn.functional.silu(y.float() + conv.bias[:, None, None]).to(BF16)  # type: ignore[index]

    told(conv, theirs, x)
    x.requires_grad_()
    slopes = [torch.autograd.grad(one(x).sum(), x)[0] for one in (conv, theirs)]
    torch.testing.assert_close(*slopes, rtol=0.02, atol=0.02)


def test_residuals_that_are_not_like_the_result(driver: Driver) -> None:
    """The launch reads as many numbers as it writes; what torch broadcasts or promotes is added behind it."""
    x, other = operands()
    conv = FusedConv2d(layer().weight, None, torch.randn(16), "relu", Geometry((1, 1), (1, 1, 1, 1), (1, 1), 2))
    unfit: list[Any] = [
        other[:, :, :1, :1], other[:1], other[0], other[0, 0], other[0, 0, 0, 0], other.float(), torch.tensor(0.5),
        0.5, 2, other.unsqueeze(0),
    ]  # fmt: skip
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(conv(x, other), conv(x, other.contiguous()))
        y = FusedConv2d(conv.weight, None, conv.bias, "", conv.geometry)(x)
        for residual in unfit:
            expected = torch.relu(y + residual)
            for _ in range(3):
                made = conv(x, residual)
                assert made.dtype is expected.dtype
                assert torch.equal(made, expected)
            assert driver.ran[-1] == "native"
        one = conv(x[:1], other[:1])
        torch.testing.assert_close(one, conv(x, other)[:1])
        assert torch.equal(conv(x[:1], other), torch.relu(y[:1] + other))
