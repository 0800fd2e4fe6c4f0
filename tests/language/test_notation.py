"""The algebra of expressions: what it looks like, and that reading gives back what was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.dtypes import DTYPES
from tapestry.errors import UsageError
from tapestry.expr import FUNCTIONS, Affine, Bound, Call, Cast, Const, Expr, IndexValue, Inside, Read
from tapestry.notation import format_expr
from tapestry.parse import parse_bound, parse_expr, parse_read

N, P, R = map(Affine.dim, "npr")
X, W = Read("x", (N,)), Read("layers.0.w", (N, 2 * P + R))
names = st.sampled_from(["n", "p", "q", "long_name"])
numbers = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False))


@st.composite
def affines(draw: st.DrawFn, depth: int = 2) -> Affine:
    index = Affine.of(draw(st.integers(-(2**40), 2**40)))
    for _ in range(draw(st.integers(0, 3))):
        factor = draw(st.integers(-9, 9))
        if depth and draw(st.booleans()):
            index += draw(affines(depth - 1)) // draw(st.integers(1, 2**33)) * factor
        else:
            index += Affine.dim(draw(names)) * factor
    return index


sides = st.one_of(st.none(), st.integers())
bounds = st.builds(Bound, affines(1), sides, sides)
guards = st.lists(bounds, max_size=3).map(tuple)
reads = st.builds(
    Read, st.sampled_from(["x", "layers.0.wq", "_t"]), st.lists(affines(), max_size=3).map(tuple), guards, numbers
)
leaves = st.one_of(
    numbers.map(Const), reads.filter(lambda r: r.guard or (r.fill == 0 and type(r.fill) is int)),
    affines().map(IndexValue), guards.map(Inside),
)  # fmt: skip


def calls(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def of(function: str) -> st.SearchStrategy[Expr]:
        arity = FUNCTIONS[function].arity
        return st.lists(inner, min_size=arity, max_size=arity).map(lambda args: Call(function, tuple(args)))

    cast = st.builds(Cast, st.sampled_from(sorted(DTYPES)), inner)
    return st.one_of(cast, st.sampled_from(sorted(FUNCTIONS)).flatmap(of))


@given(st.recursive(leaves, calls, max_leaves=12))
def test_expressions_read_back(expr: Expr) -> None:
    text = format_expr(expr)
    again = parse_expr(text)
    assert again == expr
    assert repr(again) == repr(expr), text  # 1, 1.0 and True are equal to Python


@given(affines(), bounds)
def test_indices_and_bounds_read_back(index: Affine, bound: Bound) -> None:
    assert parse_expr(f"index({index})") == IndexValue(index)
    assert parse_bound(str(bound)) == bound


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Call("multiply", (Call("add", (X, Const(1))), W)), "(x[n] + 1) * layers.0.w[n, 2*p + r]"),
        (Call("subtract", (X, Call("subtract", (X, X)))), "x[n] - (x[n] - x[n])"),
        (Call("power", (Call("power", (X, X)), X)), "(x[n] ** x[n]) ** x[n]"),
        (Call("negative", (Call("power", (X, Const(2))),)), "-x[n] ** 2"),
        (Call("negative", (Const(2),)), "negative(2)"),
        (Call("multiply", (X, Const(-0.5))), "x[n] * (-0.5)"),
        (Call("less", (Call("less", (X, X)), X)), "(x[n] < x[n]) < x[n]"),
        (Read("x", (N - 1,), (Bound(N - 1, 0, None),), 0.0), "(x[n - 1] if 0 <= n - 1 else 0.0)"),
        (Call("where", (Inside((Bound(P - R, None, 1),)), X, Const(float("-inf")))), "where([p - r < 1], x[n], -inf)"),
        (Cast("f32", IndexValue(P % 4)), "f32(index(p % 4))"),
        (Read("s", ()), "s[]"),
        (IndexValue(-(P // 4)), "index(-(p//4))"),
    ],
)
def test_what_it_looks_like(expr: Expr, text: str) -> None:
    assert format_expr(expr) == text
    assert repr(parse_expr(text)) == repr(expr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a value"),
        ("x[n", "']'|','"),
        ("x[n] +", "a value"),
        ("x[n] x", "the end"),
        ("exp(x[n], x[n])", "a known function instead of exp with 2 arguments"),
        ("launch(x[n])", "a known function instead of launch"),
        ("x[n*n]", "a quasi-affine index"),
        ("x[n // 0]", "a quasi-affine index"),
        ("x[n.m]", "an index"),
        ("x[0.5]", "an index"),
        ("1 < 2 < 3", "no second comparison"),
        ("(x[n] + 1 if 0 <= n else 0)", "a plain read before 'if'"),
        ("(x[n] if n <= n else 0)", "an integer on that side"),
        ("(x[n] if 0 <= n)", "'else'"),
        ("x[n] ; y[n]", "a name, a number or an operator"),
        ("lambda x", "'\\('"),
    ],
)
def test_malformed_text_is_refused_with_its_position(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=f"expected ({expected}).* at position") as caught:
        parse_expr(text)
    assert ">>>" in str(caught.value)


def test_deep_nesting_is_read_and_that_of_an_index_refused() -> None:
    with pytest.raises(UsageError, match="expected a value at position 100000"):
        parse_expr("(" * 100_000)
    with pytest.raises(UsageError, match="nested too deeply"):
        parse_expr("x[" + "(" * 100_000)


def test_only_a_read_is_a_read() -> None:
    with pytest.raises(UsageError, match="is not a read"):
        parse_read("x[n] + 1")
