"""Steps that go both ways, by Python and by the extension, and are held against one another."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from tapestry.kernels.tensors import native_calls
from tapestry.kernels.torch import GroupedConv2d

from .driver import Driver

BF16, F32 = torch.bfloat16, torch.float32


@contextlib.contextmanager
def autocast() -> Iterator[None]:
    """To bf16, on CPUs, and for who asks on CUDA."""
    before = torch.get_autocast_dtype("cuda")
    with torch.autocast("cpu", BF16):
        torch.set_autocast_dtype("cuda", BF16)
        torch.set_autocast_enabled("cuda", True)
        try:
            yield
        finally:
            torch.set_autocast_enabled("cuda", False)
            torch.set_autocast_dtype("cuda", before)


@contextlib.contextmanager
def by_python() -> Iterator[None]:
    """The extension is neither asked nor told."""
    with pytest.MonkeyPatch.context() as patch:
        for what in native_calls.CALLS:
            patch.setattr(native_calls, what, None)
        yield


def operands(seed: int = 0, dtype: torch.dtype = BF16) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    x, dy = (torch.randn(2, 16, 7, 6, generator=random).to(dtype) for _ in range(2))
    return tuple(t.contiguous(memory_format=torch.channels_last) for t in (x, dy))  # type: ignore[return-value]


def layer(bias: bool = False, dtype: torch.dtype = BF16) -> GroupedConv2d:
    torch.manual_seed(7)
    made = GroupedConv2d(16, 16, 3, padding=1, groups=2, bias=bias).to(dtype)
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def step(conv: nn.Module, x: Tensor, dy: Tensor) -> list[Tensor | None]:
    """The result and all gradients."""
    conv.zero_grad()
    given = x.detach().requires_grad_(x.requires_grad)
    y = conv(given)
    if y.requires_grad:
        y.backward(dy)
    return [y.detach(), given.grad, *(parameter.grad for parameter in conv.parameters())]


def same(found: list[Tensor | None], expected: list[Tensor | None]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if one is None or other is None:
            assert one is other
            continue
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        assert torch.equal(one, other)


def both_ways(driver: Driver, conv: nn.Module, x: Tensor, dy: Tensor, native: int = 2) -> None:
    """A step in Python, which tells the extension, and the same by that in `native` calls."""
    first = step(conv, x, dy)
    driver.ran.clear()
    second = step(conv, x, dy)
    same(second, first)
    assert driver.ran.count("native") == native


def freed(layer: nn.Module, x: Tensor, lowered: torch.Size) -> None:
    """What a weight was lowered to is saved as torch saves it: packed, and gone after the backward pass."""

    class Kept:
        def __init__(self, value: Tensor) -> None:
            self.value = value

    packed: list[tuple[weakref.ref[Kept], torch.Size, torch.dtype]] = []

    def pack(value: Tensor) -> Kept:
        made = Kept(value)
        packed.append((weakref.ref(made), value.shape, value.dtype))
        return made

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.value), autocast():
        y = layer(x)
    assert (lowered, BF16) in [of[1:] for of in packed]
    assert (lowered, F32) not in [of[1:] for of in packed]
    assert any(there() is not None for there, *_ in packed)
    y.float().square().sum().backward()
    assert all(there() is None for there, *_ in packed)
    assert y.grad_fn is not None


def told(ours: Callable[[Tensor], Tensor], theirs: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """Kernels know nothing of tangents, and a trace nothing of kernels: both are told what torch's functions do."""
    x = x.detach()
    tangent = torch.randn(x.shape, generator=torch.Generator().manual_seed(5)).to(x.dtype)
    made = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch.jit, and what tracing says of numbers
        for function, grad in ((theirs, True), (ours, True), (ours, False)):
            with torch.set_grad_enabled(grad), forward_ad.dual_level():
                made.append(forward_ad.unpack_dual(function(forward_ad.make_dual(x, tangent))).tangent)
        for function in (theirs, ours):
            made.append(torch.func.jvp(function, (x,), (tangent,))[1])
        for one in made[1:]:
            torch.testing.assert_close(
                one.double(), made[0].double(), rtol=0.02, atol=0.02 * float(made[0].abs().max())
            )
        trace = torch.jit.trace(ours, (x,), check_trace=False)
    expected = theirs(tangent).double()
    torch.testing.assert_close(trace(tangent).double(), expected, rtol=0.02, atol=0.02 * float(expected.abs().max()))
