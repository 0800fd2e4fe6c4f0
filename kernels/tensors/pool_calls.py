"""Pools of channels-last torch tensors on CUDA as prepared calls, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..normalization.stretches import Launch
from ..pooling import windows
from ..pooling.windows import Extents, PoolKind, Window
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import autograd
from .convolution_calls import REMEMBERED
from .norm_calls import DTYPES, fetchable, prepared
from .operands import ALIGNED, Result, addresses_of
from .recorded import applied


class _Plan:
    """One kind of call, and its launches, once they are prepared."""

    def __init__(self, kind: PoolKind, of: Extents, device: int) -> None:
        self.kind, self.of, self.device = kind, of, device
        self._launches: dict[Callable[..., Any], moving.Launches] = {}

    def call(self, x: Tensor) -> Tensor:
        """y, recorded where gradients are."""
        raise NotImplementedError

    def launch(self, made: Callable[..., tuple[Launch, ...]], *operands: Tensor) -> None:
        """What one of the functions of `windows` describes; a kind of call gives it as many operands each time."""
        at = addresses_of(*operands)
        launches = self._launches.get(made)
        if launches is None:
            launches = self._launches[made] = moving.launches(
                lambda at: prepared(self.kind, made(self.kind, self.of, *at), self.device), at
            )
        launches.run(at, torch_stream(self.device))

    def of_windows(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Room for a value a window, of the type of x unless another is given."""
        of = self.of
        return Result.like(x, (of.images, of.channels, of.windows_down, of.windows_right), dtype).allocated(x)

    def of_images(self, dy: Tensor) -> Tensor:
        """Room for the gradient of x."""
        return Result.like(dy, (self.of.images, self.of.channels, self.of.height, self.of.width)).allocated(dy)


class Maxima(_Plan):
    """Largest values."""

    def call(self, x: Tensor) -> Tensor:
        """y, and where gradients are recorded where it came from."""
        if torch.is_grad_enabled() and x.requires_grad:
            made: Tensor = _maxima(x, self)
            return made
        y = self.of_windows(x)
        self.launch(_maxima_alone, x, y)
        return y

    def put_back(self, dy: Tensor, taps: Tensor) -> Tensor:
        """The gradient of x by torch's functions, whose own derivatives may be asked for."""
        of, ((_, columns), (down, right), (above, before)) = self.of, self.kind.window
        tap, count = taps.long(), torch.arange(max(of.windows_down, of.windows_right), device=dy.device)
        rows = (count[: of.windows_down] * down - above)[:, None] + tap // columns
        places = count[: of.windows_right] * right - before + tap % columns
        made, flat = dy.new_zeros((of.images, of.channels, of.height * of.width)), (of.images, of.channels, -1)
        made = made.scatter_add(2, (rows * of.width + places).reshape(flat), dy.reshape(flat))
        return made.view(of.images, of.channels, of.height, of.width)


def _maxima_alone(kind: PoolKind, of: Extents, x: int, y: int) -> tuple[Launch, ...]:
    return windows.maxima(kind, of, x, y)


class Averages(_Plan):
    """Means."""

    def call(self, x: Tensor) -> Tensor:
        """y, of which nothing has to be kept."""
        if torch.is_grad_enabled() and x.requires_grad:
            made: Tensor = _averages(x, self)
            return made
        y = self.of_windows(x)
        self.launch(windows.averages, x, y)
        return y

    def spread(self, dy: Tensor) -> Tensor:
        """The gradient of x by torch's functions, whose own derivatives may be asked for."""
        of, (size, step, padding) = self.of, self.kind.window
        like = torch.empty((of.images, of.channels, of.height, of.width), dtype=dy.dtype, device=dy.device)
        whole = (of.windows_down, of.windows_right) == self.kind.window.counts(of.height, of.width)
        how = (size, step, padding, not whole, of.padded, of.divisor or None)
        made: Tensor = torch.ops.aten.avg_pool2d_backward(dy, like, *how)
        return made


_plans: dict[tuple[Any, ...], _Plan | None] = {}


def largest(x: Tensor, window: Window | None, ceil_mode: bool) -> Tensor | None:
    """The maxima of images that are `taken`, as nn.MaxPool2d has them; None where they are torch's."""
    plan = _plan(x, Maxima, window, ceil_mode, 0, False)
    return None if plan is None else plan.call(x)


def averages(
    x: Tensor, window: Window | None, ceil_mode: bool, divisor_override: int | None, count_include_pad: bool
) -> Tensor | None:
    """The means, as nn.AvgPool2d has them; likewise."""
    if divisor_override == 0:
        return None
    plan = _plan(x, Averages, window, ceil_mode, divisor_override or 0, count_include_pad)
    return None if plan is None else plan.call(x)


def taken(x: Tensor) -> bool:
    """Whether kernels take images as they lie, here."""
    if autograd.traced() or not autograd.plain(x):
        return False
    if x.dim() != 4 or x.dtype not in DTYPES or x.data_ptr() & ALIGNED:
        return False
    return x.is_contiguous(memory_format=torch.channels_last)


def _plan(
    x: Tensor, kind: type[_Plan], window: Window | None, ceil_mode: bool, divisor: int, padded: bool
) -> _Plan | None:
    """None for what is torch's."""
    if window is None:
        return None
    key = (kind, x.shape, x.dtype, x.get_device(), window, ceil_mode, divisor, padded)
    if key in _plans:
        return _plans.get(key)
    if len(_plans) >= REMEMBERED:
        _plans.clear()
    made = _plans[key] = _made(x, kind, window, not ceil_mode, divisor, padded)
    return made


def _made(x: Tensor, kind: type[_Plan], window: Window, whole: bool, divisor: int, padded: bool) -> _Plan | None:
    n, c, h, w = x.shape
    if c < 2 or h * w < 2:  # of one channel or pixel torch knows no order of memory
        return None
    down, right = window.counts(h, w, whole)
    of, compiled = Extents(n, h, w, down, right, c, divisor, padded), PoolKind.of(c, DTYPES[x.dtype], window)
    if min(down, right) < 1 or not windows.finds_room(compiled, of):
        return None
    return kind(compiled, of, x.get_device())


def _is_kernels(dy: Tensor) -> bool:
    """Whether kernels take a gradient: none that is batched, or whose own is asked for."""
    return not torch.is_grad_enabled() and autograd.direct(dy) and not autograd._batched(dy)


class _Maxima(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: Maxima) -> Tensor:
        y, taps = plan.of_windows(x), plan.of_windows(x, torch.uint8)
        plan.launch(windows.maxima, x, y, taps)
        ctx.save_for_backward(taps)
        ctx.plan = plan
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        plan, (taps,) = ctx.plan, ctx.saved_tensors
        if not _is_kernels(dy):
            return plan.put_back(dy, taps), None
        dy, taps = fetchable(dy), fetchable(taps)  # what keeps tensors elsewhere may give them back as it likes
        dx = plan.of_images(dy)
        plan.launch(windows.maxima_gradient, dy, taps, dx)
        return dx, None


class _Averages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: Averages) -> Tensor:
        y = plan.of_windows(x)
        plan.launch(windows.averages, x, y)
        ctx.plan = plan
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        plan = ctx.plan
        if not _is_kernels(dy):
            return plan.spread(dy), None
        dy = fetchable(dy)
        dx = plan.of_images(dy)
        plan.launch(windows.averages_gradient, dy, dx)
        return dx, None


_maxima, _averages = applied(_Maxima), applied(_Averages)
