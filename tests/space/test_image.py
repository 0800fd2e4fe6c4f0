"""Images under quasi-affine rows against enumeration and against isl, and the cases that hulls get wrong."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.expr import Affine, Bound
from tapestry.space import Access, Box, Grid, IndexSet, IntSet, Region
from tapestry.testing.spaces import affines, boxes, points, regions
from tapestry.testing.spaces import bounds as conditions

from .accesses import at, linear
from .accesses import image as image_of

D = Affine.dim
DIMS = ("a", "b", "c")


def listed(access: Access, region: Region) -> set[tuple[int, ...]]:
    found = (at(access, point) for point in points(region))
    return {element for element in found if element is not None}


@st.composite
def accesses(draw: st.DrawFn, *, guarded: bool = True) -> Access:
    dims = DIMS[: draw(st.integers(1, 3))]
    rows = tuple(draw(st.lists(affines(dims), max_size=3)))
    guard = tuple(draw(st.lists(conditions(dims), max_size=2))) if guarded else ()
    return Access(dims, rows, guard)


@settings(max_examples=400)
@given(st.data())
def test_an_exact_image_is_the_image_and_a_hull_holds_it(data: st.DataObject) -> None:
    access = data.draw(accesses())
    region = data.draw(regions(len(access.dims), most=2))
    image, truth = image_of(access, region), listed(access, region)
    assert truth <= points(image.region)
    assert not image.exact or truth == points(image.region)


@settings(max_examples=60)
@given(st.data())
def test_the_box_path_agrees_with_isl(data: st.DataObject) -> None:
    access = data.draw(accesses())
    box = data.draw(boxes(len(access.dims), -40, 90))
    image = image_of(access, box)
    truth = access.image_set(IndexSet.of(access.dims, box))
    mine = IndexSet.of(truth.dims, image.region)
    assert mine.same(truth) if image.exact else truth <= mine


@given(st.data())
def test_plain_rows_are_exact(data: st.DataObject) -> None:
    """Rows that share no dimension, whatever signs and strides, on unions of strided grids."""
    factors = data.draw(st.lists(st.integers(-4, 4), min_size=3, max_size=3))
    first = Affine((), data.draw(st.integers(-5, 5))) + D("a") * factors[0] + D("b") * factors[1]
    access = Access(DIMS, (first, D("c") * factors[2]))
    region = data.draw(regions(3, most=2))
    image = image_of(access, region)
    assert image.exact
    assert points(image.region) == listed(access, region)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(1, 9), st.integers(-3, 0), boxes(1, 0, 12))
def test_windows_with_stride_dilation_and_padding_are_exact(
    k: int, stride: int, dilation: int, size: int, low: int, outputs: Box
) -> None:
    row = stride * D("p") + dilation * D("r") + low
    access = Access(("p", "r"), (row,), (Bound(row, 0, size),))
    region = Box((*outputs.lo, 0), (*outputs.hi, k)).region()
    image = image_of(access, region)
    assert image.exact
    assert points(image.region) == listed(access, region)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
def test_reshapes_of_any_rank_are_exact(shape: list[int], data: st.DataObject) -> None:
    """Row-major reshape of `shape` to any factorisation of its size, any part of the result."""
    target = data.draw(st.sampled_from(factorisations(Box.of_shape(shape).size)))
    flat, stride = Affine(), 1
    for name, extent in reversed(list(zip("abcd", target, strict=False))):
        flat, stride = flat + D(name) * stride, stride * extent
    rows: list[Affine] = []
    for extent in reversed(shape):
        rows.insert(0, flat % extent)
        flat = flat // extent
    access = Access(tuple("abcd"[: len(target)]), tuple(rows))
    lo = [data.draw(st.integers(0, n - 1)) for n in target]
    box = Box(tuple(lo), tuple(data.draw(st.integers(a + 1, n)) for a, n in zip(lo, target, strict=True)))
    image = image_of(access, box)
    truth = listed(access, box.region())
    assert truth <= points(image.region)
    if all(box.lo[k] == 0 and box.hi[k] == target[k] for k in range(1, len(target))):
        assert image.exact  # whole rows of the result: a contiguous part of memory
        assert points(image.region) == truth


def factorisations(n: int, most: int = 3) -> list[list[int]]:
    """All ways to write n as a product of up to ``most`` extents, in order."""
    divisors = [f for f in range(1, n + 1) if n % f == 0 and most > 1]
    return [[n], *([f, *rest] for f in divisors for rest in factorisations(n // f, most - 1))]


def test_mixed_signs() -> None:
    """Row [1, -1] on [0, 4)^2 has image [-3, 4)."""
    image = image_of(linear([[1, -1]], [0]), Box((0, 0), (4, 4)))
    assert (str(image.region), image.exact) == ("-3:4", True)


def test_reversal() -> None:
    assert str(image_of(linear([[-1]], [9]), Box((2,), (5,))).region) == "5:8"


def reshape(source: tuple[int, int], target: tuple[int, int]) -> Access:
    flat = target[1] * D("i") + D("j")
    assert Box.of_shape(source).size == Box.of_shape(target).size
    return Access(("i", "j"), (flat // source[1], flat % source[1]))


def test_reshape_reads_six_elements_where_its_hull_has_eight() -> None:
    image = image_of(reshape((6, 4), (8, 3)), Box((2, 0), (4, 3)))
    assert image.exact
    assert image.region.size == 6
    assert image.region.hull().size == 8
    assert points(image.region) == {(1, 2), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3)}


def test_stride_two_window_one_reads_56_elements_where_its_hull_has_111() -> None:
    image = image_of(Access(("p", "r"), (2 * D("p") + D("r"),)), Box((0, 0), (56, 1)))
    assert image.exact
    assert image.region.size == 56
    assert image.region.hull().size == 111


def test_4096_as_32_by_128_over_three_ranks() -> None:
    """The hulls of the three thirds hold 6 % more than there is."""
    access = Access(("i",), (D("i") // 128, D("i") % 128))
    images = [image_of(access, Box((r * 4096 // 3,), ((r + 1) * 4096 // 3,))) for r in range(3)]
    assert all(image.exact for image in images)
    assert sum(image.region.size for image in images) == 4096
    assert sum(image.region.hull().size for image in images) == 4352


def test_grouped_heads() -> None:
    """Query heads 3:9 in groups of 4 read key heads 0, 1 and 2."""
    access = Access(("h",), (D("h") // 4,))
    assert str(image_of(access, Box((3,), (9,))).region) == "0:3"
    strided = Grid((IntSet.of(range(0, 64, 8)),))
    assert str(image_of(access, strided).region) == "0:15:2"


def test_zigzag_and_strided_domains_stay_exact() -> None:
    zigzag = IntSet.interval(0, 8) | IntSet.interval(56, 64)
    image = image_of(Access(("p", "r"), (D("p") + D("r"),)), Grid((zigzag, IntSet.interval(0, 3))))
    assert (str(image.region), image.exact) == ("0:10|56:66", True)
    odd = Grid((IntSet.of(range(1, 1000, 2)), IntSet.interval(0, 1)))
    assert image_of(Access(("p", "r"), (2 * D("p") + D("r"),)), odd).region.size == 500


def test_causal_keys_of_a_block_of_queries() -> None:
    causal = Bound(D("s") - D("t"), None, 1)
    domain = Box((1024, 0), (2048, 8192))
    keys = image_of(Access(("t", "s"), (D("s"),), (causal,)), domain)
    queries = image_of(Access(("t", "s"), (D("t"),), (causal,)), Box((0, 1024), (8192, 2048)))
    assert (str(keys.region), keys.exact) == ("0:2048", True)
    assert (str(queries.region), queries.exact) == ("1024:8192", True)


def test_a_band_projects_exactly() -> None:
    band = Bound(D("t") - D("s"), 0, 128)
    keys = image_of(Access(("t", "s"), (D("s"),), (band,)), Box((1024, 0), (2048, 8192)))
    assert (str(keys.region), keys.exact) == ("897:2048", True)


@given(st.data())
def test_a_dimension_within_several_conditions_is_eliminated_exactly(data: st.DataObject) -> None:
    """exists s: lo <= s - t < hi, ... and s < t2 and the like: unit coefficients, so no gaps between the bounds."""
    sides = st.none() | st.integers(-4, 6)
    forms = [D("s") - D("t"), D("s") + D("t"), D("t") - D("s") + 1]
    chosen = data.draw(st.lists(st.sampled_from(forms), min_size=2, max_size=3, unique=True))
    guard = tuple(Bound(expr, data.draw(sides), data.draw(sides)) for expr in chosen)
    access = Access(("t", "s"), (D("t"),), guard)
    box = data.draw(boxes(2, -20, 30))
    image = image_of(access, box)
    assert image.exact
    assert points(image.region) == listed(access, box.region())


def test_a_triangle_is_a_hull_that_says_so() -> None:
    causal = Bound(D("s") - D("t"), None, 1)
    image = image_of(Access(("t", "s"), (D("t"), D("s")), (causal,)), Box((100, 0), (200, 1000)))
    assert not image.exact
    assert str(image.region) == "100:200,0:200"


def test_a_diagonal_is_a_hull_unless_it_is_short() -> None:
    diagonal = Access(("i",), (D("i"), D("i")))
    assert image_of(diagonal, Box((0,), (4,))).region.size == 4
    long = image_of(diagonal, Box((0,), (4000,)))
    assert not long.exact
    assert long.region.size == 4000**2


def test_bounds_of_no_row_decide_whether_there_is_anything() -> None:
    never = image_of(Access(("i", "j"), (D("i"),), (Bound(D("j") * 2, 1, 2),)), Box((0, 0), (4, 9)))
    assert (never.region, never.exact) == (Region(), True)
    even = image_of(Access(("i", "j"), (D("i"),), (Bound(D("i") - 2 * D("j"), 0, 1),)), Box((0, 0), (9, 9)))
    assert (str(even.region), even.exact) == ("0:9:2", True)


def test_no_dimensions_no_rows_no_points() -> None:
    scalar = Access((), ())
    assert image_of(scalar, Box((), ())).region.size == 1
    constant = Access(("i",), (Affine((), 7),))
    assert str(image_of(constant, Box((0,), (5,))).region) == "7:8"
    assert not image_of(constant, Box((3,), (3,))).region
    assert image_of(Access(("i",), ()), Box((0,), (5,))).region.size == 1
    assert not image_of(Access(("i",), (D("i"),)), Box((5,), (2,))).region


def test_extents_beyond_two_to_the_31() -> None:
    n = 2**40
    image = image_of(Access(("i", "j"), (2 * D("i") - D("j"),)), Box((0, 0), (n, 3)))
    assert (str(image.region), image.exact) == (f"-2:{2 * n - 1}", True)
    split = image_of(Access(("i",), (D("i") // 2**20, D("i") % 2**20)), Box((5,), (n,)))
    assert split.exact
    assert split.region.size == n - 5


@pytest.mark.parametrize(("divisor", "size"), [(3, 34), (5, 20), (7, 15)])
def test_a_bound_never_clips_an_image_to_the_tensor(divisor: int, size: int) -> None:
    """What is read outside of a shape is seen."""
    image = image_of(Access(("i",), (D("i") // divisor - 1,)), Box((0,), (100,)))
    assert image.region.hull() == Box((-1,), (size - 1,))
