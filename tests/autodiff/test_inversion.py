"""Inverses of index projections, against trying every point."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.autodiff.inversion import Inverse, invert
from tapestry.expr import Affine, Bound
from tapestry.program import Dim

Point = tuple[int, ...]
A = Affine.dim


def readers(
    dims: dict[str, int], rows: Sequence[Affine], shape: Point, where: Sequence[Bound]
) -> dict[Point, set[Point]]:
    """Element -> the points that read it, by trying them all."""
    found: dict[Point, set[Point]] = {}
    for point in itertools.product(*map(range, dims.values())):
        at = dict(zip(dims, point, strict=True))
        element = tuple(row.evaluate(at) for row in rows)
        if all(bound.holds(at) for bound in where) and all(0 <= k < n for k, n in zip(element, shape, strict=True)):
            found.setdefault(element, set()).add(point)
    return found


def inverted(inverse: Inverse | None, dims: dict[str, int], shape: Point) -> tuple[dict[Point, set[Point]], int]:
    """The same by the inverse, and how many points it looks at; no point is found twice."""
    found: dict[Point, set[Point]] = {}
    looked = 0
    for element in itertools.product(*map(range, shape)) if inverse else ():
        for rest in itertools.product(*(range(dim.extent) for dim in inverse.dims)):
            looked += 1
            at = {f"e{k}": value for k, value in enumerate(element)}
            at |= {dim.name: value for dim, value in zip(inverse.dims, rest, strict=True)}
            if all(bound.holds(at) for bound in inverse.where):
                point = tuple(
                    inverse.values[name].evaluate(at) if name in inverse.values else at[name] for name in dims
                )
                assert point not in found.setdefault(element, set())
                found[element].add(point)
    return found, looked


def check(dims: dict[str, int], rows: Sequence[Affine], shape: Point, where: Sequence[Bound] = ()) -> tuple[int, int]:
    """Asserts that both agree; how many points there are, and how many the inverse looks at."""
    axes = [f"e{k}" for k in range(len(shape))]
    inverse = invert([Dim(name, extent) for name, extent in dims.items()], rows, axes, shape, where)
    wanted = readers(dims, rows, shape, where)
    found, looked = inverted(inverse, dims, shape)
    assert found == wanted
    return sum(map(len, wanted.values())), looked


@pytest.mark.parametrize(
    ("dims", "rows", "shape"),
    [
        pytest.param({"h": 3, "c": 4}, [4 * A("h") + A("c")], (12,), id="a merge of axes"),
        pytest.param({"h": 3, "c": 4}, [11 - 4 * A("h") - A("c")], (12,), id="and backwards"),
        pytest.param({"c": 24}, [A("c") // 8, (A("c") // 4) % 2, A("c") % 4], (3, 2, 4), id="a split of an axis"),
        pytest.param({"c": 12}, [A("c") // 4], (3,), id="groups"),
        pytest.param({"c": 12}, [A("c") % 4], (4,), id="a remainder"),
        pytest.param({"p": 6, "r": 2}, [2 * A("p") + A("r")], (12,), id="windows side by side"),
        pytest.param({"n": 3, "p": 5}, [A("p"), A("n")], (5, 3), id="a transposition"),
        pytest.param({"p": 5}, [4 - A("p")], (5,), id="a reversal"),
    ],
)
def test_what_has_one_solution_is_looked_at_once(dims: dict[str, int], rows: list[Affine], shape: Point) -> None:
    points, looked = check(dims, rows, shape)
    assert looked == points


def test_a_window_is_looked_at_over_its_taps_alone() -> None:
    assert check({"p": 6, "r": 3}, [A("p") + A("r")], (8,)) == (18, 8 * 3)
    assert check({"p": 6, "r": 3}, [2 * A("p") + A("r")], (13,)) == (18, 13 * 3)


def test_conditions_are_kept() -> None:
    causal = Bound(A("s") - A("t"), None, 1)
    assert check({"t": 5, "s": 5}, [A("s")], (5,), [causal])[0] == 15


@st.composite
def expressions(draw: st.DrawFn, names: tuple[str, ...], depth: int = 0) -> Affine:
    found = Affine.of(draw(st.integers(-2, 3)))
    for name in names:
        found += draw(st.sampled_from([0, 1, 1, -1, 2, 3, -2, 4])) * A(name)
    if depth < 2 and draw(st.booleans()):
        inner, divisor = draw(expressions(names, depth + 1)), draw(st.integers(2, 5))
        found += draw(st.sampled_from([1, -1, 2])) * (inner // divisor if draw(st.booleans()) else inner % divisor)
    return found // draw(st.integers(2, 4)) if draw(st.integers(0, 4)) == 0 else found


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_generated_projections(data: st.DataObject) -> None:
    dims = {name: data.draw(st.integers(1, 5)) for name in "abc"[: data.draw(st.integers(1, 3))]}
    rows = data.draw(st.lists(expressions(tuple(dims)), min_size=1, max_size=3))
    ranges = {name: (0, extent) for name, extent in dims.items()}
    shape = tuple(min(9, max(1, row.bounds(ranges)[1])) for row in rows)
    bound = st.builds(Bound, expressions(tuple(dims)), st.sampled_from([None, 0, -1]), st.sampled_from([None, 3, 5]))
    check(dims, rows, shape, data.draw(st.lists(bound, max_size=1)))
