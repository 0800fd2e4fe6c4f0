"""Gradients of biases by the extension: the bits of the path in Python, and torch's sums where kernels take no call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tapestry.kernels.normalization.stretches import Launch as Described
from tapestry.kernels.runtime import background
from tapestry.kernels.tensors import channel_sums, convolution_calls, native_calls

from .driver import DTYPES, STREAM, Driver, Launch, memory
from .steps import BF16, F32, autocast, by_python, layer, operands, same, step


def parts(kind: Any, words: Sequence[Any]) -> Callable[[int, int], None]:
    """What `image_sums` does, of a cut's words."""
    cut = memoryview(words[-1]).cast("B")
    rows, (channels, _, _, stretch, blocks) = cut[:8].cast("q")[0], cut[8:28].cast("i")

    def run(x: int, out: int) -> None:
        wide = memory(x, (rows, channels), DTYPES[kind.dtype]).double()
        made = torch.stack([part.sum(0) for part in wide.split(stretch)])
        memory(out, (blocks, channels)).copy_(made)

    return run


def fold(_: Any, words: Sequence[Any]) -> Callable[[int, int], None]:
    blocks, channels = memoryview(words[-1]).cast("B")[24:28].cast("i")[0], memoryview(words[-1])[8:12].cast("i")[0]

    def run(room: int, out: int) -> None:
        left = memory(room, (blocks, channels))
        memory(out, (channels,)).copy_(left.double().sum(0))
        left.fill_(torch.nan)

    return run


COMPUTE = {"image_sums": parts, "image_sums_fold": fold}


@pytest.fixture
def sums(driver: Driver, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    def prepared(kind: Any, launches: Sequence[Described], device: int) -> list[Launch]:
        def kernel(launch: Described) -> Callable[..., None]:
            compute = COMPUTE[launch.kernel](kind, launch.arguments)

            def run(*addresses: int) -> None:
                with torch.no_grad():
                    compute(*addresses)

            return run

        addresses = [tuple(one for one in launch.arguments if isinstance(one, int) and one) for launch in launches]
        return [Launch(driver, kernel(launch), at) for launch, at in zip(launches, addresses, strict=True)]

    def computed(x: Tensor) -> bool:
        return x.dtype in channel_sums.DTYPES and x.is_contiguous(memory_format=torch.channels_last)

    monkeypatch.setattr(channel_sums, "computed", computed)
    monkeypatch.setattr(channel_sums, "_rows", lambda x: x.dtype in channel_sums.DTYPES and x.is_contiguous())
    monkeypatch.setattr(channel_sums, "prepared", prepared)
    monkeypatch.setattr(channel_sums, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(channel_sums, "_known", {})
    yield driver
    extension.forget_sums()


def many(channels: int = 16, rows: int = 40) -> tuple[Tensor, Tensor]:
    """Images and gradients of more rows than a block sums."""
    random = torch.Generator().manual_seed(1)
    shape = (8, channels, rows, 40)
    x, dy = (torch.randn(shape, generator=random).to(BF16) for _ in range(2))
    return tuple(t.contiguous(memory_format=torch.channels_last) for t in (x, dy))  # type: ignore[return-value]


@pytest.mark.parametrize(("make", "launches"), [(operands, 1), (many, 2)])
@pytest.mark.parametrize("lowered", [False, True])
def test_steps(sums: Driver, make: Callable[[], tuple[Tensor, Tensor]], launches: int, lowered: bool) -> None:
    conv = layer(bias=True, dtype=F32 if lowered else BF16)
    assert conv.bias is not None
    conv.bias.data = conv.bias.data.float()
    x, dy = make()
    x.requires_grad_()
    with autocast() if lowered else torch.enable_grad():
        with by_python():
            expected = step(conv, x, dy)
        for who in ("python", "native", "native"):
            sums.ran.clear()
            same(step(conv, x, dy), expected)
            assert sums.ran == [who] * (3 + launches)
    made = conv.bias.grad
    assert made is not None
    assert made.dtype is F32
    torch.testing.assert_close(made.double(), dy.double().sum((0, 2, 3)), rtol=1e-6, atol=1e-4)


def test_a_bias_alone(sums: Driver) -> None:
    """Neither images nor filter learn; the extension asks for the bias's gradient all the same."""
    conv, (x, dy) = layer(bias=True), operands()
    assert conv.bias is not None
    conv.bias.data = conv.bias.data.float()
    conv.weight.requires_grad_(False)
    found = [step(conv, x, dy)[-1] for _ in range(3)]
    assert sums.ran == ["python", "python", "native", "native", "native", "native"]
    assert all(one is not None and torch.equal(one, dy.double().sum((0, 2, 3)).float()) for one in found)


def test_what_torch_sums(sums: Driver) -> None:
    """Gradients that are not dense, of no images, of other types; and derivatives of higher order."""
    conv, (x, dy) = layer(bias=True), operands()
    assert conv.bias is not None
    conv.bias.data = conv.bias.data.float()
    x.requires_grad_()
    step(conv, x, dy)
    for slopes in (dy.contiguous(), dy[:, :, :1, :1].expand_as(dy), torch.ones((), dtype=BF16).expand_as(dy)):
        sums.ran.clear()
        found = step(conv, x, slopes)[-1]
        assert len(sums.ran) == 3  # none of them sums
        torch.testing.assert_close(found, slopes.float().sum((0, 2, 3)))
    y = conv(x)
    (db,) = torch.autograd.grad(y, conv.bias, y, create_graph=True)
    (again,) = torch.autograd.grad(db.sum(), conv.bias)
    assert torch.equal(again, torch.full((16,), float(y[:, 0].numel())))
    sums.ran.clear()
    for unfit in (dy.double(), dy[:0], dy.contiguous()):
        made = channel_sums.channel_sums(unfit, unfit.dtype)
        torch.testing.assert_close(made, unfit.sum((0, 2, 3)))
    assert not sums.ran
    made = channel_sums.channel_sums(dy, BF16)
    assert made.dtype is BF16
    assert sums.ran


def test_kernels_that_are_being_compiled(sums: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch sums until they are there."""
    _, dy = operands()
    there = False

    def prepared(*given: Any) -> list[Launch]:
        if not there:
            raise background.Coming("image_sums")
        return ready(*given)

    ready = channel_sums.prepared
    monkeypatch.setattr(channel_sums, "prepared", prepared)
    monkeypatch.setattr(convolution_calls, "_background", True)
    expected = dy.float().sum((0, 2, 3))
    torch.testing.assert_close(channel_sums.channel_sums(dy, F32), expected)
    assert not sums.ran
    there = True
    torch.testing.assert_close(channel_sums.channel_sums(dy, F32), expected)
    assert sums.ran == ["python"]


def test_forgotten(sums: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where too many kinds of calls are known, all are planned anew, by the extension, too."""
    monkeypatch.setattr(channel_sums, "REMEMBERED", 1)
    conv, (x, dy) = layer(bias=True), operands()
    assert conv.bias is not None
    conv.bias.data = conv.bias.data.float()
    for _ in range(2):
        step(conv, x.requires_grad_(), dy)
    channel_sums.channel_sums(many()[1], F32)
    assert len(channel_sums._known) == 1
    sums.ran.clear()
    step(conv, x, dy)
    assert sums.ran == ["native"] * 3 + ["python"]
    assert native_calls.convolve is not None
