"""Copies, packets and contiguous stretches of the CuPy device, against whole arrays indexed element by element."""

from __future__ import annotations

import ctypes
from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.space import Grid, IntSet, Region
from tapestry.testing.choices import Choices
from tapestry.workers.cupy.copying import copying_source, copying_unit, joined
from tapestry.workers.cupy.device import CupyDevice
from tapestry.workers.cupy.machine import Lines
from tapestry.workers.device import Packed, Stored

from ...kernels.elementwise.host import Unit, build, needs_compiler
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


def copied(lines: Lines) -> tuple[str, bytes, bytes]:
    """The kernel that copies, what it read from and what it left, every byte around being 0xA5."""
    sizes = [1 + sum((n - 1) * step for n, step in zip(lines.extents, steps, strict=True)) + lines.width
             for steps in (lines.source_steps, lines.target_steps)]  # fmt: skip
    source = np.random.default_rng(0).integers(0, 256, sizes[0], np.uint8)
    target = np.full(sizes[1], 0xA5, np.uint8)
    unit, (_, _, *numbers) = copying_unit(lines)
    entry = f"called_{unit.entry}_{abs(hash(lines))}"
    called = (
        f'namespace tapestry {{\nextern "C" __global__ void {entry}(const char* from, char* to) {{\n'
        f"    {unit.entry}(from, to, {', '.join(map(str, numbers))});\n}}\n}}\n"
    )
    words = "struct uint2 { unsigned x, y; };\nstruct uint4 { unsigned x, y, z, w; };\n"  # CUDA's own
    library = build([Unit(words + unit.source + called, entry, unit.blocks, unit.threads, 2)])
    getattr(library, f"host_{entry}")((ctypes.c_void_p * 2)(source.ctypes.data, target.ctypes.data))
    return unit.entry, source.tobytes(), target.tobytes()


@needs_compiler
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("extents", [(2, 19, 5, 7), (1, 40, 1, 70), (3, 16, 16), (70, 33), (2, 3, 5, 17)])
def test_a_copy_between_two_orders_of_axes(width: int, extents: tuple[int, ...]) -> None:
    """Axes lie in any two orders, with gaps behind a line of the target."""

    def steps(order: tuple[int, ...], gap: int) -> tuple[int, ...]:
        found, step = [0] * len(extents), width
        for axis in reversed(order):
            found[axis], step = step, step * extents[axis] + gap * (step == width) * width
        return tuple(found)

    axes = tuple(range(len(extents)))
    last = (0, *axes[2:], 1) if len(axes) > 2 else (1, 0)
    for first, second, gap in product((axes, last), (axes, last), (0, 3)):
        lines = Lines(0, 0, width, extents, steps(first, 0), steps(second, gap))
        entry, source, target = copied(lines)
        if not gap:
            large = min(extents[1], prod(extents[2:]) if len(extents) > 2 else extents[0]) >= 16
            assert entry.startswith("turn" if large and first != second else "copy")
        wanted = bytearray(b"\xa5" * len(target))
        for point in product(*map(range, extents)):
            a, b = (sum(i * step for i, step in zip(point, side, strict=True))
                    for side in (lines.source_steps, lines.target_steps))  # fmt: skip
            wanted[b : b + width] = source[a : a + width]
        assert target == bytes(wanted)


def test_axes_that_follow_one_another_on_both_sides_are_one() -> None:
    for order in permutations((0, 1, 2)):
        extents = tuple((2, 3, 5)[k] for k in order)
        steps = tuple((60, 20, 4)[k] for k in order)
        found = joined(Lines(0, 0, 4, extents, steps, steps))
        assert prod(found.extents) == 30
        assert (len(found.extents) == 1) == (order == (0, 1, 2))
