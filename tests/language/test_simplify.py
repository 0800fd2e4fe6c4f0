"""Simplified index expressions against direct evaluation at every point."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.expr import Affine, Bound, Const, Inside, Read
from tapestry.expr.simplify import simplify, simplify_bounds, simplify_index

DIMS = ("a", "b", "c")
RANGES = {"a": (0, 5), "b": (0, 1), "c": (0, 7)}
A, B, C = map(Affine.dim, DIMS)


def points() -> list[dict[str, int]]:
    axes = [range(*RANGES[name]) for name in DIMS]
    return [dict(zip(DIMS, point, strict=True)) for point in product(*axes)]


@st.composite
def indices(draw: st.DrawFn, depth: int = 3) -> Affine:
    """Sums of dimensions, floors and remainders, nested."""
    index = Affine.of(draw(st.integers(-6, 6)))
    for _ in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            inner, divisor = draw(indices(depth - 1)), draw(st.integers(1, 12))
            term = inner // divisor if draw(st.booleans()) else inner % divisor
        else:
            term = Affine.dim(draw(st.sampled_from(DIMS)))
        index += term * draw(st.integers(-12, 12))
    return index


@given(indices())
def test_the_value_stays_the_same_everywhere(index: Affine) -> None:
    simple = simplify_index(index, RANGES)
    assert all(simple.evaluate(point) == index.evaluate(point) for point in points())


@given(indices())
def test_simplifying_again_changes_no_value_and_adds_no_floors(index: Affine) -> None:
    simple = simplify_index(index, RANGES)
    assert str(simplify_index(simple, RANGES)).count("//") <= str(simple).count("//")


@given(st.lists(st.tuples(indices(1), st.integers(-9, 9), st.integers(-9, 9)), max_size=3))
def test_bounds_hold_at_the_same_points(rows: list[tuple[Affine, int, int]]) -> None:
    bounds = tuple(Bound(expr, lo, hi) for expr, lo, hi in rows)
    simple = simplify_bounds(bounds, RANGES)
    for point in points():
        holds = simple is not None and all(bound.holds(point) for bound in simple)
        assert holds == all(bound.holds(point) for bound in bounds)


@given(indices(2), st.none() | st.integers(-30, 30), st.none() | st.integers(-30, 30))
def test_a_decided_bound_holds_at_every_point_or_at_none(index: Affine, lo: int | None, hi: int | None) -> None:
    bound = Bound(index, lo, hi)
    verdict = bound.decided(RANGES)
    assert verdict is None or all(bound.holds(point) == verdict for point in points())


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ((7 * A + C) // 7, "a"),
        ((7 * A + C) % 7, "c"),
        ((2 * (7 * A + C)) // 14, "a"),
        (((7 * A + C) // 7) % 5, "a"),
        ((35 * B + 7 * A + C) // 35, "0"),
        (((35 * B + 7 * A + C) // 7) % 5, "a"),
        ((C // 2) // 3, "c//6"),
        (C // 3 + B, "c//3"),
        ((6 * A + 2 * B + C + 3) // 3, "2*a + c//3 + 1"),
        (B, "0"),
        ((11 * A - 11 * C + 4) // 8 - A + C, "(3*a - 3*c + 4)//8"),
        ((8 * A + C) // 6, "(8*a + c)//6"),
        (C + B, "c"),
    ],
)
def test_floors_that_the_ranges_decide_vanish(index: Affine, expected: str) -> None:
    assert str(simplify_index(index, RANGES)) == expected


def test_a_dimension_of_one_value_keeps_its_name_where_it_stands_alone_in_a_program() -> None:
    assert str(simplify(Read("x", (B, B + 1, B // 2)), RANGES)) == "x[b, 1, 0]"


def test_a_read_that_is_never_inside_is_its_fill() -> None:
    read = Read("x", (A,), (Bound(A, 5, None),), fill=2.5)
    assert simplify(read, RANGES) == Const(2.5)


@pytest.mark.parametrize(
    ("lo", "hi", "expected"),
    [(64, None, (1, None)), (None, 64, (None, 1)), (64, 192, (1, 3)), (65, None, None), (1, 64, None)],
)
def test_what_cannot_decide_a_bound_is_gone(lo: int | None, hi: int | None, expected: tuple[int | None, ...]) -> None:
    """64*q + r in lo:hi, 0 <= r < 64."""
    q, r = Affine.dim("q"), Affine.dim("r")
    [found] = simplify_bounds((Bound(64 * q + r, lo, hi),), {"q": (0, 4), "r": (0, 64)}) or ()
    kept = Bound(64 * q + r, lo, hi)
    assert found == (kept if expected is None else Bound(q, *expected))


def test_conditions_that_are_decided_are_constants() -> None:
    assert simplify(Inside((Bound(A, 0, 5),)), RANGES) == Const(True)
    assert simplify(Inside((Bound(A, 7, None),)), RANGES) == Const(False)
    assert simplify(Inside((Bound(A, 0, 3), Bound(C, 0, None))), RANGES) == Inside((Bound(A, None, 3),))
