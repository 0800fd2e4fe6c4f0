"""Layer norms by the extension: the bits of the path in Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.layers.layer_norms import FusedLayerNorm
from tapestry.kernels.tensors import layer_norm_calls, native_calls

from .driver import DTYPES, STREAM, Driver, memory, prepared_by
from .steps import BF16, F32, autocast, by_python, same, step, told

CHANNELS = 24


class Rows:
    """Stands in for the kernels: what to launch is the addresses that are there, and what torch computes at such."""

    def forward(self, _: Any, cut: Any, given: Any, epsilon: float, y: int) -> tuple[Any, ...]:
        there = [given.x, y, given.statistics, given.weight, given.bias]

        def compute(kind: Any, x: int, y: int, statistics: int, weight: int, bias: int) -> None:
            rows = memory(x, (cut.rows, cut.channels), DTYPES[kind.dtype]).float()
            own = DTYPES[kind.parameters]
            scale, shift = (memory(one, (cut.channels,), own).float() if one else None for one in (weight, bias))
            made = nn.functional.layer_norm(rows, (cut.channels,), scale, shift, epsilon)
            memory(y, (cut.rows, cut.channels), DTYPES[kind.result]).copy_(made)
            found = torch.stack([rows.mean(1), (rows.var(1, correction=0) + epsilon).rsqrt()], 1)
            memory(statistics, (cut.rows, 2)).copy_(found)

        return there, compute

    def gradient(self, _: Any, cut: Any, given: Any, made: Any, room: int) -> tuple[Any, ...]:
        there = [given.x, made.dy, given.statistics, made.dx, made.weight, made.bias, room, given.weight]

        def compute(
            kind: Any, x: int, dy: int, statistics: int, dx: int, to_weight: int, to_bias: int, room: int, weight: int
        ) -> None:
            rows = memory(x, (cut.rows, cut.channels), DTYPES[kind.dtype])
            slopes = memory(dy, (cut.rows, cut.channels), DTYPES[kind.result]).float()
            mean, inverse = memory(statistics, (cut.rows, 2)).clone().unbind(1)
            normal = (rows.float() - mean[:, None]) * inverse[:, None]
            own = DTYPES[kind.parameters]
            tilted = slopes * memory(weight, (cut.channels,), own) if weight else slopes
            along = (tilted * normal).mean(1, keepdim=True) * normal
            memory(dx, (cut.rows, cut.channels), rows.dtype).copy_(
                (tilted - tilted.mean(1, keepdim=True) - along) * inverse[:, None]
            )
            memory(to_weight, (cut.channels,), own).copy_((slopes * normal).sum(0))
            memory(to_bias, (cut.channels,), own).copy_(slopes.sum(0))
            memory(room, (cut.workspace,)).fill_(torch.nan)

        return there, compute


@pytest.fixture
def rows(driver: Driver, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    monkeypatch.setattr(layer_norm_calls, "layer_norm", Rows())
    monkeypatch.setattr(layer_norm_calls, "prepared", prepared_by(driver))
    monkeypatch.setattr(layer_norm_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(layer_norm_calls, "_plans", {})
    yield driver
    extension.forget_layer_norms()


def layer(first: bool = False, read_lowered: bool = False, **settings: Any) -> FusedLayerNorm:
    torch.manual_seed(3)
    norm = nn.LayerNorm(CHANNELS, eps=1e-3, **settings)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return FusedLayerNorm(norm, first, read_lowered)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return made.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else made


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("lowered", [None, False, True])
@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("settings", [{}, {"bias": False}, {"elementwise_affine": False}], ids=str)
@pytest.mark.parametrize("own", [F32, BF16])
def test_steps(
    rows: Driver, first: bool, lowered: bool | None, dtype: torch.dtype, settings: dict[str, Any], own: torch.dtype
) -> None:
    """Without autocast (`lowered` is None) and with it, where the result is f32 or read lowered."""
    if own is BF16 and dtype is F32:
        pytest.skip("torch's, and refused")
    norm = layer(first, bool(lowered), **settings).to(own)
    shape = (2, CHANNELS, 3, 5) if first else (2, 3, CHANNELS)
    x = drawn(shape, dtype).requires_grad_()
    with contextlib.nullcontext() if lowered is None else autocast():
        result = dtype if lowered is None else BF16 if lowered else F32
        dy = drawn(shape, result, 1)
        for expected_by in ("python", "native", "native"):
            with by_python():
                expected = step(norm, x, dy)
            rows.ran.clear()
            found = step(norm, x, dy)
            same(found, expected)
            assert found[0] is not None
            assert found[0].dtype is result
            assert rows.ran == [expected_by] * 2
        with torch.no_grad():
            rows.ran.clear()
            assert torch.equal(norm(x), found[0])
            assert rows.ran == ["native"]


def test_norms_that_differ_in_the_type_of_their_parameters(rows: Driver) -> None:
    """By turns: none is taken for the other."""
    norms, x, dy = (
        [layer(), layer().to(BF16)],
        drawn((2, 3, CHANNELS), BF16).requires_grad_(),
        drawn((2, 3, CHANNELS), BF16, 1),
    )
    with by_python():
        expected = [step(norm, x, dy) for norm in norms]
    for who in ("python", "native", "native"):
        for norm, wanted in zip(norms, expected, strict=True):
            rows.ran.clear()
            same(step(norm, x, dy), wanted)
            assert rows.ran == [who] * 2


def test_the_definition(rows: Driver) -> None:
    """The calls that are repeated, beside torch's own layer norm in f64."""
    norm, x, dy = layer(), drawn((4, 3, CHANNELS), F32).requires_grad_(), drawn((4, 3, CHANNELS), F32, 1)
    step(norm, x, dy)
    found = step(norm, x, dy)
    assert rows.ran == ["python"] * 2 + ["native"] * 2
    wide = [t.detach().double().requires_grad_() for t in (x, *norm.parameters())]
    y = nn.functional.layer_norm(wide[0], (CHANNELS,), *wide[1:], eps=norm.eps)
    for one, other in zip(found, [y, *torch.autograd.grad(y, wide, dy.double())], strict=True):
        assert one is not None
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)


