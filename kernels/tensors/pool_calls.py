"""Pools of channels-last torch tensors on CUDA as prepared calls, and their gradients.

The extension repeats what it was told of; it knows what a pool does by a number, its `setting`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..normalization.stretches import Launch
from ..pooling import windows
from ..pooling.windows import Extents, PoolKind, Window
from ..runtime import moving
from ..runtime.stream import torch_stream
from . import autograd, native_calls
from .convolution_calls import REMEMBERED
from .norm_calls import DTYPES, fetchable, prepared
from .operands import ALIGNED, Result, addresses_of
from .recorded import applied


class Setting(NamedTuple):
    """What a pool does with images: of which `kind`, over which windows, and as nn.AvgPool2d has the rest."""

    kind: type[_Plan]
    window: Window
    ceil_mode: bool = False
    divisor: int = 0
    padded: bool = False


class _Plan:
    """One kind of call, and its launches, once they are prepared."""

    def __init__(self, kind: PoolKind, of: Extents, device: int, setting: int) -> None:
        self.kind, self.of, self.device, self.setting = kind, of, device, setting
        self._launches: dict[Callable[..., Any], moving.Launches] = {}
        self._teller = native_calls.Teller()

    forward: Callable[..., tuple[Launch, ...]]
    backward: Callable[..., tuple[Launch, ...]]

    def call(self, x: Tensor) -> Tensor:
        """y, recorded where gradients are."""
        raise NotImplementedError

    def gradient(self, dy: Tensor, taps: Tensor | None) -> Tensor:
        """That of x; `taps` say where maxima came from."""
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

    def tell(self, x: Tensor, y: Tensor, recorded: bool) -> None:
        """Have the extension make this call, which gave y, from here on; what is kept for a gradient is `recorded`."""
        made = _maxima_alone if isinstance(self, Maxima) and not recorded else self.forward
        what: native_calls.Call = "recorded_pool" if recorded else "pool"
        self._teller.tell(what, (self.setting, x), 0, self._launches[made], (y,))

    def tell_gradient(self, dy: Tensor, dx: Tensor) -> None:
        """The same of a gradient."""
        self._teller.tell("pool_gradient", (self.setting, dy), 0, self._launches[self.backward], (dx,))

    def of_windows(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Room for a value a window, of the type of x unless another is given."""
        of = self.of
        return Result.like(x, (of.images, of.channels, of.windows_down, of.windows_right), dtype).allocated(x)

    def of_images(self, dy: Tensor) -> Tensor:
        """Room for the gradient of x."""
        return Result.like(dy, (self.of.images, self.of.channels, self.of.height, self.of.width)).allocated(dy)


class Maxima(_Plan):
    """Largest values."""

    forward, backward = staticmethod(windows.maxima), staticmethod(windows.maxima_gradient)

    def call(self, x: Tensor) -> Tensor:
        """y, and where gradients are recorded where it came from."""
        if torch.is_grad_enabled() and x.requires_grad:
            made: Tensor = _maxima(x, self)
            return made
        y = self.of_windows(x)
        self.launch(_maxima_alone, x, y)
        self.tell(x, y, False)
        return y

    def gradient(self, dy: Tensor, taps: Tensor | None) -> Tensor:
        """By the kernel, where that takes dy."""
        assert taps is not None
        if not _is_kernels(dy):
            return self.put_back(dy, taps)
        dy, taps = fetchable(dy), fetchable(taps)  # what keeps tensors elsewhere may give them back as it likes
        dx = self.of_images(dy)
        self.launch(self.backward, dy, taps, dx)
        self.tell_gradient(dy, dx)
        return dx

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

    forward, backward = staticmethod(windows.averages), staticmethod(windows.averages_gradient)

    def call(self, x: Tensor) -> Tensor:
        """y, of which nothing has to be kept."""
        if torch.is_grad_enabled() and x.requires_grad:
            made: Tensor = _averages(x, self)
            return made
        y = self.of_windows(x)
        self.launch(self.forward, x, y)
        self.tell(x, y, False)
        return y

    def gradient(self, dy: Tensor, taps: Tensor | None) -> Tensor:
        """Likewise; there are no `taps`."""
        assert taps is None
        if not _is_kernels(dy):
            return self.spread(dy)
        dy = fetchable(dy)
        dx = self.of_images(dy)
        self.launch(self.backward, dy, dx)
        self.tell_gradient(dy, dx)
        return dx

    def spread(self, dy: Tensor) -> Tensor:
        """The gradient of x by torch's functions, whose own derivatives may be asked for."""
        of, (size, step, padding) = self.of, self.kind.window
        like = torch.empty((of.images, of.channels, of.height, of.width), dtype=dy.dtype, device=dy.device)
        whole = (of.windows_down, of.windows_right) == self.kind.window.counts(of.height, of.width)
        how = (size, step, padding, not whole, of.padded, of.divisor or None)
        made: Tensor = torch.ops.aten.avg_pool2d_backward(dy, like, *how)
        return made


