"""In which order of its elements a convolution is asked for: what is measured, and by which order it is then."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest

from tapestry.dtypes import numpy_dtype
from tapestry.workers.cupy.arrays import of_memory
from tapestry.workers.cupy.dense import CHANNELS_FIRST, CHANNELS_LAST, Asked, dense_steps
from tapestry.workers.cupy.machine import Convolution, Strided, Window
from tapestry.workers.cupy.orders import Order, Orders
from tapestry.workers.cupy.scratch import Scratch
from tapestry.workers.device import Runner, in_order

from .host_arrays import host_bytes
from .host_libraries import convolve
from .host_machine import HostMachine

LAST, FIRST = Order(CHANNELS_LAST, packed=False), Order(CHANNELS_FIRST, packed=True)
OTHER_LAST, WIDE = Order(CHANNELS_LAST, packed=True), Order(CHANNELS_LAST, packed=True, channels=8)
WIDEST = Order(CHANNELS_LAST, packed=True, channels=16)


def images(
    machine: HostMachine, layout: int, dtype: str = "f32", channels: int = 3, computed: str = "y"
) -> Convolution:
    """x [2, c, 9, 8] and w [4, c, 3, 3], zeros around, of random values; what is computed is NaN."""

    def lying(name: str, *extents: int) -> Strided:
        kind = numpy_dtype(dtype)
        array = of_memory(machine.memory("", prod(extents) * kind.itemsize)).view(kind)
        values = np.random.default_rng(len(name) + extents[0]).random(prod(extents)) - 0.5
        host_bytes(array).view(kind)[...] = np.nan if name == computed else values
        return Strided(array, 0, extents, dense_steps(extents, layout))

    windows = (Window(1, 1, 1, 1), Window(1, 1, 1, 1))
    x, w, y = lying("x", 2, channels, 9, 8), lying("w", 4, channels, 3, 3), lying("y", 2, 4, 9, 8)
    return Convolution(x, w, y, windows, 1, computed)  # type: ignore[arg-type]


def scratch(machine: HostMachine, room: int = 1 << 20) -> Scratch:
    return Scratch(lambda nbytes: machine.memory("", nbytes), of_memory(machine.memory("", room)))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones are measured too."""
    monkeypatch.setattr("tapestry.workers.cupy.orders.LARGE", 1)


def timed(took: dict[Order, float]) -> tuple[HostMachine, Callable[[Convolution, Order], Runner | None], list[Order]]:
    """A machine whose clock goes on by so many seconds for every call of an order, and what makes such calls."""
    clock, called = [0.0], list[Order]()

    class Clocked(HostMachine):
        def mark(self) -> Callable[[], float]:
            now = clock[0]
            return lambda: now

    def made(convolution: Convolution, order: Order) -> Runner | None:
        if order not in took:
            return None

        def run() -> None:
            called.append(order)
            clock[0] += took[order]

        return run

    return Clocked(), made, called


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("slow", "first"), [(3.0, FIRST), (1.0, LAST), (2.01, LAST)])
def test_the_quickest_order_comes_first_and_is_asked_for_once(slow: float, first: Order) -> None:
    machine, made, called = timed({LAST: slow, FIRST: 2.0})
    orders, convolution = Orders(machine), images(machine, CHANNELS_LAST)
    before = host_bytes(convolution.y.array).copy()
    found = orders.of(convolution, made, scratch(machine))
    assert found[0] == first
    assert {LAST, FIRST} <= set(found)
    assert set(called) == {LAST, FIRST}
    seen = len(called)
    assert orders.of(images(machine, CHANNELS_LAST), made, scratch(machine)) == found
    assert len(called) == seen, "measured once for a shape"
    assert (host_bytes(convolution.y.array) == before).all(), "what is measured goes elsewhere"


@pytest.mark.usefixtures("small")
def test_of_few_narrow_channels_more_are_tried() -> None:
    machine, made, _ = timed({LAST: 4.0, FIRST: 3.0, WIDE: 1.0, WIDEST: 2.0})
    for channels, computed, first in (
        (3, "y", WIDE), (3, "w", WIDE), (3, "x", FIRST), (8, "y", WIDEST), (15, "w", WIDEST), (16, "y", FIRST),
    ):  # fmt: skip
        found = Orders(machine).of(images(machine, CHANNELS_LAST, "bf16", channels, computed), made, scratch(machine))
        assert found[0] == first


@pytest.mark.usefixtures("small")
def test_an_order_that_is_not_to_be_had_is_not_chosen() -> None:
    machine, made, _ = timed({LAST: 3.0})
    assert Orders(machine).of(images(machine, CHANNELS_LAST), made, scratch(machine))[0] == LAST
    machine, made, _ = timed({FIRST: 3.0})
    assert Orders(machine).of(images(machine, CHANNELS_LAST), made, scratch(machine))[0] == FIRST


def test_small_ones_and_those_without_room_for_copies_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    machine, made, called = timed({LAST: 3.0, FIRST: 1.0})
    assert Orders(machine).of(images(machine, CHANNELS_LAST), made, scratch(machine))[0] == LAST
    monkeypatch.setattr("tapestry.workers.cupy.orders.LARGE", 1)
    assert Orders(machine).of(images(machine, CHANNELS_LAST), made, scratch(machine, 1024))[0] == LAST
    assert not called


@pytest.mark.parametrize("computed", ["y", "w", "x"])
@pytest.mark.parametrize("layout", [CHANNELS_LAST, CHANNELS_FIRST])
@pytest.mark.parametrize("order", [LAST, FIRST, OTHER_LAST, WIDE, WIDEST])
def test_every_order_computes_the_same(order: Order, layout: int, computed: str) -> None:
    machine = HostMachine()
    found = []
    for asked_for in (Order(layout, packed=False), order):
        convolution = images(machine, layout, "f32", 3, computed)
        asked = Asked(
            machine, convolution, scratch(machine).bytes, asked_for.layout,
            packed=asked_for.packed, channels=asked_for.channels,
        )  # fmt: skip
        assert asked.convolution.x.extents[1] == asked.convolution.w.extents[1] == max(3, asked_for.channels)
        in_order([*asked.before, lambda a=asked: convolve(a.convolution, a.layout), *asked.after])()  # type: ignore[misc]
        found.append(host_bytes(convolution.result.array).view(np.float32).copy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)
    assert not np.isnan(found[0]).any()
