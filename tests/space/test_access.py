"""Accesses: points, isl form, and what is refused. Their images are tested in test_image.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.errors import UsageError
from tapestry.expr import Affine, Bound
from tapestry.space import Access, IndexSet
from tapestry.testing.spaces import affines, boxes, points

from .accesses import at

D = Affine.dim


@given(st.data())
def test_the_isl_relation_holds_the_same_pairs(data: st.DataObject) -> None:
    dims = ("a", "b")
    rows = tuple(data.draw(st.lists(affines(dims), min_size=1, max_size=2)))
    access = Access(dims, rows, (Bound(data.draw(affines(dims)), -2, 5),))
    box = data.draw(boxes(2, -3, 4))
    image = IndexSet(tuple(f"r{k}" for k in range(len(rows))), IndexSet.of(dims, box).points.apply(access.to_isl()))
    truth = {at(access, point) for point in points(box.region())} - {None}
    assert image.count().value == len(truth)
    assert all(element in image for element in truth)


def test_guarded_points_touch_nothing() -> None:
    padded = Access(("p",), (D("p") - 1,), (Bound(D("p") - 1, 0, 8),))
    assert at(padded, (0,)) is None
    assert at(padded, (1,)) == (0,)
    assert str(padded) == "[p] -> [p - 1] where 0 <= p - 1 < 8"


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="'q' is unknown"):
        Access(("p",), (D("q"),))
    with pytest.raises(UsageError, match="named twice"):
        Access(("p", "p"), (D("p"),))
