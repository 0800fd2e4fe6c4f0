"""First layers by the extension: the bits of the path in Python."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.convolution import choices
from tapestry.kernels.convolution.pixels import Line, PixelKind
from tapestry.kernels.convolution.problem import BadConvolution
from tapestry.kernels.layers import stem
from tapestry.kernels.layers.stem import OverBlocks, Stem
from tapestry.kernels.tensors import convolution_calls, native_calls, pixel_blocks, stem_calls
from tapestry.kernels.torch import replace_convolutions

from .driver import DTYPES, STREAM, Driver, Launch, memory
from .steps import BF16, F32, autocast, by_python, same, step, told


def at(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """What lies at an address, not dense."""
    reach = 1 + sum((extent - 1) * by for extent, by in zip(shape, strides, strict=True))
    return memory(address, (reach,), dtype).as_strided(shape, strides)


def blocks(kind: PixelKind, given: int, out: int, words: bytes) -> None:
    *strides, h, w, rows, columns, threads = struct.unpack("<4q4iI4x", words)
    n = threads // (rows * columns * (kind.step // kind.lines))
    x = at(given, (n, kind.channels, h, w), tuple(strides), DTYPES[kind.images])
    made = memory(out, (n, rows, columns, kind.width), DTYPES[kind.blocks]).zero_()
    for down in range(kind.step):
        for across in range(kind.step):
            first = (down * kind.step + across) * kind.channels
            found = x[:, :, down :: kind.step, across :: kind.step].permute(0, 2, 3, 1)
            made[:, : found.shape[1], : found.shape[2], first : first + kind.channels] = found


def taps(kind: PixelKind, given: int, out: int, words: bytes) -> None:
    *strides, k, r, s, rows, columns, above, ahead = struct.unpack("<4q7i4x", words)
    w = at(given, (k, kind.channels, r, s), tuple(strides), DTYPES[kind.taps])
    made = memory(out, (k, rows, columns, kind.width), DTYPES[kind.blocks]).zero_()
    for tap in range(r * s):
        (row, down), (column, across) = divmod(tap // s + above, kind.step), divmod(tap % s + ahead, kind.step)
        first = (down * kind.step + across) * kind.channels
        made[:, row, column, first : first + kind.channels] = w[:, :, tap // s, tap % s]


def taps_gradient(kind: PixelKind, given: int, out: int, words: bytes) -> None:
    *_, k, r, s, rows, columns, above, ahead = struct.unpack("<4q7i4x", words)
    gradient = memory(given, (k, rows, columns, kind.width), DTYPES[kind.taps])
    made = memory(out, (k, r, s, kind.channels), DTYPES[kind.taps])
    for tap in range(r * s):
        (row, down), (column, across) = divmod(tap // s + above, kind.step), divmod(tap % s + ahead, kind.step)
        first = (down * kind.step + across) * kind.channels
        made[:, tap // s, tap % s] = gradient[:, row, column, first : first + kind.channels]


COMPUTE = {"pixel_blocks": blocks, "pixel_taps": taps, "pixel_taps_gradient": taps_gradient}


@pytest.fixture
def first(driver: Driver, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    def prepared(kind: PixelKind, launches: list[Any], device: int) -> list[Launch]:
        def kernel(launch: Any) -> Any:
            def run(given: int, out: int) -> None:
                with torch.no_grad():
                    COMPUTE[launch.kernel](kind, given, out, launch.arguments[2])

            return run

        return [Launch(driver, kernel(launch), launch.arguments[:2]) for launch in launches]

    monkeypatch.setattr(stem_calls, "prepared", prepared)
    monkeypatch.setattr(stem_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(pixel_blocks, "prepared", prepared)
    monkeypatch.setattr(pixel_blocks, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(pixel_blocks, "_launches", {})
    monkeypatch.setattr(stem_calls, "_plans", {})
    monkeypatch.setattr(stem_calls, "_gradients", {})
    stem._left.cache_clear()
    yield driver
    extension.forget_firsts()


def drawn(shape: tuple[int, ...], seed: int, dtype: torch.dtype = F32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def layer(size: int, stride: int, padding: int, dtype: torch.dtype = F32, bias: bool = True) -> OverBlocks:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 16, size, stride, padding, bias=bias).to(dtype))
    replace_convolutions(model)
    assert isinstance(model[0], OverBlocks)
    return model[0]


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("form", [(3, 2, 1), (7, 2, 3), (4, 4, 0), (3, 1, 1), (7, 4, 2)], ids=str)
def test_steps_under_autocast(first: Driver, form: tuple[int, int, int], last: bool) -> None:
    conv, x = layer(*form), drawn((2, 3, 13, 18), 1)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    with autocast():
        y = conv(x)
        dy = drawn(tuple(y.shape), 2, BF16).contiguous(memory_format=torch.channels_last)
        with by_python():
            expected = step(conv, x, dy)
        for expected_by in ("python", "native"):  # then it is known, forward and backward
            first.ran.clear()
            same(step(conv, x, dy), expected)
            assert set(first.ran[-2:]) == {expected_by}
        assert first.ran == ["native"] * 5
        first.ran.clear()
        with torch.no_grad():
            assert torch.equal(conv(x), y)
        assert first.ran == ["native"] * 3
    exact = step(_torchs(conv), x.double(), dy.double())
    for one, other in zip(expected, exact, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one.double(), other, rtol=0.05, atol=0.05 * float(other.abs().max()))


def _torchs(conv: nn.Conv2d) -> nn.Conv2d:
    made = nn.Conv2d(3, 16, conv.kernel_size, conv.stride, conv.padding).double()
    made.load_state_dict(conv.state_dict())
    return made


@pytest.mark.parametrize("bias", [False, True])
def test_steps_in_halves(first: Driver, bias: bool) -> None:
    conv, x = layer(3, 2, 1, BF16, bias=bias), drawn((2, 3, 12, 12), 1, BF16)
    dy = drawn((2, 16, 6, 6), 2, BF16).contiguous(memory_format=torch.channels_last)
    with by_python():
        expected = step(conv, x, dy)
    for _ in range(3):
        first.ran.clear()
        same(step(conv, x, dy), expected)
    assert first.ran == ["native"] * 5
    added = None if conv.bias is None else conv.bias.float()
    wide = nn.functional.conv2d(x.float(), conv.weight.float(), added, 2, 1)
    assert expected[0] is not None
    torch.testing.assert_close(expected[0].float(), wide, rtol=2.0**-7, atol=2.0**-7 * float(wide.detach().abs().max()))


def test_what_is_not_computed_so(first: Driver) -> None:
    conv, x = layer(3, 2, 1), drawn((2, 3, 12, 12), 1)
    learns = x.clone().requires_grad_()
    with autocast():
        for given in (learns, x[0]):
            conv(given)
    conv(x)  # f32 without autocast
    assert first.ran == []
    with autocast():
        for _ in range(3):
            y = conv(x)
        assert first.ran[-3:] == ["native"] * 3
        native = native_calls.first
        assert native is not None
        number = stem_calls.number_of(form_of(conv))
        assert native(x, conv.weight, conv.bias, number) is not None
        for unlike in (learns, x.double(), x[:1], x[0], x.to("meta"), None, 3):
            assert native(unlike, conv.weight, conv.bias, number) is None  # type: ignore[arg-type]
        assert native(x, conv.weight, conv.bias, number + 1000) is None
        assert native(x, conv.weight, None, number) is None
    assert y.requires_grad


def test_derivatives_of_the_gradient(first: Driver) -> None:
    conv, x = layer(3, 2, 1, BF16, bias=False), drawn((2, 3, 12, 12), 1, BF16)
    exact = nn.Conv2d(3, 16, 3, 2, 1, bias=False).double()
    exact.load_state_dict(conv.state_dict())
    for _ in range(2):  # by Python, and by the extension
        found = []
        for of, images in ((conv, x), (exact, x.double())):
            (gradient,) = torch.autograd.grad(of(images).square().sum(), of.weight, create_graph=True)
            found.append(torch.autograd.grad(gradient.square().sum().sqrt(), of.weight)[0].double())
        torch.testing.assert_close(*found, rtol=0.1, atol=0.1 * float(found[1].abs().max()))


def test_a_launch_that_is_refused(first: Driver) -> None:
    conv, x = layer(3, 2, 1), drawn((2, 3, 12, 12), 1)
    with autocast():
        for _ in range(2):
            conv(x)
        first.status = 700
        with pytest.raises(RuntimeError, match="refused"):
            conv(x)


def form_of(conv: OverBlocks) -> stem_calls.Form:
    """That of images of 12 x 12."""
    found = stem_calls.form_of(3, (3, 3), conv.moved((12, 12)), (12, 12))
    assert found is not None
    return found


def test_blocks_in_f32_are_torchs(first: Driver) -> None:
    conv, x = layer(3, 2, 1), drawn((2, 3, 12, 12), 1)
    form = form_of(conv)
    made = pixel_blocks.gathered(x, form.blocks, F32)
    torch.testing.assert_close(made, pixel_blocks.gathered_by_torch(x, form.blocks))
    torch.testing.assert_close(
        pixel_blocks.filter_over(conv.weight.detach(), form.blocks, F32).sum(), conv.weight.sum()
    )
    assert first.ran == []


def test_images_that_come_back_otherwise(first: Driver) -> None:
    """As hooks of saved tensors may give them: dense, in PyTorch's order."""
    conv, x = layer(3, 2, 1), drawn((2, 3, 12, 12), 1)
    with autocast():
        dy = drawn((2, 16, 6, 6), 2, BF16).contiguous(memory_format=torch.channels_last)
        expected = step(conv, x, dy)
        for _ in range(3):
            with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.contiguous(), lambda saved: saved):
                same(step(conv, x, dy), expected)
            same(step(conv, x, dy), expected)


