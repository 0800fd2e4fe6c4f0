"""Convolutions as libraries take them: filters dense, padding the same on either side, by way of copies where it is not
so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from ..device import Runner
from .arrays import DeviceArray
from .machine import Convolution, Lines, Machine, Strided, Window

# The axes of dense elements: as cuDNN numbers its formats.
CHANNELS_FIRST, CHANNELS_LAST = 0, 1


class Asked:
    """What is asked for in the place of a convolution: `convolution`, ``before`` and ``after`` which copies are made.

    uneven: padding may differ on either side. packed: x and y are copied unless they are dense, as filters always are.
    ``channels``: of fewer channels of x there are copies with zeros behind them.
    """

    def __init__(
        self,
        machine: Machine,
        wanted: Convolution,
        take: Callable[[int], DeviceArray],
        layout: int,
        *,
        uneven: bool = False,
        packed: bool = False,
        channels: int = 0,
    ) -> None:
        self.machine, self.take, self.layout, self.packed = machine, take, layout, packed
        self.before: list[Runner] = []
        self.after: list[Runner] = []
        whole = uneven or all(map(wanted.even, range(len(wanted.windows))))
        x, windows = (wanted.x, wanted.windows) if whole else self._padded(wanted)
        x, w = (self._widened(one, channels, wanted.computed == name) for one, name in ((x, "x"), (wanted.w, "w")))
        x, y = (self._dense(one, wanted, name) if packed else one for one, name in ((x, "x"), (wanted.y, "y")))
        w = self._dense(w, wanted, "w")
        self.convolution = replace(wanted, x=x, w=w, y=y, windows=windows)

    @property
    def addresses(self) -> list[int]:
        """Of the first elements."""
        c = self.convolution
        return [one.array.pointer + one.offset * one.array.dtype.itemsize for one in (c.x, c.w, c.y)]

    def _dense(self, one: Strided, wanted: Convolution, name: str) -> Strided:
        """The elements one after another in the layout."""
        steps = dense_steps(one.extents, self.layout)
        if all(n == 1 or a == b for n, a, b in zip(one.extents, one.steps, steps, strict=True)):
            return one
        made = self._like(one, one.extents, steps)
        self._copied(one, made, wanted.computed == name)
        return made

    def _widened(self, one: Strided, channels: int, computed: bool) -> Strided:
        """With so many channels in at least."""
        if one.extents[1] >= channels:
            return one
        extents = (one.extents[0], channels, *one.extents[2:])
        made = self._like(one, extents, dense_steps(extents, self.layout))
        if not computed:
            self.before.append(lambda: self.machine.fill(made.array, 0))
        self._copied(one, replace(made, extents=one.extents), computed)
        return made

    def _padded(self, wanted: Convolution) -> tuple[Strided, tuple[Window, ...]]:
        """x with its zeros around it where they cannot be as many on either side."""
        uneven = [not wanted.even(k) for k in range(len(wanted.windows))]
        around = [w.before + w.after if apart else 0 for w, apart in zip(wanted.windows, uneven, strict=True)]
        extents = [*wanted.x.extents[:2], *(n + m for n, m in zip(wanted.x.extents[2:], around, strict=True))]
        made = self._like(wanted.x, extents, dense_steps(extents, self.layout))
        first = zip(wanted.windows, made.steps[2:], uneven, strict=True)
        offset = sum(window.before * step for window, step, apart in first if apart)
        if wanted.computed != "x":
            self.before.append(lambda: self.machine.fill(made.array, 0))
        self._copied(wanted.x, replace(made, offset=offset, extents=wanted.x.extents), wanted.computed == "x")
        pairs = zip(wanted.windows, uneven, strict=True)
        return made, tuple(replace(w, before=0, after=0) if apart else w for w, apart in pairs)

    def _like(self, given: Strided, extents: Sequence[int], steps: Sequence[int]) -> Strided:
        dtype = given.array.dtype
        taken = self.take(prod(extents) * dtype.itemsize)
        return Strided(replace(taken, shape=(prod(extents),), dtype=dtype), 0, tuple(extents), tuple(steps))

    def _copied(self, given: Strided, made: Strided, back: bool) -> None:
        """Elements into what was made of them before the call, or out of it behind the call."""
        source, target = (made, given) if back else (given, made)
        size = given.array.dtype.itemsize
        first, second = (one.array.pointer + one.offset * size for one in (source, target))
        order = sorted(range(len(given.extents)), key=lambda axis: -target.steps[axis])
        extents = tuple(given.extents[axis] for axis in order)
        apart, put = (tuple(one.steps[axis] * size for axis in order) for one in (source, target))
        run = self.machine.copy(Lines(first, second, size, extents, apart, put), (source.array, target.array))
        if back:
            self.after.insert(0, run)
        else:
            self.before.append(run)


def dense_steps(extents: Sequence[int], layout: int) -> tuple[int, ...]:
    """The steps of dense elements, channels last or in front of the directions.

    >>> dense_steps((2, 3, 4, 5), CHANNELS_LAST)
    (60, 1, 15, 3)
    """
    order = [0, *range(2, len(extents)), 1] if layout == CHANNELS_LAST else list(range(len(extents)))
    found, step = [0] * len(extents), 1
    for axis in reversed(order):
        found[axis] = step
        step *= extents[axis]
    return tuple(found)
