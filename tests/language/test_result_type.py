"""Dtype rules, one line each; NumPy is the oracle where it has the same rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.dtypes import DTYPES, name_of, numpy_dtype
from tapestry.errors import UsageError
from tapestry.expr import FUNCTIONS, Affine, Call, Cast, Const, Expr, IndexValue, Inside, Read
from tapestry.result_type import may_store, reduced_dtype, result_dtype

T = {name: Read(name, ()) for name in DTYPES}
OF = {name: name for name in DTYPES}


def dtype(expr: Expr) -> str:
    return result_dtype(expr, OF)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("int8", "int32"), "int32"), (("int64", "bf16"), "bf16"), (("bf16", "f16"), "f32"), (("f32", "f64"), "f64"),
        (("bool", "int8"), "int8"), (("int8", 300), "int8"), (("int8", 0.5), "f32"), (("bf16", 0.5), "bf16"),
        (("bool", 1), "int32"), (("f16", True), "f16"), ((2, 0.5), "f32"), ((2, 3), "int32"), (("int64", 1), "int64"),
    ],
)  # fmt: skip
def test_promotion(args: tuple[str | float, ...], expected: str) -> None:
    parts = tuple(T[arg] if isinstance(arg, str) else Const(arg) for arg in args)
    assert dtype(Call("add", parts)) == dtype(Call("add", parts[::-1])) == expected


@given(st.sampled_from(sorted(DTYPES)), st.sampled_from(sorted(DTYPES)))
def test_promotion_holds_both_and_agrees_with_numpy_within_a_kind(a: str, b: str) -> None:
    both = dtype(Call("maximum", (T[a], T[b])))
    assert may_store(a, both) or both == "bool"
    if DTYPES[a].kind == DTYPES[b].kind and not {"bf16", "f8e4m3", "f8e5m2"} & {a, b}:
        assert both == name_of(np.promote_types(numpy_dtype(a), numpy_dtype(b)))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Call("divide", (T["int32"], T["int8"])), "f32"),
        (Call("divide", (T["bf16"], T["int8"])), "bf16"),
        (Call("exp", (T["int64"],)), "f32"),
        (Call("exp", (T["f64"],)), "f64"),
        (Call("floor_divide", (T["int32"], Const(2))), "int32"),
        (Call("less", (T["f64"], T["int8"])), "bool"),
        (Call("where", (T["bool"], T["f16"], Const(0))), "f16"),
        (Call("where", (T["bool"], Const(1), Const(0))), "int32"),
        (Call("logical_and", (T["bool"], Const(True))), "bool"),
        (Cast("int8", T["f64"]), "int8"),
        (Call("add", (Cast("f16", Const(1)), T["int8"])), "f16"),
        (IndexValue(Affine.dim("n")), "int64"),
        (Call("multiply", (IndexValue(Affine.dim("n")), T["bf16"])), "bf16"),
        (Inside(()), "bool"),
    ],
)
def test_rules(expr: Expr, expected: str) -> None:
    assert dtype(expr) == expected


@pytest.mark.parametrize(
    "expr",
    [
        Call("logical_and", (T["bool"], T["int8"])),
        Call("logical_not", (T["f32"],)),
        Call("where", (T["int8"], T["f32"], T["f32"])),
        Call("add", (T["bool"], T["bool"])),
        Call("subtract", (T["bool"], Const(True))),
        Call("negative", (T["bool"],)),
        Cast("f32", Call("multiply", (T["bool"], T["bool"]))),
    ],
)
def test_what_means_nothing_is_refused(expr: Expr) -> None:
    with pytest.raises(UsageError, match="has no meaning for") as caught:
        dtype(expr)
    assert caught.value.hint


def test_every_function_has_a_rule() -> None:
    for function in FUNCTIONS.values():
        kind = "bool" if function.name.startswith("logical") else "int32" if function.integers else "f32"
        first = T["bool"] if function.name == "where" else T[kind]
        found = dtype(Call(function.name, (first, *[T[kind]] * (function.arity - 1))))
        assert found in ((function.result,) if function.result in DTYPES else (kind, "bool"))


def test_folds() -> None:
    assert [reduced_dtype("sum", d) for d in ("bool", "int8", "int64", "bf16")] == ["int32", "int32", "int64", "bf16"]
    assert [reduced_dtype("max", d) for d in ("bool", "int8")] == ["bool", "int8"]
    assert reduced_dtype("any", "bool") == "bool"
    with pytest.raises(UsageError, match="all has no meaning for int8"):
        reduced_dtype("all", "int8")


def test_what_may_be_stored_without_a_cast() -> None:
    stored = {
        (a, b) for a in ("bool", "int8", "f32", "bf16") for b in ("bool", "int8", "f32", "bf16") if may_store(a, b)
    }
    assert stored == {
        ("bool", "bool"), ("bool", "int8"), ("bool", "f32"), ("bool", "bf16"), ("int8", "int8"), ("int8", "f32"),
        ("int8", "bf16"), ("f32", "f32"), ("f32", "bf16"), ("bf16", "f32"), ("bf16", "bf16"),
    }  # fmt: skip