_plans: dict[tuple[Any, ...], _Plan | None] = {}
_settings: list[Setting] = []
_turn = threading.Lock()


@functools.cache
def _number(setting: Setting) -> int:
    """A setting's, whose lowest bit says whether it is of maxima."""
    with _turn:  # two threads may meet pools for the first time
        _settings.append(setting)
        return (len(_settings) - 1) << 1 | (setting.kind is Maxima)


def largest(x: Tensor, window: Window | None, ceil_mode: bool) -> Tensor | None:
    """The maxima of images, as nn.MaxPool2d has them; None where they are torch's."""
    return None if window is None else _pooled(x, Setting(Maxima, window, bool(ceil_mode)))


def averages(
    x: Tensor, window: Window | None, ceil_mode: bool, divisor_override: int | None, count_include_pad: bool
) -> Tensor | None:
    """The means, as nn.AvgPool2d has them; likewise."""
    if divisor_override == 0 or window is None:
        return None
    return _pooled(x, Setting(Averages, window, bool(ceil_mode), divisor_override or 0, bool(count_include_pad)))


def _pooled(x: Tensor, setting: Setting) -> Tensor | None:
    if autograd.traced():
        return None
    number = _number(setting)
    native = native_calls.pooled
    if native is not None and (known := native(x, number)) is not None:
        return known
    plan = _plan(x, number) if taken(x) else None
    return None if plan is None else plan.call(x)


def pool_backward_of(dy: Tensor, taps: Tensor | None, number: int, *extents: int) -> Tensor:
    """The gradient of images of such extents, as the extension asks for it."""
    like = torch.empty(extents, dtype=dy.dtype, device="meta")
    plan = _plan(like, number, dy.get_device())
    assert plan is not None
    return plan.gradient(dy, taps)


def taken(x: Tensor) -> bool:
    """Whether kernels take images as they lie, here."""
    if not autograd.direct(x):
        return False
    if x.dim() != 4 or x.dtype not in DTYPES or x.data_ptr() & ALIGNED:
        return False
    return x.is_contiguous(memory_format=torch.channels_last)


def _plan(x: Tensor, number: int, device: int | None = None) -> _Plan | None:
    """That of images like x, on their device unless another is given; None for what is torch's."""
    device = x.get_device() if device is None else device
    key = (number, x.shape, x.dtype, device)
    if key in _plans:
        return _plans.get(key)
    native_calls.begin()
    if len(_plans) >= REMEMBERED:
        _plans.clear()
        native_calls.forget("pools")
    made = _plans[key] = _made(x, number, device)
    return made


def _made(x: Tensor, number: int, device: int) -> _Plan | None:
    n, c, h, w = x.shape
    setting = _settings[number >> 1]
    if c < 2 or h * w < 2:  # of one channel or pixel torch knows no order of memory
        return None
    down, right = setting.window.counts(h, w, not setting.ceil_mode)
    of = Extents(n, h, w, down, right, c, setting.divisor, setting.padded)
    compiled = PoolKind.of(c, DTYPES[x.dtype], setting.window)
    if min(down, right) < 1 or not windows.finds_room(compiled, of):
        return None
    return setting.kind(compiled, of, device, number)


def _is_kernels(dy: Tensor) -> bool:
    """Whether kernels take a gradient: none that is batched, or whose own is asked for."""
    return not torch.is_grad_enabled() and autograd.direct(dy) and not autograd._batched(dy)


class _Maxima(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: Maxima) -> Tensor:
        y, taps = plan.of_windows(x), plan.of_windows(x, torch.uint8)
        plan.launch(plan.forward, x, y, taps)
        plan.tell(x, y, True)
        ctx.save_for_backward(taps)
        ctx.plan = plan
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.plan.gradient(dy, *ctx.saved_tensors), None


class _Averages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, plan: Averages) -> Tensor:
        y = plan.of_windows(x)
        plan.launch(plan.forward, x, y)
        plan.tell(x, y, True)
        ctx.plan = plan
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.plan.gradient(dy, None), None


_maxima, _averages = applied(_Maxima), applied(_Averages)
