"""Pools by the extension: beside Python's way, whose bits they have, and torch's."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from tapestry.kernels.tensors import native_calls, pool_calls
from tapestry.kernels.torch import fuse_resampling

from ..emulated_calls import kept_elsewhere
from ..models.test_resampling import POOLS
from .driver import DTYPES, STREAM, Driver, memory, prepared_by
from .steps import BF16, F32, by_python
from .test_channel_sums import sums

__all__ = ["sums"]  # a fixture


class Kernels:
    """Stands in for the kernels: what to launch is the addresses that are there, and what torch computes at such."""

    def __init__(self, real: Any) -> None:
        self.finds_room = real.finds_room

    @staticmethod
    def _of(kind: Any, of: Any) -> tuple[tuple[int, ...], tuple[int, ...], torch.dtype]:
        """As they lie: images, windows."""
        images = (of.images, of.height, of.width, of.channels)
        return images, (of.images, of.windows_down, of.windows_right, of.channels), DTYPES[kind.dtype]

    def maxima(self, kind: Any, of: Any, x: int, y: int, taps: int = 0) -> tuple[Any, ...]:
        def compute(kind: Any, x: int, y: int, taps: int = 0) -> None:
            images, made, dtype = self._of(kind, of)
            values, places = self._windows(memory(x, images, dtype).permute(0, 3, 1, 2).float(), kind, of).max(2)
            memory(y, made, dtype).copy_(values.permute(0, 2, 3, 1))
            if taps:
                memory(taps, made, torch.uint8).copy_(places.permute(0, 2, 3, 1))

        return [one for one in (x, y, taps) if one], compute

    def maxima_gradient(self, kind: Any, of: Any, dy: int, taps: int, dx: int) -> tuple[Any, ...]:
        def compute(kind: Any, dy: int, taps: int, dx: int) -> None:
            images, given, dtype = self._of(kind, of)
            plan = pool_calls.Maxima(kind, of, 0, 1)
            slopes, places = memory(dy, given, dtype), memory(taps, given, torch.uint8)
            made = plan.put_back(slopes.permute(0, 3, 1, 2).double(), places.permute(0, 3, 1, 2))
            memory(dx, images, dtype).copy_(made.permute(0, 2, 3, 1))

        return [dy, taps, dx], compute

    def averages(self, kind: Any, of: Any, x: int, y: int) -> tuple[Any, ...]:
        def compute(kind: Any, x: int, y: int) -> None:
            images, made, dtype = self._of(kind, of)
            given = memory(x, images, dtype).permute(0, 3, 1, 2).double()
            memory(y, made, dtype).copy_(self.averaged(given, kind, of).permute(0, 2, 3, 1))

        return [x, y], compute

    def averages_gradient(self, kind: Any, of: Any, dy: int, dx: int) -> tuple[Any, ...]:
        def compute(kind: Any, dy: int, dx: int) -> None:
            images, given, dtype = self._of(kind, of)
            plan = pool_calls.Averages(kind, of, 0, 0)
            made = plan.spread(memory(dy, given, dtype).permute(0, 3, 1, 2).double())
            memory(dx, images, dtype).copy_(made.permute(0, 2, 3, 1))

        return [dy, dx], compute

    @staticmethod
    def _windows(x: Tensor, kind: Any, of: Any) -> Tensor:
        """[n, c, taps, down, right]; beyond the images there is nothing as large."""
        (rows, columns), (down, right), (above, before) = kind.window
        below = (of.windows_down - 1) * down + rows - of.height - above
        behind = (of.windows_right - 1) * right + columns - of.width - before
        wide = nn.functional.pad(x, (before, max(0, behind), above, max(0, below)), value=-torch.inf)
        found = nn.functional.unfold(
            wide.flatten(0, 1)[:, None], (rows, columns), stride=(down, right)
        ).view(*x.shape[:2], rows * columns, -1)  # fmt: skip
        across = (wide.shape[3] - columns) // right + 1
        return found.view(*found.shape[:3], -1, across)[:, :, :, : of.windows_down, : of.windows_right]

    @staticmethod
    def averaged(x: Tensor, kind: Any, of: Any) -> Tensor:
        size, step, padding = kind.window
        whole = (of.windows_down, of.windows_right) == kind.window.counts(of.height, of.width)
        return nn.functional.avg_pool2d(x, size, step, padding, not whole, of.padded, of.divisor or None)


@pytest.fixture
def pools(sums: Driver, extension: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    stand_in = Kernels(pool_calls.windows)
    monkeypatch.setattr(pool_calls, "windows", stand_in)
    for kind, forward, backward in (
        (pool_calls.Maxima, stand_in.maxima, stand_in.maxima_gradient),
        (pool_calls.Averages, stand_in.averages, stand_in.averages_gradient),
    ):
        monkeypatch.setattr(kind, "forward", staticmethod(forward))
        monkeypatch.setattr(kind, "backward", staticmethod(backward))
    monkeypatch.setattr(pool_calls, "prepared", prepared_by(sums))
    monkeypatch.setattr(pool_calls, "torch_stream", lambda number: STREAM)
    monkeypatch.setattr(pool_calls, "_plans", {})
    yield sums
    extension.forget_pools()


def drawn(*shape: int, dtype: torch.dtype = BF16, seed: int = 1) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return made.contiguous(memory_format=torch.channels_last)


def fused(layer: nn.Module) -> nn.Module:
    model = nn.Sequential(copy.deepcopy(layer))
    assert fuse_resampling(model) == ["0"]
    return model[0]


@pytest.mark.parametrize("layer", POOLS, ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_steps(pools: Driver, layer: nn.Module, dtype: torch.dtype) -> None:
    ours, wide = fused(layer), drawn(2, 24, 9, 7, dtype=dtype).double().requires_grad_()
    x = drawn(2, 24, 9, 7, dtype=dtype).requires_grad_()
    expected, found = layer(wide), []
    for who in ("python", "native", "native"):
        pools.ran.clear()
        y = ours(x)
        dy = drawn(*y.shape, dtype=dtype, seed=2)
        (dx,) = torch.autograd.grad(y, x, dy if len(found) < 2 else dy.contiguous())  # in another order, too
        (exact,) = torch.autograd.grad(expected, wide, dy.double(), retain_graph=True)
        assert pools.ran == [who] * 2
        for one, other in ((y, expected), (dx, exact)):
            assert (one.dtype, one.shape) == (dtype, other.shape)
            assert one.is_contiguous(memory_format=torch.channels_last)
            near = torch.finfo(dtype).eps
            torch.testing.assert_close(one.double(), other.detach(), rtol=near, atol=4 * near)
        found.append((y, dx))
        assert not y._is_view()
    assert all(torch.equal(one, other) for one, other in zip(*found[1:], strict=True))
    pools.ran.clear()
    for _ in range(2):
        with torch.no_grad():
            assert torch.equal(ours(x), y)
        assert torch.equal(ours(x.detach()), y)
    assert pools.ran == ["python", "native", "native", "native"]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # forward derivatives' own
@pytest.mark.parametrize("layer", [nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 1, 1)], ids=str)
def test_what_else_is_asked(pools: Driver, layer: nn.Module) -> None:
    """Second derivatives, batched ones, forward ones; what is kept elsewhere, checkpointed, or of another kind."""
    ours, x = fused(layer), drawn(2, 24, 9, 7, dtype=F32).requires_grad_()
    for way in (by_python, contextlib.nullcontext, contextlib.nullcontext):
        found = []
        for pool in (layer, ours):
            with way():
                y = pool(x)
                dy = drawn(*y.shape, dtype=F32, seed=2).requires_grad_()
                (first,) = torch.autograd.grad(y, x, dy, create_graph=True)
                (second,) = torch.autograd.grad(first.square().sum(), dy)
                many = torch.stack([drawn(*y.shape, dtype=F32, seed=seed) for seed in range(3)])
                (batched,) = torch.autograd.grad(pool(x), x, many, is_grads_batched=True)
                with kept_elsewhere():
                    kept = pool(x)
                (held,) = torch.autograd.grad(kept, x, dy)
                (again,) = torch.autograd.grad(checkpoint(pool, x, use_reentrant=False), x, dy)
                with forward_ad.dual_level():
                    tangent = forward_ad.unpack_dual(pool(forward_ad.make_dual(x, drawn(*x.shape, dtype=F32)))).tangent
                rest = [pool(x.detach()[:, :1]), pool(x.detach().double()), pool(x.detach().contiguous()), pool(x[0])]
                found.append([y, first, second, batched, held, again, tangent, *rest])
        for one, other in zip(*found, strict=True):
            assert one.dtype is other.dtype
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_settings_are_told_apart(pools: Driver) -> None:
    x = drawn(2, 24, 9, 7, dtype=F32).requires_grad_()
    layers = [nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AvgPool2d(2, ceil_mode=True), nn.AvgPool2d(2, divisor_override=3)]
    ours = [fused(layer) for layer in layers]
    for _ in range(3):
        for layer, one in zip(layers, ours, strict=True):
            torch.testing.assert_close(one(x), layer(x))
            found, expected = (torch.autograd.grad(each(x).square().sum(), x)[0] for each in (one, layer))
            torch.testing.assert_close(found, expected)
    ours[0].kernel_size = ours[0].stride = 3  # of a layer that is changed, what it is then
    torch.testing.assert_close(ours[0](x), nn.MaxPool2d(3)(x))
    assert native_calls.pooled is not None
    assert native_calls.pooled(x.detach().to("meta"), 0) is None
