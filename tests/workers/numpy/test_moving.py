"""Moving and folding regions between stored arrays, against plain indexing by points."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.space import Box, Grid, IntSet, Region
from tapestry.workers.device import Packed, Stored
from tapestry.workers.numpy.moving import bind_fold, bind_move, bind_pack, bind_unpack, contiguous

SHAPE = (9, 7)


@st.composite
def axes(draw: st.DrawFn, extent: int) -> IntSet:
    runs = st.tuples(st.integers(0, extent - 1), st.integers(1, extent), st.integers(1, 3))
    drawn = draw(st.lists(runs, min_size=1, max_size=2))
    return IntSet.of(*(range(lo, min(extent, lo + n), step) for lo, n, step in drawn))


regions = st.lists(st.tuples(axes(SHAPE[0]), axes(SHAPE[1])), min_size=1, max_size=3).map(
    lambda grids: Region.of(*map(Grid, grids))
)


def points(region: Region) -> list[tuple[int, ...]]:
    return [point for grid in region.grids for point in product(*grid.axes)]


def stored(region: Region, start: float = 0) -> Stored:
    """The storage of a region, every element its own number plus ``start``; elements outside the region are NaN."""
    grid = region.storage()
    assert grid is not None
    array = np.full(grid.shape, np.nan, np.float32)
    for point in points(region):
        array[local(grid, point)] = start + SHAPE[1] * point[0] + point[1]
    return Stored(array, grid)


def local(grid: Grid, point: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis.position(x) for axis, x in zip(grid.axes, point, strict=True))


@given(regions, regions)
def test_moves_touch_the_region_and_nothing_else(source: Region, target: Region) -> None:
    region = source & target
    there = Stored(np.full_like(stored(target).array, -1), stored(target).grid)
    bind_move(stored(source), there, region)()
    want = np.full_like(there.array, -1)
    for point in points(region):
        want[local(there.grid, point)] = SHAPE[1] * point[0] + point[1]
    np.testing.assert_array_equal(there.array, want)


@given(regions, regions)
def test_a_payload_is_compact_and_comes_out_as_it_went_in(source: Region, target: Region) -> None:
    region = source & target
    payload = Packed(np.empty(region.size, np.float32), region)
    bind_pack(stored(source), payload)()
    there = Stored(np.full_like(stored(target).array, -1), stored(target).grid)
    bind_unpack(payload, there)()
    straight = Stored(np.full_like(there.array, -1), there.grid)
    bind_move(stored(source), straight, region)()
    np.testing.assert_array_equal(there.array, straight.array)
    if region:
        folded = Stored(np.full_like(there.array, -1), there.grid)
        bind_fold([(region, payload)], folded, "sum")()
        np.testing.assert_array_equal(folded.array, straight.array)


@given(regions)
def test_elements_in_one_stretch_are_lent_in_the_order_of_a_payload(region: Region) -> None:
    here = stored(region)
    lent = contiguous(here, region)
    whole = Box((2, 0), (6, SHAPE[1])).region()
    assert contiguous(stored(whole), whole) is not None
    assert contiguous(stored(whole), Box((2, 0), (6, 3)).region()) is None
    if lent is not None:
        payload = Packed(np.empty(region.size, np.float32), region)
        bind_pack(here, payload)()
        np.testing.assert_array_equal(lent, payload.array)
        assert np.shares_memory(lent, here.array)


@given(st.lists(regions, min_size=1, max_size=3))
def test_folds_take_every_contribution_once(parts: list[Region]) -> None:
    """Contributions may cover different elements of the target."""
    target = Stored(np.full(SHAPE, -1, np.float32), Box.of_shape(SHAPE).grid())
    bind_fold([(region, stored(region, 100.0 * k)) for k, region in enumerate(parts)], target, "sum")()
    want = np.full(SHAPE, -1, np.float32)
    for point in product(*map(range, SHAPE)):
        found = [100.0 * k + SHAPE[1] * point[0] + point[1] for k, r in enumerate(parts) if r.contains(point)]
        if found:
            want[point] = sum(found)
    np.testing.assert_array_equal(target.array, want)


@pytest.mark.parametrize(("monoid", "want"), [("sum", 6), ("prod", 6), ("max", 3), ("min", 1)])
def test_monoids(monoid: str, want: int) -> None:
    whole = Box.of_shape((4,))
    parts = [(whole.region(), Stored(np.full(4, k, np.int32), whole.grid())) for k in (2, 1, 3)]
    target = Stored(np.zeros(4, np.int32), whole.grid())
    bind_fold(parts, target, monoid)()
    assert (target.array == want).all()


def test_scalars_and_truths() -> None:
    point = Box((), ())
    parts = [(point.region(), Stored(np.array(k), point.grid())) for k in (False, True)]
    for monoid, want in (("any", True), ("all", False)):
        target = Stored(np.array(not want), point.grid())
        bind_fold(parts, target, monoid)()
        assert target.array == want


def test_states_of_softmax_fold_to_the_state_of_all_keys() -> None:
    rng = np.random.default_rng(3)
    scores, values = rng.standard_normal((5, 12)) * 5, rng.standard_normal((12, 4))

    def state(keys: slice) -> np.ndarray:
        if not scores[:, keys].size:
            return np.tile([0, 0, 0, 0, 0, -np.inf], (5, 1)).astype(np.float32)
        m = scores[:, keys].max(axis=1, keepdims=True)
        p = np.exp(scores[:, keys] - m)
        return np.concatenate([p @ values[keys], p.sum(axis=1, keepdims=True), m], axis=1).astype(np.float32)

    box = Box.of_shape((5, 6))
    cuts = [slice(0, 0), slice(0, 5), slice(5, 6), slice(6, 6), slice(6, 12)]
    target = Stored(np.full((5, 6), np.nan, np.float32), box.grid())
    bind_fold([(box.region(), Stored(state(cut), box.grid())) for cut in cuts], target, "online_softmax")()
    np.testing.assert_allclose(target.array, state(slice(0, 12)), rtol=1e-4)
