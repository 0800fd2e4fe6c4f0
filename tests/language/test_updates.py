"""Maps that give a tensor's own elements back at most points: where else they can be."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tapestry.expr import Affine, Call, Const, Expr, IndexValue, Read
from tapestry.updates import update_of

ROW, COLUMN = Affine.dim("i"), Affine.dim("j")
OLD, NEW, AT = Read("x", (ROW, COLUMN)), Read("y", (COLUMN,)), Read("at", ())
HOLDS: dict[str, Callable[[int, int], bool]] = {
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
}


def whole(expr: Expr) -> bool:
    return expr != NEW


def computed(expr: Expr, known: dict[str, int]) -> int:
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, IndexValue):
        return sum(factor * known[str(name)] for name, factor in expr.index.terms) + expr.index.const
    if isinstance(expr, Read):
        return known[expr.tensor]
    assert isinstance(expr, Call)
    a, b = (computed(arg, known) for arg in expr.args)
    return a + b if expr.function == "add" else a - b


terms = st.builds(
    lambda i, j, n, at: Call("subtract", (IndexValue(ROW * i + COLUMN * j + n), AT if at else Const(1))),
    st.integers(-2, 2), st.integers(-1, 1), st.integers(-3, 3), st.booleans(),
)  # fmt: skip
sides = st.one_of(terms, st.integers(-4, 4).map(Const), st.just(AT))
conditions = st.lists(st.builds(Call, st.sampled_from([*HOLDS]), st.tuples(terms, sides)), min_size=1, max_size=4)


@given(conditions, st.integers(-5, 5))
def test_windows_have_all_points_at_which_conditions_hold(asked: list[Call], at: int) -> None:
    condition: Expr = asked[0]
    for other in asked[1:]:
        condition = Call("logical_and", (condition, other))
    found = update_of(Call("where", (condition, NEW, OLD)), OLD, ("i", "j"), whole)
    assert found is not None
    assert found.value == NEW
    assert len({window.dim for window in found.windows}) == len(found.windows)
    for i, j in product(range(6), range(6)):
        known = {"i": i, "j": j, "at": at}
        if all(HOLDS[one.function](*(computed(arg, known) for arg in one.args)) for one in asked):
            for window in found.windows:
                first = computed(window.first, known)
                assert first <= known[window.dim] < first + window.size


def test_a_row_at_a_place_of_the_data_has_a_window_of_one() -> None:
    difference = Call("subtract", (IndexValue(ROW), AT))
    asked = Call("logical_and", (Call("greater_equal", (difference, Const(0))), Call("less", (difference, Const(1)))))
    found = update_of(Call("where", (asked, NEW, OLD)), OLD, ("i", "j"), whole)
    assert found is not None
    [window] = found.windows
    assert (window.dim, window.size) == ("i", 1)


def test_what_is_no_update() -> None:
    """Another element in the other branch; a condition of something that is no integer has no window."""
    asked = Call("equal", (IndexValue(ROW), AT))
    assert update_of(Call("where", (asked, NEW, Read("x", (COLUMN, ROW)))), OLD, ("i",), whole) is None
    assert update_of(Call("where", (asked, OLD, NEW)), OLD, ("i",), whole) is None
    found = update_of(Call("where", (Call("equal", (IndexValue(ROW), NEW)), NEW, OLD)), OLD, ("i",), whole)
    assert found is not None
    assert found.windows == ()
