"""What follows a convolution or a product in place, by the extension: beside Python's way and f64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tapestry.kernels.layers.fused import FUNCTIONS
from tapestry.kernels.tensors import following_calls, native_calls
from tapestry.kernels.tensors.following_calls import ACTIVATIONS, follow

from .driver import DTYPES, STREAM, Driver, memory, prepared_by
from .steps import BF16, F32, by_python
from .test_channel_sums import sums

__all__ = ["sums"]  # a fixture


class Kernels:
    """Stands in for the kernel: what to launch is the addresses that are there, and what torch computes at such."""

    def launch(self, cut: Any, y: int, bias: int, residual: int) -> tuple[Any, ...]:
        there = (bias != 0, residual != 0)

        def compute(kind: Any, y: int, *rest: int) -> None:
            left, shape = list(rest), (cut.rows, cut.channels)
            made = memory(y, shape, DTYPES[kind.dtype])
            total = made.double()
            if there[0]:
                total = total + memory(left.pop(0), (cut.channels,), DTYPES[kind.parameters]).double()
            if there[1]:
                total = total + memory(left.pop(0), shape, DTYPES[kind.dtype]).double()
            made.copy_(FUNCTIONS[kind.activation](total))

        return [one for one in (y, bias, residual) if one], compute


@pytest.fixture
def followers(sums: Driver, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr(following_calls, "kernels", Kernels())
    monkeypatch.setattr(following_calls, "prepared", prepared_by(sums))
    monkeypatch.setattr(following_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(following_calls, "_plans", {})
    yield sums
    extension.forget_followers()


def drawn(seed: int, last: bool, dtype: torch.dtype = BF16) -> Tensor:
    made = torch.randn(2, 24, 5, 6, generator=torch.Generator().manual_seed(seed)).to(dtype)
    made = made.contiguous(memory_format=torch.channels_last)
    return made.permute(0, 2, 3, 1) if last else made


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("last", [False, True], ids=["images", "rows"])
def test_steps(followers: Driver, last: bool, activation: str) -> None:
    bias = torch.randn(24, generator=torch.Generator().manual_seed(7))
    for given in ((bias, None), (bias.to(BF16), drawn(2, last)), (None, drawn(3, last))):
        followers.ran.clear()
        for number, who in enumerate(("python", "native", "native")):
            y = drawn(4 + number, last)
            total = y.double()
            if given[0] is not None:
                total = total + (given[0] if last else given[0][:, None, None])
            if given[1] is not None:
                total = total + given[1]
            expected = FUNCTIONS[activation](total)
            if number == 2:
                with torch.no_grad():
                    made = follow(y, *given, activation, last)
            else:
                made = follow(y, *given, activation, last)
            assert made is not None
            assert made.data_ptr() == y.data_ptr()
            assert followers.ran[-1] == who
            torch.testing.assert_close(made.double(), expected, rtol=2**-7, atol=2**-7)
        assert followers.ran == ["python", "native", "native"]


def test_what_is_torchs(followers: Driver) -> None:
    """y is as it was."""
    y, bias, residual = drawn(1, False), torch.ones(24), drawn(2, False)
    assert follow(y.clone(memory_format=torch.preserve_format), bias, residual, "relu", False) is not None
    ran, before = len(followers.ran), y.clone()
    unfit: list[tuple[Tensor, Tensor | None, Tensor | None, bool]] = [
        (y.contiguous(), bias, residual, False), (y, bias[:8], residual, False), (y, bias.double(), residual, False),
        (y, bias, residual.contiguous(), False), (y, bias, residual[:1], False), (y, bias, residual.float(), False),
        (y[:0], bias, None, False), (y, torch.ones(48)[::2], None, False), (y, bias, None, True),
        (y, bias.clone().requires_grad_(), None, False), (y, bias, residual.clone().requires_grad_(), False),
        (y.to("meta"), bias, None, False), (y[0, :, 0, 0], bias, None, True),
    ]  # fmt: skip
    for way in (None, by_python()):
        with way or torch.enable_grad():
            for one, *given, last in unfit:
                assert follow(one, *given, "relu", last) is None  # type: ignore[arg-type]
    assert len(followers.ran) == ran
    assert torch.equal(y, before)


def test_an_address_between_accesses(followers: Driver) -> None:
    room = torch.zeros(2 * 30 * 24 + 1, dtype=BF16)
    odd = room[1:].view(60, 24)
    assert follow(odd, torch.ones(24), None, "", True) is None
    assert follow(torch.zeros(60, 24, dtype=BF16), torch.ones(24), odd, "", True) is None
    assert not room.any()


def test_types_and_counts_are_told_apart(followers: Driver) -> None:
    bias = torch.randn(24, generator=torch.Generator().manual_seed(7))
    for _ in range(3):
        for dtype in (BF16, F32):
            for last in (False, True):
                y = drawn(1, last, dtype)
                expected = functional.silu(y.double() + (bias if last else bias[:, None, None]))
                made = follow(y, bias, None, "silu", last)
                assert made is not None
                torch.testing.assert_close(made.double(), expected, rtol=2**-7, atol=2**-7)
    assert native_calls.followed is not None