def test_other_calls_are_left_to_python(rows: Driver) -> None:
    norm, x = layer(True), drawn((2, CHANNELS, 3, 5), F32).requires_grad_()
    dy = drawn((2, CHANNELS, 3, 5), F32, 1)
    expected = [step(norm, x, dy) for _ in range(2)][1]
    rows.ran.clear()
    same(step(norm, x, dy.contiguous()), expected)  # other strides than those of y: copied first
    assert rows.ran == ["native", "native"]
    known = native_calls.layer_norm
    assert known is not None
    rest = (norm.weight, norm.bias, norm.eps)
    assert known(x, *rest, True, False) is not None
    empty = x[:, :0]
    for unfit in (x.double(), x.contiguous(), x[:1], x[0], x[:0], empty, x.to("meta"), None, 3):
        assert known(unfit, *rest, True, False) is None
    for first, weight, bias, epsilon in (
        (False, *rest), (True, norm.weight[:8], norm.bias, norm.eps), (True, None, norm.bias, norm.eps),
        (True, norm.weight, None, norm.eps), (True, norm.weight, norm.bias, 1e-5),
    ):  # fmt: skip
        assert known(x, weight, bias, epsilon, first, False) is None
    with pytest.raises(RuntimeError, match="3 tensors and 3 values"):
        known(x, *rest)
    rows.status = 700
    with pytest.raises(RuntimeError, match="refused"):
        norm(x)


def test_a_second_derivative(rows: Driver) -> None:
    norm = layer()
    x = drawn((3, CHANNELS), F32).requires_grad_()
    found = []
    for _ in range(2):
        (dx,) = torch.autograd.grad(norm(x).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(dx.square().sum(), [x, norm.weight]))
    assert rows.ran == ["python"] * 2 + ["native"] * 2  # the second is of dy too, which y is a part of
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore:Using backward")  # with a graph, of cycles
def test_hooks_are_set_off_once(rows: Driver) -> None:
    """By a gradient that may be differentiated, too, which torch's functions compute within the backward pass."""
    norm, x = layer(), drawn((3, CHANNELS), F32).requires_grad_()
    called: list[str] = []
    norm.weight.register_hook(lambda dy: called.append("weight") or dy * 0.1)
    x.register_hook(lambda dy: called.append("x") or -dy)
    found = []
    for again in (False, True):
        norm.zero_grad()
        x.grad = None
        norm(x).square().sum().backward(create_graph=again)
        found.append([x.grad, norm.weight.grad, norm.bias.grad])
        assert sorted(called) == ["weight", "x"]
        called.clear()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_tangents_and_traces(rows: Driver) -> None:
    norm, x = layer(), drawn((2, 3, CHANNELS), F32)
    norm(x), norm(x)
    assert rows.ran[-1] == "native"
    told(norm, lambda given: nn.functional.layer_norm(given, (CHANNELS,), norm.weight, norm.bias, norm.eps), x)
