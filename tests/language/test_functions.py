"""The table of scalar functions: every entry is whole, and its parts agree with one another."""

from __future__ import annotations

import numpy as np
import pytest

from tapestry.expr import FUNCTIONS, Call, Cast, Const, Function, Read, add_function
from tapestry.expr.derivatives import partials
from tapestry.reference.expressions import Value, call
from tapestry.reference.monoids import interpret

SMOOTH = [name for name, function in FUNCTIONS.items() if function.derivative is not None]
# A point of each argument, away from corners and jumps.
POINTS = {"where": (1.0, 0.7, 1.3), "log": (0.8,), "power": (1.7, 2.3), "acosh": (1.8,), "normal_quantile": (0.2,)}
DEFAULT = (0.37, 1.9, 0.6)


def value_of(name: str, *args: float) -> float:
    whole = FUNCTIONS[name].integers
    arrays = [np.asarray(int(10 * arg) if whole else arg) for arg in args]
    fixed = {"bool": bool, "int64": np.int64}.get(FUNCTIONS[name].result)
    out = np.empty((), fixed or (np.int64 if whole else np.float64))
    if name == "where":
        arrays[0] = arrays[0] != 0
    FUNCTIONS[name].compute(*arrays, out=out)
    return float(out)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_numpy_body_takes_the_arity(name: str) -> None:
    assert np.isfinite(value_of(name, *POINTS.get(name, DEFAULT)[: FUNCTIONS[name].arity]))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_cuda_body_names_each_argument(name: str) -> None:
    function = FUNCTIONS[name]
    for body in (function.cuda, function.cuda_quick):
        if body is not None:
            assert all(f"{{{k}}}" in body for k in range(function.arity))
            assert f"{{{function.arity}}}" not in body


@pytest.mark.parametrize("name", SMOOTH)
def test_the_derivative_is_the_limit_of_differences(name: str) -> None:
    at = POINTS.get(name, DEFAULT)[: FUNCTIONS[name].arity]
    reads = [Read(str(k), ()) for k in range(len(at))]
    found = partials(FUNCTIONS[name], *reads)
    assert found is not None
    assert len(found) == len(at)
    named = {str(k): Value(np.asarray(x), "f64") for k, x in enumerate(at)}
    if name == "where":
        named["0"] = Value(np.asarray(True), "bool")
    for k in range(name == "where", len(at)):
        step = 1e-6
        up, down = ([*at[:k], at[k] + h, *at[k + 1 :]] for h in (step, -step))
        slope = (value_of(name, *up) - value_of(name, *down)) / (2 * step)
        assert float(interpret(found[k], named).array) == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_comparisons_have_no_derivative() -> None:
    assert partials(FUNCTIONS["less"], Const(1), Const(2)) is None


def test_a_name_or_an_operator_is_taken_once() -> None:
    with pytest.raises(ValueError, match="there already: exp"):
        add_function(Function("exp", 1, "numpy:exp", "exponential({0})"))
    with pytest.raises(ValueError, match="there already: add"):
        add_function(Function("plus", 2, "numpy:add", "add({0}, {1})", symbol="+"))


def test_a_call_and_a_conversion_of_the_same_are_two_things() -> None:
    x = Read("x", ())
    one, other = Call("add", (Call("exp", (x,)), x)), Call("add", (Cast("f32", x), x))
    assert one != other
    assert Cast("f32", x) != Call("exp", (x,))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_ordered_integers_stand_in_the_order_of_the_numbers(dtype: str) -> None:
    kind = np.dtype({"f32": np.float32, "f64": np.float64}[dtype])
    tiny, huge = np.finfo(kind).smallest_subnormal, np.finfo(kind).max
    rising = np.array([-np.inf, -huge, -1.5, -1, -tiny, 0, tiny, 1, 1.5, huge, np.inf, np.nan], kind)
    both = np.concatenate([rising, -rising[-1:], np.array([-0.0], kind)])
    out = np.empty(both.shape, np.int64)
    FUNCTIONS["ordered"].compute(both, out=out)
    oracle = call("ordered", [Value(both, dtype)])
    assert (np.diff(out[:12]) > 0).all()
    assert out[12] == out[11]
    assert out[13] == out[5] == 0
    assert oracle.dtype == "int64"
    assert np.array_equal(oracle.array, out)
