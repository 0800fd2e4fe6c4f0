"""In which order of its elements a convolution is asked of a library: as they lie, or copied so that channels are last,
or first, or so that there are as many as units of products take at once.

What a library has for one order may take three times as long as what it has for the other, copies included: of f32,
32 x 28 x 28 images of 128 channels and windows of 3 x 3 take an H200 253 us with channels last, and 93 with channels
first (cuDNN 9, 2026-11-23). So they are measured, once for every shape.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from ...dtypes import name_of
from ...kernels.errors import LaunchError
from ..device import Runner
from .arrays import DeviceArray
from .dense import CHANNELS_FIRST, CHANNELS_LAST
from .machine import Convolution, Machine
from .quickest import least
from .scratch import Scratch

# Multiplications from which on a convolution is measured; rounds, and calls of each in a round.
LARGE = 1 << 27
ROUNDS, CALLS = 3, 2
UNITS = (8, 16)  # channels that a library's kernels of f16 and of bf16 take at once


class Order(NamedTuple):
    """In which order the elements lie that the library sees, and whether they are copied so first; ``channels``: with
    zeros behind those of x, so that there are as many at least.
    """

    layout: int
    packed: bool
    channels: int = 0


Made = Callable[[Convolution, Order], "Runner | None"]


class Orders:
    """What was measured on a machine: once for every shape."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.known: dict[Hashable, tuple[Order, ...]] = {}

    def of(self, convolution: Convolution, made: Made, scratch: Scratch) -> tuple[Order, ...]:
        """The orders that may be asked for, the quickest first. ``made`` makes a call of one, or None."""
        orders = tuple(_orders(convolution))
        tried = _contenders(convolution, orders, scratch)
        if len(tried) < 2:
            return orders
        shape = _shape(convolution)
        if shape not in self.known:
            best = tried[least(self._times(convolution, tried, made, scratch))]
            self.known[shape] = (best, *(order for order in orders if order != best))
        return self.known[shape]

    def _times(self, convolution: Convolution, tried: Sequence[Order], made: Made, scratch: Scratch) -> list[float]:
        """Seconds of each: of its rounds the least; infinity of what cannot be had."""
        times = [float("inf")] * len(tried)
        with contextlib.suppress(MemoryError):
            given = self._elsewhere(convolution)
            calls = [_call(made, given, order, scratch) for order in tried]
            for turn in range(ROUNDS + 1):
                for k, call in enumerate(calls):
                    took = float("inf") if call is None else self._took(call)
                    times[k] = min(times[k], took) if turn else times[k]  # at first kernels are loaded
        return times

    def _elsewhere(self, convolution: Convolution) -> Convolution:
        """The same, whose result goes to memory of its own."""
        result = convolution.result
        own = DeviceArray(self.machine.memory("", result.array.nbytes), 0, result.array.shape, result.array.dtype)
        sides = {"x": convolution.x, "w": convolution.w, "y": convolution.y}
        sides[convolution.computed] = replace(result, array=own)
        return replace(convolution, x=sides["x"], w=sides["w"], y=sides["y"])

    def _took(self, call: Runner) -> float:
        start = self.machine.mark()
        for _ in range(CALLS):
            call()
        end = self.machine.mark()
        self.machine.synchronise()
        return end() - start()


def _call(made: Made, convolution: Convolution, order: Order, scratch: Scratch) -> Runner | None:
    """All calls work in the same memory, one after another."""
    with contextlib.suppress(LaunchError), scratch.frame():
        return made(convolution, order)
    return None


def _orders(c: Convolution) -> list[Order]:
    """Those that a convolution may have, that in which its elements lie first. Gradients of images of f16 whose
    channels come first are rounded to f16 before they are summed up.
    """
    lying = CHANNELS_LAST if channels_last(c) else CHANNELS_FIRST
    if c.computed == "x" and name_of(c.x.array.dtype) == "f16":
        return [Order(CHANNELS_LAST, packed) for packed in (False, True) if packed or lying == CHANNELS_LAST]
    return [Order(lying, packed=False), Order(CHANNELS_FIRST, packed=True), Order(CHANNELS_LAST, packed=True)]


def _contenders(c: Convolution, orders: Sequence[Order], scratch: Scratch) -> list[Order]:
    """Of a large convolution, whose copies there is room for: as its elements lie, and what else may be quicker."""
    work, first = prod(c.y.extents) * prod(c.w.extents[1:]), orders[0]
    size, channels = c.x.array.dtype.itemsize, c.x.extents[1]
    narrow = c.computed != "x" and name_of(c.x.array.dtype) in ("f16", "bf16")
    more = [unit for unit in UNITS if channels < unit and narrow]
    copied = size * (prod(c.x.extents) // channels * max([channels, *more]) + prod(c.y.extents))
    if first.packed or work < LARGE or scratch.most(copied) < copied:
        return []
    others = [order for order in orders if order.layout != first.layout]
    return [first, *others, *(Order(CHANNELS_LAST, packed=True, channels=unit) for unit in more)]


def _shape(c: Convolution) -> Hashable:
    """What two convolutions have in common that are as quick in the same order."""
    sides = tuple((one.extents, one.steps) for one in (c.x, c.w, c.y))
    return c.computed, name_of(c.x.array.dtype), sides, c.windows


def channels_last(c: Convolution) -> bool:
    """Whether channels lie together, of x and of y."""
    return c.x.steps[1] == 1 and c.y.steps[1] == 1
