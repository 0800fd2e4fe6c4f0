"""Copies, packets and contiguous stretches of the CuPy device, against whole arrays indexed element by element."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.space import Grid, IntSet, Region
from tapestry.testing.choices import Choices
from tapestry.workers.cupy.copying import copying_source
from tapestry.workers.cupy.device import CupyDevice
from tapestry.workers.device import Packed, Stored

from .host_arrays import host_bytes
from .host_machine import HostMachine

QUICK = settings(deadline=None, max_examples=60)


def some_axis(ch: Choices, extent: int, *, strided: bool) -> IntSet:
    """Some of 0:extent: intervals, or a strided run."""
    if strided and ch.chance(30):
        start = ch.integer(0, extent - 1)
        return IntSet.of(range(start, extent, ch.integer(2, 3)))
    cuts = sorted(ch.integer(0, extent) for _ in range(4))
    found = IntSet.interval(cuts[0], cuts[1]) | IntSet.interval(cuts[2], cuts[3])
    return found or IntSet.interval(0, extent)


def elements(region: Region) -> list[tuple[int, ...]]:
    """In the order in which they are packed: grid after grid, runs of an axis one after another."""
    return [
        point
        for grid in region.grids
        for point in product(*([x for run in axis.runs for x in run] for axis in grid.axes))
    ]


def stored(device: CupyDevice, grid: Grid, whole: np.ndarray[Any, Any]) -> Stored:
    """The device's copy of the elements of a grid."""
    found = device.view(device.allocate("hbm", grid.size * whole.itemsize), 0, grid, whole.dtype)
    device.copy(Stored(whole, Grid(tuple(IntSet.interval(0, n) for n in whole.shape))), found, grid.region())()
    return found


def values(array: Any) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = host_bytes(array).view(array.dtype).reshape(array.shape)
    return found


@QUICK
@given(st.data())
def test_what_both_store_is_copied_and_nothing_else(data: st.DataObject) -> None:
    ch = Choices(data.draw)
    device = CupyDevice(HostMachine())
    shape = tuple(ch.integer(1, 9) for _ in range(ch.integer(1, 4)))
    dtype = np.dtype(ch.pick(("int8", "float16", "float32", "float64")))
    whole = np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)
    source, target = (Grid(tuple(some_axis(ch, n, strided=False) for n in shape)) for _ in range(2))
    region = Grid(tuple(some_axis(ch, n, strided=True) for n in shape)).region()
    a, b = stored(device, source, whole), stored(device, target, np.zeros(shape, dtype))
    device.copy(a, b, region)()
    wanted = np.zeros(shape, dtype)
    for point in elements(region):
        if point in source:
            wanted[point] = whole[point]
    back = np.zeros(shape, dtype)
    everywhere = Grid(tuple(IntSet.interval(0, n) for n in shape))
    device.copy(b, Stored(back, everywhere), target.region())()
    kept = np.zeros(shape, bool)
    for point in elements(target.region()):
        kept[point] = True
    np.testing.assert_array_equal(back, np.where(kept, wanted, 0))


@QUICK
@given(st.data())
def test_packets_hold_a_region_grid_after_grid(data: st.DataObject) -> None:
    ch = Choices(data.draw)
    device = CupyDevice(HostMachine())
    shape = tuple(ch.integer(1, 7) for _ in range(ch.integer(1, 3)))
    whole = np.arange(1, 1 + int(np.prod(shape)), dtype=np.int32).reshape(shape)
    everywhere = Grid(tuple(IntSet.interval(0, n) for n in shape))
    region = Region.of(*(Grid(tuple(some_axis(ch, n, strided=True) for n in shape)) for _ in range(ch.integer(1, 2))))
    source = stored(device, everywhere, whole)
    packed = Packed(device.take(region.size, whole.dtype, None), region)
    device.pack(source, packed)()
    assert values(packed.array).tolist() == [int(whole[point]) for point in elements(region)]
    lent = device.contiguous(source, region)
    if lent is not None:
        assert values(lent).tolist() == values(packed.array).tolist()
    target = stored(device, everywhere, np.zeros_like(whole))
    device.unpack(packed, target)()
    wanted = np.zeros_like(whole)
    for point in elements(region):
        wanted[point] = whole[point]
    np.testing.assert_array_equal(values(target.array), wanted)


def test_what_lies_in_one_stretch_is_lent() -> None:
    device = CupyDevice(HostMachine())
    source = stored(device, Grid((IntSet.interval(0, 6), IntSet.interval(0, 4))), np.zeros((6, 4), np.float32))
    rows = Grid((IntSet.interval(2, 5), IntSet.interval(0, 4))).region()
    columns = Grid((IntSet.interval(0, 6), IntSet.interval(1, 3))).region()
    lent = device.contiguous(source, rows)
    assert lent is not None
    assert (lent.pointer, lent.shape) == (source.array.pointer + 2 * 4 * 4, (12,))
    assert device.contiguous(source, columns) is None


def test_the_copying_kernel_names_its_width() -> None:
    assert "uint4" in copying_source(16, "copy_16")
    assert "unsigned long long left" in copying_source(2, "copy_2_wide")
