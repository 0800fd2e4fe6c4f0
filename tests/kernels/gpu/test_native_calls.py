"""Calls without Python on a GPU: the bits of those by way of Python, in graphs, on streams, in threads.

All kinds of calls, on the CPU: ../native.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.layers.fused import FusedConv2d
from tapestry.kernels.layers.layer_norms import FusedLayerNorm
from tapestry.kernels.tensors import fused_calls, native_calls
from tapestry.kernels.tensors.geometry import Geometry, packed
from tapestry.kernels.torch import GroupedConv2d, NormAct2d, fuse_excitations

from ..native.steps import by_python

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def there() -> None:
    state = native_calls.wait()
    if state != "ready":
        pytest.skip(f"calls without Python are {state}")


def images(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype).contiguous(memory_format=torch.channels_last)


def layer(groups: int, stride: int, dtype: torch.dtype, bias: bool = False) -> GroupedConv2d:
    made = GroupedConv2d(64, 64, 3, padding=1, stride=stride, groups=groups, bias=bias, device="cuda", dtype=dtype)
    if made.bias is not None:
        made.bias.data = made.bias.data.float()
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def step(module: nn.Module, x: Tensor, dy: Tensor, cast: bool = False) -> list[Tensor]:
    given = x.detach().requires_grad_()
    module.zero_grad()
    with torch.autocast("cuda", BF16) if cast else nullcontext():
        y = module(given)
    y.backward(dy)
    made = [y.detach(), given.grad, *(one.grad for one in module.parameters())]
    return [one for one in made if one is not None]


def same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        assert torch.equal(one, other)


@pytest.mark.parametrize("groups", [8, 64])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("dtype", "cast"), [(BF16, False), (torch.float16, False), (torch.float32, True)])
@pytest.mark.parametrize("bias", [False, True])
def test_steps_have_the_same_bits(groups: int, stride: int, dtype: torch.dtype, cast: bool, bias: bool) -> None:
    conv = layer(groups, stride, dtype, bias)
    kind = BF16 if cast else dtype
    x, dy = images(4, 64, 28, 28, dtype=kind), images(4, 64, 28 // stride, 28 // stride, dtype=kind)
    with by_python():
        expected = step(conv, x, dy, cast)
    step(conv, x, dy, cast)  # what is not known yet is told
    assert conv._number is not None
    assert native_calls.convolve is not None
    with torch.autocast("cuda", BF16) if cast else nullcontext():
        assert native_calls.convolve(x, conv.weight, conv.bias, conv._number, groups) is not None
    for _ in range(3):
        same(step(conv, x, dy, cast), expected)


@pytest.mark.parametrize("act", [nn.ReLU(), nn.SiLU()])
@pytest.mark.parametrize("summed", [False, True])
def test_norms_have_the_same_bits(act: nn.Module, summed: bool) -> None:
    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = NormAct2d(nn.BatchNorm2d(64), act).cuda()

        def forward(self, x: Tensor) -> Tensor:
            made: Tensor = self.norm(x, x if summed else None)
            return made

    x, dy = images(4, 64, 28, 28), images(4, 64, 28, 28)
    one, other = Summed(), Summed()
    for _ in range(4):
        with by_python():
            expected = step(one, x, dy)
        same(step(other, x, dy), expected)
        same(list(other.buffers()), list(one.buffers()))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize("channels", [40, 768])
def test_layer_norms_have_the_same_bits(first: bool, lowered: bool, channels: int) -> None:
    norm = FusedLayerNorm(nn.LayerNorm(channels, device="cuda"), first, lowered)
    x, dy = images(4, channels, 14, 14), images(4, channels, 14, 14, dtype=BF16 if lowered else torch.float32)
    if not first:
        x, dy = (one.permute(0, 2, 3, 1) for one in (x, dy))
    with by_python():
        expected = step(norm, x, dy, cast=True)
    step(norm, x, dy, cast=True)
    assert native_calls.layer_norm is not None
    with torch.autocast("cuda", BF16):
        assert native_calls.layer_norm(x, norm.weight, norm.bias, norm.eps, first, lowered) is not None
    for _ in range(3):
        same(step(norm, x, dy, cast=True), expected)


@pytest.mark.parametrize(("channels", "extent"), [(40, 14), (672, 7)])
def test_excitations_have_the_same_bits(channels: int, extent: int) -> None:
    class Excite(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reduce, self.expand = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)

        def forward(self, x: Tensor) -> Tensor:
            gate = self.expand(self.reduce(x.mean((2, 3), keepdim=True)).relu()).sigmoid()
            return x * gate

    model = nn.Sequential(Excite()).to("cuda", BF16)
    assert fuse_excitations(model) == ["0"]
    x, dy = images(64, channels, extent, extent), images(64, channels, extent, extent)
    with by_python():
        expected = step(model, x, dy)
    step(model, x, dy)
    assert native_calls.squeezed is not None
    assert native_calls.squeezed(x.detach().requires_grad_()) is not None
    for _ in range(3):
        same(step(model, x, dy), expected)


@pytest.mark.parametrize("summed", [False, True])
def test_what_follows_a_convolution_has_the_same_bits(summed: bool) -> None:
    geometry = Geometry((1, 1), (1, 1, 1, 1), (1, 1), 8)
    scale, bias = torch.rand(64, device="cuda"), torch.randn(64, device="cuda")
    conv = FusedConv2d(layer(8, 1, BF16).weight, scale, bias, "silu", geometry)
    x, residual = images(4, 64, 28, 28), images(4, 64, 28, 28) if summed else None
    with torch.no_grad():
        with by_python():
            expected = conv(x, residual)
        for _ in range(3):
            assert torch.equal(conv(x, residual), expected)
        number = packed(*geometry[:3])
        given = (x, conv.weight, conv.scale, conv.bias, residual, fused_calls._NUMBERS["silu"], number, 8)
        assert native_calls.fused is not None
        assert native_calls.fused(*given) is not None


def test_captured_steps() -> None:
    conv, x, dy = layer(8, 1, torch.float32), images(4, 64, 28, 28), images(4, 64, 28, 28)
    for _ in range(2):
        expected = step(conv, x, dy, cast=True)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(conv, x, dy, cast=True)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        found = step(conv, x, dy, cast=True)
    x.copy_(x.flip(0)), dy.copy_(dy.flip(0))
    graph.replay()
    same(found[:1], [expected[0].flip(0).contiguous(memory_format=torch.channels_last)])
    same(found, step(conv, x, dy, cast=True))


def test_streams_and_threads() -> None:
    conv = layer(64, 1, BF16)
    each = [(images(4, 64, 28, 28), images(4, 64, 28, 28)) for _ in range(3)]
    for _ in range(2):
        expected_here = [step(conv, x, dy) for x, dy in each]
    found: list[Any] = [None] * len(each)

    def work(number: int) -> None:
        x, _ = each[number]
        with torch.cuda.stream(torch.cuda.Stream()), torch.no_grad():
            for _ in range(50):
                found[number] = conv(x)
            torch.cuda.current_stream().synchronize()

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(each))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, expected in zip(found, expected_here, strict=True):
        assert torch.equal(one, expected[0])


def test_compiled_steps_have_the_same_bits() -> None:
    conv, x, dy = layer(8, 1, torch.float32), images(4, 64, 28, 28), images(4, 64, 28, 28)
    with by_python():
        expected = step(conv, x, dy, cast=True)
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    for _ in range(3):
        same(step(compiled, x, dy, cast=True), expected)  # type: ignore[arg-type]


def test_two_devices() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    conv, x, dy = layer(8, 1, BF16), images(4, 64, 28, 28), images(4, 64, 28, 28)
    for _ in range(2):
        expected = step(conv, x, dy)
    there = conv.to("cuda:1")
    for _ in range(3):
        found = step(there, x.to("cuda:1"), dy.to("cuda:1"))
        same([one.to("cuda:0") for one in found], expected)
