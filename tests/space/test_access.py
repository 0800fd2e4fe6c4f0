"""Accesses: points, composition, isl form, and what is refused. Their images are tested in test_image.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.errors import UsageError
from tapestry.expr import Affine, Bound
from tapestry.space import Access, Box, IndexSet
from tapestry.testing.spaces import affines, boxes, points

D = Affine.dim


@given(st.data())
def test_composition_is_one_after_the_other(data: st.DataObject) -> None:
    inner = Access(("a", "b"), tuple(data.draw(st.lists(affines(("a", "b")), min_size=2, max_size=2))))
    outer = Access(("x", "y"), tuple(data.draw(st.lists(affines(("x", "y")), max_size=2))), (Bound(D("x"), -9, 9),))
    both = outer.after(inner)
    for point in points(Box((-2, -2), (3, 3)).region()):
        between = inner.at(point)
        assert between is not None
        assert both.at(point) == outer.at(between)


@given(st.data())
def test_the_isl_relation_holds_the_same_pairs(data: st.DataObject) -> None:
    dims = ("a", "b")
    rows = tuple(data.draw(st.lists(affines(dims), min_size=1, max_size=2)))
    access = Access(dims, rows, (Bound(data.draw(affines(dims)), -2, 5),))
    box = data.draw(boxes(2, -3, 4))
    image = IndexSet(tuple(f"r{k}" for k in range(len(rows))), IndexSet.of(dims, box).points.apply(access.to_isl()))
    truth = {access.at(point) for point in points(box.region())} - {None}
    assert image.count().value == len(truth)
    assert all(element in image for element in truth)


def test_matrix_form() -> None:
    access = Access.linear([[2, 1], [0, -1]], [-1, 5], dims=("p", "r"))
    assert access.rows == (2 * D("p") + D("r") - 1, 5 - D("r"))
    assert access.at((3, 2)) == (7, 3)
    assert Access.linear([], []).image(Box((), ())).region.size == 1


def test_guarded_points_touch_nothing() -> None:
    padded = Access(("p",), (D("p") - 1,), (Bound(D("p") - 1, 0, 8),))
    assert padded.at((0,)) is None
    assert padded.at((1,)) == (0,)
    assert str(padded) == "[p] -> [p - 1] where 0 <= p - 1 < 8"


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="'q' is unknown"):
        Access(("p",), (D("q"),))
    with pytest.raises(UsageError, match="named twice"):
        Access(("p", "p"), (D("p"),))
    with pytest.raises(UsageError, match="as many offsets"):
        Access.linear([[1, 2]], [0, 0])
    with pytest.raises(UsageError, match="meets a domain of 2 axes"):
        Access(("p",), (D("p"),)).image(Box((0, 0), (2, 2)))
    with pytest.raises(UsageError, match="do not compose"):
        Access(("x", "y"), (D("x"),)).after(Access(("p",), (D("p"),)))
