"""What follows a convolution or a product in place, by the extension: beside Python's way and f64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

from tapestry.kernels.layers.fused import FUNCTIONS
from tapestry.kernels.tensors import following_calls, native_calls
from tapestry.kernels.tensors.following_calls import ACTIVATIONS, Following, follow

from .driver import DTYPES, STREAM, Driver, memory, prepared_by
from .steps import BF16, F32, by_python
from .test_channel_sums import sums

__all__ = ["sums"]  # a fixture


class Kernels:
    """Stands in for the kernel: what to launch is the addresses that are there, and what torch computes at such."""

    def launch(self, cut: Any, given: Any, y: int) -> tuple[Any, ...]:
        x, *rest = given
        there, apart = [one != 0 for one in rest], y != x

        def compute(kind: Any, x: int, *rest: int) -> None:
            left, shape, typed = list(rest), (cut.rows, cut.channels), DTYPES[kind.parameters]
            made = memory(left.pop(0) if apart else x, shape, DTYPES[kind.dtype])
            total = memory(x, shape, DTYPES[kind.dtype]).double()
            if there[0]:
                total = total * memory(left.pop(0), (cut.channels,), typed).double()
            if there[1]:
                total = total + memory(left.pop(0), (cut.channels,), typed).double()
            if there[2]:
                total = total + memory(left.pop(0), shape, DTYPES[kind.dtype]).double()
            made.copy_(FUNCTIONS[kind.activation](total))

        return [one for one in (x, y if apart else 0, *rest) if one], compute


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
@pytest.mark.parametrize("apart", [False, True], ids=["in place", "apart"])
def test_steps(followers: Driver, last: bool, activation: str, apart: bool) -> None:
    scale, bias = (torch.randn(24, generator=torch.Generator().manual_seed(seed)) for seed in (7, 8))
    cases = [
        (None, bias, None),
        (None, bias.to(BF16), drawn(2, last)),
        (scale, bias, drawn(3, last)),
        (scale, None, None),
    ]
    for given in cases:
        then = Following(*given, activation)
        followers.ran.clear()
        for number, who in enumerate(("python", "native", "native")):
            x = drawn(4 + number, last)
            before, out = x.clone(), torch.empty_like(x) if apart else None
            wide = [one if one is None or last or one.dim() > 1 else one[:, None, None] for one in given]
            total = x.double() * (1 if wide[0] is None else wide[0]) + (0 if wide[1] is None else wide[1])
            expected = FUNCTIONS[activation](total if wide[2] is None else total + wide[2])
            with torch.no_grad() if number == 2 else torch.enable_grad():
                made = follow(x, then, last, out)
            assert made is not None
            assert made.data_ptr() == (x if out is None else out).data_ptr()
            assert torch.equal(x, before) or not apart
            assert followers.ran[-1] == who
            torch.testing.assert_close(made.double(), expected, rtol=2**-7, atol=2**-7)
        assert followers.ran == ["python", "native", "native"]


def test_what_is_torchs(followers: Driver) -> None:
    """x is as it was."""
    x, scale, bias, residual = drawn(1, False), torch.ones(24), torch.ones(24), drawn(2, False)
    given = (scale, bias, residual)
    assert follow(x.clone(memory_format=torch.preserve_format), Following(*given, "relu"), False) is not None
    ran, before = len(followers.ran), x.clone()
    unfit: list[tuple[Tensor, tuple[Tensor | None, ...], bool]] = [
        (x.contiguous(), given, False), (x, (scale, bias[:8], residual), False), (x[:0], (None, bias, None), False),
        (x, (scale.double(), bias.double(), residual), False), (x, (scale.to(BF16), bias, residual), False),
        (x, (scale, bias, residual.contiguous()), False), (x, (scale, bias, residual[:1]), False),
        (x, (scale, bias, residual.float()), False), (x, (torch.ones(48)[::2], bias, None), False),
        (x, (None, bias, None), True), (x, (None, bias.clone().requires_grad_(), None), False),
        (x, (None, bias, residual.clone().requires_grad_()), False), (x.to("meta"), (None, bias, None), False),
        (x[0, :, 0, 0], (None, bias, None), True),
    ]  # fmt: skip
    for way in (None, by_python()):
        with way or torch.enable_grad():
            for one, then, last in unfit:
                assert follow(one, Following(*then, "relu"), last) is None
        with forward_ad.dual_level():  # x may have a tangent, of which a kernel would know nothing
            assert follow(x, Following(*given, "relu"), False) is None
    assert len(followers.ran) == ran
    assert torch.equal(x, before)


def test_an_address_between_accesses(followers: Driver) -> None:
    room, bias = torch.zeros(2 * 30 * 24 + 1, dtype=BF16), torch.ones(24)
    odd = room[1:].view(60, 24)
    assert follow(odd, Following(None, bias, None, ""), True) is None
    assert follow(torch.zeros(60, 24, dtype=BF16), Following(None, bias, odd, ""), True) is None
    assert not room.any()


def test_types_and_counts_are_told_apart(followers: Driver) -> None:
    bias = torch.randn(24, generator=torch.Generator().manual_seed(7))
    for _ in range(3):
        for dtype in (BF16, F32):
            for last in (False, True):
                x = drawn(1, last, dtype)
                expected = functional.silu(x.double() + (bias if last else bias[:, None, None]))
                made = follow(x, Following(None, bias, None, "silu"), last)
                assert made is not None
                torch.testing.assert_close(made.double(), expected, rtol=2**-7, atol=2**-7)
    assert native_calls.followed is not None