def test_operands_that_do_not_fit_are_refused_by_torch(first: Driver) -> None:
    conv, x = layer(3, 2, 1), drawn((2, 3, 12, 12), 1)
    with autocast():
        conv(x)
        first.ran.clear()
        with pytest.raises(RuntimeError, match="channels"):
            conv(x[:, :1])
        conv.bias = nn.Parameter(torch.zeros(8))
        with pytest.raises(RuntimeError, match="bias"):
            conv(x)
    assert first.ran == []


def test_what_is_chosen_is_chosen_anew(first: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    conv, x = layer(3, 2, 1), drawn((2, 3, 12, 12), 1)
    with autocast(), torch.no_grad():
        conv(x)
        first.ran.clear()
        monkeypatch.setattr(choices, "left_to_cudnn", lambda problem, what, gpu: True)
        convolution_calls.forget()
        conv(x)
    assert first.ran == []


def test_no_images(first: Driver) -> None:
    conv = layer(3, 2, 1)
    with autocast():
        assert conv(drawn((0, 3, 12, 12), 1)).shape == (0, 16, 6, 6)
    made, blocks = Stem(conv.weight.detach().bfloat16(), None, None, "", conv.moved((12, 12))), form_of(conv).blocks
    assert pixel_blocks.gathered(drawn((0, 3, 12, 12), 1, BF16), blocks, BF16).shape == (0, 16, 6, 6)
    with pytest.raises(BadConvolution, match="channels"):
        made(drawn((2, 4, 12, 12), 1, BF16))
    assert first.ran == ["python"]  # the filter


def test_lines_of_padding_that_cuts_off() -> None:
    line = Line(taps=2, before=0, after=0, stride=4, step=2)
    assert line.padding(9) == (0, -2)  # of five blocks the outputs meet three: 0 and 2


def test_tangents_and_traces(first: Driver) -> None:
    """And what is fused is differentiated by its images, which the kernels do not record."""
    conv, x = layer(3, 2, 1, BF16), drawn((2, 3, 13, 18), 1, BF16)
    conv(x), conv(x)
    assert first.ran[-1] == "native"
    theirs = _torchs(conv).to(BF16)
    told(conv, theirs, x)
    fused = Stem(conv.weight, None, conv.bias, "", conv.moved((13, 18)))
    told(fused, theirs, x)
    slopes = [
        torch.autograd.grad(one(given).sum(), given)[0] for one in (fused, theirs) for given in [x.requires_grad_()]
    ]
    torch.testing.assert_close(*slopes, rtol=0.02, atol=0.02)
