"""Folds of several results: what they store, which of them are refused, and the order that the largest come in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.dtypes import numpy_dtype
from tapestry.errors import ProgramError, UsageError
from tapestry.expr import MONOIDS, Affine, Call, Component, Monoid, Read, add_monoid
from tapestry.ops import ordering
from tapestry.program import Dim, Program
from tapestry.reference import evaluate
from tapestry.testing import check_monoid, program_of
from tapestry.verify import verify


@tp.program
def statistics(x: f32[Tensor, "n k"]) -> tuple[Tensor, ...]:
    return tp.components("moments", x, "k")


def test_the_results_are_views_of_one_fold() -> None:
    program = statistics.bind(n=3, k=8)
    fold = program.operations[0]
    assert fold.monoid == "moments"
    assert fold.record_dim == fold.dims[1].name
    assert fold.dims[1] == Dim("result", 3, cut=False)
    assert fold.idle == 3
    assert program.tensor(fold.output).shape == (3, 3)
    assert [op.monoid for op in program.operations[1:]] == [None] * 3


def test_the_text_of_a_fold_of_several_results_is_read_back() -> None:
    program = program_of(lambda x: tp.topk(x, 5), x=np.zeros((2, 9), np.float32))
    assert tp.parse(str(program)) == program


@pytest.mark.parametrize("name", ["moments", "minmax", "top1", "top2", "top7", "top64"])
def test_every_monoid_of_several_results_keeps_its_laws(name: str) -> None:
    check_monoid(name)


def test_a_family_has_no_other_members() -> None:
    assert "top64" in MONOIDS
    assert [name for name in ("top", "top0", "top65", "top07", "sum2") if name in MONOIDS] == []
    with pytest.raises(KeyError, match="top65"):
        MONOIDS["top65"]


def test_a_step_that_is_not_what_combine_comes_to_is_found() -> None:
    first, second = MONOIDS["top2"].components
    wrong = Call("maximum", (Read("a.place1", ()), Read("b.place0", ())))
    with pytest.raises(AssertionError, match="a step to b = a b fails at a="):
        check_monoid(replace(MONOIDS["top2"], components=(first, replace(second, step=wrong))))


# -- what is refused ---------------------------------------------------------------------------------------------------


def changed(**parts: Any) -> Program:
    """The program of statistics with another fold."""
    program = statistics.bind(n=3, k=8)
    first, *others = program.operations
    return replace(program, operations=(replace(first, **parts), *others))


def test_the_dimension_of_the_results_is_as_long_as_they_are_many_and_is_not_cut() -> None:
    n, result, k = statistics.bind(n=3, k=8).operations[0].dims
    with pytest.raises(ProgramError, match="moments has several results") as caught:
        verify(changed(dims=(n, replace(result, cut=True), k)))
    assert "a dimension of extent 3 that may not be cut" in str(caught.value)


def test_what_is_folded_is_the_same_for_all_results() -> None:
    body = Read("x", (Affine.dim("n"), Affine.dim("result")))
    with pytest.raises(ProgramError, match="what is folded depends on result"):
        verify(changed(body=body))


def test_records_are_kept_in_the_dtype_of_the_results() -> None:
    with pytest.raises(ProgramError, match="the record has components of another dtype") as caught:
        program_of(lambda x: tp.components("moments", x, 1, dtype="f16"), x=np.zeros((2, 3), np.float16))
    assert "declare the result as f32" in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tp.components("sum", x, 1), "'sum' is no monoid of several results"),
        (lambda x: tp.components("monents", x, 1), "moments"),
        (lambda x: tp.topk(x, 10), "topk takes from 1 to 9 elements of this axis"),
        (lambda x: tp.bincount(x, 3), "bincount counts integers"),
        (lambda x: tp.histogram(x, 0, 0.0, 1.0), "at least one bin"),
        (lambda x: tp.var_mean(x, 1, correction=9), "nothing is left to divide by"),
    ],
)
def test_bad_calls_are_refused(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        program_of(call, x=np.zeros((2, 9), np.float32))


def test_a_monoid_of_ones_own_may_have_several_results() -> None:
    """The sum and the sum of squares."""
    name = "sum_and_squares"

    def part(which: str) -> Call:
        return Call("add", (Read(f"a.{which}", ()), Read(f"b.{which}", ())))

    x = Read("x", ())
    mine = Monoid(
        name,
        (
            Component("sum", "stored", 0, part("sum")),
            Component("squares", "stored", 0, part("squares"), Call("multiply", (x, x))),
        ),
        None,
    )
    check_monoid(mine)
    add_monoid(mine)
    try:
        values = np.arange(12.0).reshape(3, 4)
        program = program_of(lambda x: tp.components(name, x, 0, keepdims=True), x=values)
        total, squares = (evaluate(program, {"x": values})[out] for out in program.outputs)
    finally:
        del MONOIDS[name]
    assert np.array_equal(total, values.sum(0, keepdims=True))
    assert np.array_equal(squares, (values**2).sum(0, keepdims=True))


# -- order -------------------------------------------------------------------------------------------------------------

SPECIAL = [float("nan"), float("-nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-42, -1e-42, 2.5, -2.5]


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "uint32", "int64", "bf16", "f16", "f32", "f64"])
def test_the_order_is_that_of_a_stable_sort(dtype: str, network: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rising and falling, equals in their order, NaN above all numbers; by a fold, by counting and by the network."""
    size = 11
    if network:
        monkeypatch.setattr(ordering, "MOST_PLACES", 4)
        monkeypatch.setattr(ordering, "FEW", 4)
    kind, rng = numpy_dtype(dtype), np.random.default_rng(size)
    if kind.kind in "biu":
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        x = rng.choice(np.array([low, high, 0, 1, 5 % (int(high) + 1), high // 2], object), size).astype(kind)
    else:
        x = rng.choice(SPECIAL, size).astype(kind)
    wide = x.astype(np.float64) if kind.kind not in "biu" else x.astype(object)
    rising = sorted(range(size), key=lambda i: (wide[i] != wide[i], 0 if wide[i] != wide[i] else wide[i], i))
    falling = sorted(range(size), key=lambda i: (wide[i] == wide[i], 0 if wide[i] != wide[i] else -wide[i], i))
    program = program_of(lambda x: (tp.argsort(x), tp.argsort(x, descending=True)), x=x)
    found = evaluate(program, {"x": x})
    assert [found[name].tolist() for name in program.outputs] == [rising, falling]
