"""Convolutions by the extension: the bits of the path in Python, for every kind of call."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tapestry.kernels.convolution import choices
from tapestry.kernels.tensors import convolution_calls, native_calls
from tapestry.kernels.tensors.operands import dense
from tapestry.kernels.torch import conv2d

from .driver import CONTEXT, STREAM, Driver
from .steps import BF16, F32, autocast, both_ways, layer, operands, same, step, told


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [BF16, torch.float16])
@pytest.mark.parametrize("added", [F32, BF16])
def test_a_step_has_the_same_bits(driver: Driver, bias: bool, dtype: torch.dtype, added: torch.dtype) -> None:
    conv = layer(bias, dtype)
    if conv.bias is not None:
        conv.bias.data = conv.bias.data.to(added)
    x, dy = operands(dtype=dtype)
    both_ways(driver, conv, x.requires_grad_(), dy, native=3)
    assert set(driver.ran) == {"native"}
    assert set(driver.streams) == {STREAM}
    kept = None if conv.bias is None else conv.bias.float()
    wide = nn.functional.conv2d(x.float(), conv.weight.float(), kept, padding=1, groups=2)
    torch.testing.assert_close(conv(x).float(), wide, atol=0.05, rtol=0.02)


@pytest.mark.parametrize("given", [F32, BF16])
def test_autocast_lowers_images_and_filters(driver: Driver, given: torch.dtype) -> None:
    conv = layer(bias=True, dtype=F32)
    x, dy = operands()
    with autocast():
        both_ways(driver, conv, x.to(given).requires_grad_(), dy, native=3)
        with torch.no_grad():
            assert conv(x).dtype == BF16
            assert torch.equal(conv(x), conv(x.to(given)))
    assert conv.weight.grad is not None
    assert conv.weight.grad.dtype == F32


@pytest.mark.parametrize(("of_x", "of_w"), [(True, False), (False, True), (False, False)])
def test_what_needs_no_gradient_gets_none(driver: Driver, of_x: bool, of_w: bool) -> None:
    conv, (x, dy) = layer(), operands()
    conv.weight.requires_grad_(of_w)
    both_ways(driver, conv, x.requires_grad_(of_x), dy, native=1)
    assert conv(x).requires_grad == (of_x or of_w)


def test_inference(driver: Driver) -> None:
    conv, (x, _) = layer(), operands()
    with torch.no_grad():
        expected = conv(x)
        assert conv(x).grad_fn is None
    with torch.inference_mode():
        found = conv(x)
        assert found.is_inference()
        assert torch.equal(conv(found.clone()), conv(expected))
    assert torch.equal(found, expected)
    assert driver.ran == ["python", *["native"] * 4]


def test_derivatives_of_derivatives(driver: Driver) -> None:
    conv, (x, dy) = layer(), operands()

    def penalty() -> list[Tensor | None]:
        given, slope = x.detach().requires_grad_(), dy.detach().requires_grad_()
        (dx,) = torch.autograd.grad(conv(given), given, slope, create_graph=True)
        return list(torch.autograd.grad(dx.float().square().sum(), [slope, conv.weight]))

    expected = penalty()
    driver.ran.clear()
    same(penalty(), expected)
    assert "native" in driver.ran


def test_images_that_lie_otherwise_are_copied(driver: Driver) -> None:
    conv, (x, dy) = layer(), operands()
    expected = step(conv, x.requires_grad_(), dy)
    for _ in range(3):
        driver.ran.clear()
        found = step(conv, x.detach().contiguous().requires_grad_(), dy.contiguous())
        assert found[1] is not None
        assert torch.equal(found[1], expected[1])  # type: ignore[arg-type]
        same([found[0], *found[2:]], [expected[0], *expected[2:]])
        flat = torch.autograd.grad(conv(x).sum(), conv.weight)  # a gradient that is one number, everywhere
        assert flat[0].shape == conv.weight.shape
    assert "python" in driver.ran  # of one gradient alone


@pytest.mark.parametrize("wide", [False, True])
def test_filters_that_lie_otherwise_are_copied(driver: Driver, wide: bool) -> None:
    """As those of a model that was not brought to channels-last."""
    conv, (x, dy) = layer(), operands()
    conv.to(F32 if wide else BF16)
    with autocast():
        expected = step(conv, x.requires_grad_(), dy)
        conv.weight.data = conv.weight.data.contiguous()
        for _ in range(4):
            driver.ran.clear()
            found = step(conv, x.requires_grad_(), dy)
            assert found[2] is not None
            assert torch.equal(found[2], expected[2])  # type: ignore[arg-type]
            same(found[:2], expected[:2])
        assert set(driver.ran) == {"native"}


def around(tensor: Tensor) -> Tensor:
    """A tensor of whose channels those are the middle ones."""
    return torch.cat([torch.randn_like(tensor), tensor.detach(), torch.randn_like(tensor)], 1)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_parts_of_channels(driver: Driver, wide: bool, turned: bool) -> None:
    """As a layer between `torch.split` and `torch.cat` meets them: as they lie, or (`turned`) copied."""
    conv, (x, dy) = layer(), operands()
    conv.to(F32 if wide else BF16)
    memory = torch.contiguous_format if turned else torch.channels_last
    with autocast():
        expected = step(conv, x.to(conv.weight.dtype).requires_grad_(), dy)
        for _ in range(4):
            driver.ran.clear()
            images = around(x).to(conv.weight.dtype).contiguous(memory_format=memory).requires_grad_()
            before, given, after = images.split(x.shape[1], 1)
            conv.zero_grad()
            torch.cat([before, conv(given), after], 1).backward(around(dy).contiguous(memory_format=memory))
            assert not given.is_contiguous(memory_format=memory)
            assert images.grad is not None
            same([dense(images.grad.split(x.shape[1], 1)[1]), conv.weight.grad], expected[1:])
        assert set(driver.ran) == {"native"}


def test_addresses_that_are_not_aligned_are_calls_of_their_own(driver: Driver) -> None:
    conv, (x, dy) = layer(), operands()
    memory = torch.zeros(x.numel() + 1, dtype=BF16)
    odd = memory.as_strided(x.shape, x.stride(), 1).copy_(x).detach().requires_grad_()
    expected = step(conv, x.requires_grad_(), dy)
    driver.ran.clear()
    same(step(conv, odd, dy)[:1], expected[:1])
    assert driver.ran[0] == "python"


def test_tensors_of_other_kinds_are_left_to_torch(driver: Driver) -> None:
    class Named(Tensor):
        pass

    conv, (x, _) = layer(), operands()
    assert conv(x) is not None
    assert native_calls.convolve is not None
    number = conv._number
    assert native_calls.convolve(x, conv.weight, None, number, 2) is not None
    others = [x.as_subclass(Named), x.to_sparse(), x.to("meta"), x.float(), x[0]]
    for other in others:
        assert native_calls.convolve(other, conv.weight, None, number, 2) is None
    assert native_calls.convolve(x, None, None, number, 2) is None
    assert native_calls.convolve(x, conv.weight.float(), None, number, 2) is None  # autocast is off
    bias = torch.zeros(16)
    for unfit in (bias, bias.bfloat16(), bias[::2], bias.to("meta")):  # no call with a bias came before
        assert native_calls.convolve(x, conv.weight, unfit, number, 2) is None


def test_modes_and_transforms_are_left_to_torch(driver: Driver) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    conv, (x, dy) = layer(), operands()
    conv(x), conv(x)
    driver.ran.clear()
    with Noted():
        conv(x)
    assert any("conv" in name for name in seen)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert conv(torch.empty_like(x)).shape == x.shape
    y = conv(x.requires_grad_())
    driver.ran.clear()
    with Noted():
        y.backward(dy)
    assert "native" not in driver.ran
    seen.clear()
    found = torch.func.grad(lambda given: conv(given).float().sum())(x.detach())
    assert found.shape == x.shape


def test_tangents_and_traces(driver: Driver) -> None:
    conv, (x, _) = layer(), operands()
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            conv(x), conv(x)
    assert driver.ran[-1] == "native"
    w = conv.weight.detach()
    for ours in (conv, lambda given: conv2d(given, w, padding=1, groups=2)):
        told(ours, lambda given: nn.functional.conv2d(given, w, padding=1, groups=2), x)


def test_what_is_saved_is_watched_and_may_be_packed(driver: Driver) -> None:
    conv, (x, dy) = layer(), operands()
    expected = step(conv, x.requires_grad_(), dy)
    given = x.detach().clone().requires_grad_()
    middle = given * 1
    y = conv(middle)
    middle.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(dy)
    packed: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t.clone(), lambda t: t):
        found = step(conv, x, dy)
    assert len(packed) == 2
    same(found, expected)
    y = conv(x)
    y.backward(dy, retain_graph=True)
    y.backward(dy)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward(dy)


def test_a_step_that_is_computed_again_may_go_another_way(driver: Driver) -> None:
    """The first forward pass in Python, the second, of the backward pass, by the extension."""
    conv, (x, dy) = layer(dtype=F32), operands()
    with autocast():
        y = checkpoint(conv, x.requires_grad_(), use_reentrant=False)
    assert driver.ran == ["python"]
    y.backward(dy)
    assert driver.ran[1] == "native"
    found = [x.grad, conv.weight.grad]
    x.grad = None
    with autocast():
        _, *expected = step(conv, x, dy)
    same(found, expected)


def test_threads(driver: Driver) -> None:
    conv, each = layer(), [operands(seed) for seed in range(4)]
    with torch.no_grad():
        expected = [conv(x) for x, _ in each]
    found: list[list[Tensor]] = [[] for _ in each]

    def work(at: int) -> None:
        with torch.no_grad():
            found[at] = [conv(each[at][0]) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(each))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for results, one in zip(found, expected, strict=True):
        assert len(results) == 20
        assert all(torch.equal(result, one) for result in results)
    assert driver.ran.count("python") == 1


def test_another_context_is_made_current_for_a_while(driver: Driver) -> None:
    conv, (x, _) = layer(), operands()
    expected = conv(x)
    driver.context = 0xBAD
    assert torch.equal(conv(x), expected)
    assert driver.pushed == [CONTEXT, 0]


def test_a_refused_launch_is_made_in_python_which_says_why(driver: Driver) -> None:
    conv, (x, dy) = layer(), operands()
    step(conv, x.requires_grad_(), dy)
    y = conv(x)
    driver.status = 700
    with torch.no_grad(), pytest.raises(RuntimeError, match="refused, says Python"):
        conv(x)
    with pytest.raises(RuntimeError, match="refused"):
        conv(x)
    with pytest.raises(RuntimeError, match="refused, says Python"):
        y.backward(dy)


def test_settings_of_a_layer_and_of_the_function(driver: Driver) -> None:
    conv, (x, _) = layer(), operands()
    for settings in ({}, {"stride": (2, 1)}, {"padding": (1, 0), "stride": (1, 1)}, {"dilation": (1, 2)}):
        for name, value in settings.items():
            setattr(conv, name, value)
        steps: Any = {name: getattr(conv, name) for name in ("stride", "padding", "dilation", "groups")}
        expected = nn.functional.conv2d(x, conv.weight, None, **steps)
        for _ in range(2):
            assert torch.equal(conv(x), expected)
            assert torch.equal(conv2d(x, conv.weight, **steps), expected)
    assert driver.ran == ["python", *["native"] * 3] * 4


def test_passes_left_to_cudnn_stay_there(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    conv, (x, dy) = layer(), operands()
    monkeypatch.setattr(choices, "left_to_cudnn", lambda problem, what, gpu: what == "input_gradient")
    both_ways(driver, conv, x.requires_grad_(), dy, native=1)
    monkeypatch.setattr(choices, "left_to_cudnn", lambda problem, what, gpu: True)
    monkeypatch.setattr(convolution_calls, "_plans", {})
    native_calls.forget()
    both_ways(driver, conv, x, dy, native=0)


def test_plans_that_are_forgotten_are_made_again(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_calls, "REMEMBERED", 2)
    conv = layer()
    for _ in range(2):
        for rows in (5, 6, 7, 8):
            x = torch.randn(1, 16, rows, 4, dtype=BF16).contiguous(memory_format=torch.channels_last)
            assert torch.equal(conv(x), conv(x))
    assert driver.ran == ["python", "native"] * 8


@pytest.mark.parametrize("bias", [False, True])
def test_no_images_are_torchs(driver: Driver, bias: bool) -> None:
    conv, (x, dy) = layer(bias), operands()
    for _ in range(2):
        y, *gradients = step(conv, x[:0].requires_grad_(), dy[:0])
        assert y is not None
        assert y.shape == (0, 16, 7, 6)
        assert all(gradient is not None for gradient in gradients)
    assert driver.ran == []
