"""Layer scales by the extension: the bits of the path in Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tapestry.kernels.tensors import native_calls, scale_calls
from tapestry.kernels.tensors.scale_calls import scaled_sum

from .driver import DTYPES, STREAM, Driver, memory, prepared_by
from .steps import BF16, F32, by_python, same, told

CHANNELS = 24


class Kernels:
    """Stands in for the kernels: what to launch is the addresses that are there, and what torch computes at such."""

    def forward(self, cut: Any, given: Any, residual: int, y: int) -> tuple[Any, ...]:
        there = [given.x, given.gamma, residual, y, given.factors]

        def compute(kind: Any, x: int, gamma: int, residual: int, y: int, factors: int) -> None:
            scale = self._scale(kind, cut, gamma, factors, given.pixels)
            added = memory(residual, (cut.rows, cut.channels), DTYPES[kind.added]).float()
            made = memory(x, (cut.rows, cut.channels), DTYPES[kind.dtype]).float() * scale + added
            memory(y, (cut.rows, cut.channels), DTYPES[kind.result]).copy_(made)

        return there, compute

    def gradient(self, cut: Any, given: Any, dy: int, dx: int, to_gamma: int, room: int) -> tuple[Any, ...]:
        there = [given.x, dy, given.gamma, dx, to_gamma, room, given.factors]

        def compute(kind: Any, x: int, dy: int, gamma: int, dx: int, to_gamma: int, room: int, factors: int) -> None:
            slopes = memory(dy, (cut.rows, cut.channels), DTYPES[kind.result]).float()
            values = memory(x, (cut.rows, cut.channels), DTYPES[kind.dtype])
            scale = self._scale(kind, cut, gamma, factors, given.pixels)
            memory(dx, (cut.rows, cut.channels), values.dtype).copy_(slopes * scale)
            own = DTYPES[kind.parameters]
            share = scale / memory(gamma, (cut.channels,), own).float()
            memory(to_gamma, (cut.channels,), own).copy_((slopes * share * values.float()).sum(0))
            memory(room, (self.workspace(cut),)).fill_(torch.nan)

        return there, compute

    @staticmethod
    def workspace(cut: Any) -> int:
        return int(cut.channels * cut.blocks)

    @staticmethod
    def _scale(kind: Any, cut: Any, gamma: int, factors: int, pixels: int) -> Tensor:
        scale = memory(gamma, (cut.channels,), DTYPES[kind.parameters]).float()[None]
        if not factors:
            return scale
        return scale * memory(factors, (cut.rows // pixels,)).repeat_interleave(pixels)[:, None]


@pytest.fixture
def scales(driver: Driver, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr(scale_calls, "kernels", Kernels())
    monkeypatch.setattr(scale_calls, "prepared", prepared_by(driver))
    monkeypatch.setattr(scale_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(scale_calls, "_plans", {})
    yield driver
    extension.forget_scales()


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if len(shape) == 4 and shape[-1] > 1 else made


CASES = [
    ((3, CHANNELS, 4, 5), (1, CHANNELS, 1, 1)), ((3, CHANNELS, 4, 5), (CHANNELS, 1, 1)),
    ((3, 7, CHANNELS), (CHANNELS,)), ((3, CHANNELS), (CHANNELS,)),
]  # fmt: skip
TYPES = [(BF16, F32, F32), (BF16, F32, BF16), (BF16, BF16, BF16), (F32, F32, F32)]


def operands(shape: tuple[int, ...], scale: tuple[int, ...], types: Any) -> list[Tensor]:
    made = [drawn(of, dtype, seed) for seed, (of, dtype) in enumerate(zip((shape, scale, shape), types, strict=True))]
    return [each.requires_grad_() for each in made]


def step(given: list[Tensor], factors: Tensor | None, dy: Tensor) -> list[Tensor | None]:
    y = scaled_sum(*given, factors)
    return [y.detach(), *torch.autograd.grad(y, given, dy)]


@pytest.mark.parametrize(("shape", "scale"), CASES, ids=str)
@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("dropped", [False, True])
def test_steps(scales: Driver, shape: tuple[int, ...], scale: tuple[int, ...], types: Any, dropped: bool) -> None:
    given = operands(shape, scale, types)
    factors = torch.tensor([1.25, 0.5, 1.25], dtype=types[1]).view(3, *(1,) * (len(shape) - 1)) if dropped else None
    with by_python():
        expected = step(given, factors, dy := drawn(shape, scaled_sum(*given, factors).dtype, 7))
    for who in ("python", "native", "native"):
        scales.ran.clear()
        same(step(given, factors, dy), expected)
        assert scales.ran == [who] * 2
    with torch.no_grad():
        scales.ran.clear()
        assert torch.equal(scaled_sum(*given, factors), expected[0])  # type: ignore[arg-type]
        assert scales.ran == ["native"]
    if len(shape) == 4:  # a gradient that lies otherwise is copied first
        same(step(given, factors, dy.contiguous())[:3], expected[:3])
        assert scales.ran[-2:] == ["native"] * 2


def test_the_definition(scales: Driver) -> None:
    given, dy = operands(*CASES[0], TYPES[3]), drawn(CASES[0][0], F32, 5)
    step(given, None, dy)
    wide = [each.detach().double().requires_grad_() for each in given]
    y = wide[0] * wide[1] + wide[2]
    for one, other in zip(step(given, None, dy), [y, *torch.autograd.grad(y, wide, dy.double())], strict=True):
        assert one is not None
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_a_forward_that_is_known_before_its_gradient(scales: Driver) -> None:
    """As of the second of two blocks that look alike, in a first step."""
    given, dy = operands(*CASES[0], TYPES[0]), drawn(CASES[0][0], F32, 5)
    first, second = scaled_sum(*given), scaled_sum(*given)
    assert scales.ran == ["python", "native"]
    found = [torch.autograd.grad(y, given, dy) for y in (second, first)]
    assert scales.ran == ["python", "native", "python", "python"]
    same(list(found[0]), list(found[1]))


def test_other_calls_are_left_to_python(scales: Driver) -> None:
    x, gamma, residual = operands(*CASES[0], TYPES[0])
    step([x, gamma, residual], None, drawn(CASES[0][0], F32, 5))
    known = native_calls.scaled_sum
    assert known is not None
    assert known(x, gamma, residual, None) is not None
    assert known(x, gamma.view(CHANNELS, 1, 1), residual, None) is not None
    ones = torch.ones(3, 1, 1, 1)
    unfit: list[tuple[Any, ...]] = [
        (x.contiguous(), gamma, residual, None), (x[:1], gamma, residual[:1], None), (x.float(), gamma, residual, None),
        (x, gamma.view(-1), residual, None), (x, gamma.bfloat16(), residual, None),
        (x, gamma.to("meta"), residual, None), (x, gamma.view(2, 12, 1, 1), residual, None),
        (x, gamma[:, :1], residual, None), (x, torch.ones(()), residual, None),
        (x, gamma, residual.bfloat16(), None), (x, gamma, residual.contiguous(), None), (x, gamma, residual[:1], None),
        (x, gamma.view(1, CHANNELS), residual, None), (x, gamma.detach(), residual, None),
        (x, gamma, residual, ones), (x, gamma, residual, ones[:2]), (x[0], gamma, residual[0], None),
    ]  # fmt: skip
    for given in unfit:
        assert known(*given) is None
    scales.status = 700
    with pytest.raises(RuntimeError, match="refused"):
        scaled_sum(x, gamma, residual)


def test_a_second_derivative(scales: Driver) -> None:
    given, dy = operands(*CASES[2], TYPES[3]), drawn(CASES[2][0], F32, 5)
    step(given, None, dy)
    (slope,) = torch.autograd.grad(scaled_sum(*given).sin().sum(), given[0], create_graph=True)
    found = torch.autograd.grad(slope.square().sum(), given[:2])
    (exact,) = torch.autograd.grad((given[0] * given[1] + given[2]).sin().sum(), given[0], create_graph=True)
    for one, other in zip(found, torch.autograd.grad(exact.square().sum(), given[:2]), strict=True):
        torch.testing.assert_close(one, other)


def test_tangents_and_traces(scales: Driver) -> None:
    x, gamma, residual = operands(*CASES[0], TYPES[3])
    scaled_sum(x, gamma, residual), scaled_sum(x, gamma, residual)
    assert scales.ran[-1] == "native"
    gamma, residual = gamma.detach(), residual.detach()
    told(lambda given: scaled_sum(given, gamma, residual), lambda given: given * gamma + residual, x)
