"""Ranges of indices: an output has the largest that fits, and anything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, num
from tapestry.dsl.define import define
from tapestry.dsl.trace import Trace, tracing
from tapestry.testing import outputs_of

from .ranges import counting, ranges_of, refused

# --- outputs --------------------------------------------------------------------------------------------------------


def test_where_conditions_widen_an_output() -> None:
    """Full convolution: every read that the condition admits is inside, up to the last product."""

    @tp.op
    def full(x: num[Tensor, "n"], w: num[Tensor, "m"]) -> num[Tensor, "t"]:
        t, s = tp.indices("t s")
        return tp.sum[s](x[t - s] * w[s], where=(s <= t) & (t - s < x.shape[0]) & (t < x.shape[0] + w.shape[0] - 1))

    x, w = counting(6), counting(3)
    with pytest.raises(tp.UsageError, match="nothing bounds the index t"):  # no read happens beyond
        outputs_of(full, x=x, w=w)


def test_an_output_whose_range_does_not_start_at_0_is_refused() -> None:
    @tp.op
    def shifted(x: num[Tensor, "n"], w: num[Tensor, "m"]) -> num[Tensor, "p"]:
        p, r = tp.indices("p r")
        return tp.sum[r](x[p - r] * w[r])

    says = ": the range of the output index p has two readings"
    said = refused(shifted, tp.UsageError, 3, says, x=counting(8), w=counting(3))
    assert "x[p - r]" in said
    assert "p in [2, 7]" in said
    assert "p=0" in said
    assert "tp.indices(p=...)" in said


def test_an_output_whose_range_has_holes_is_refused() -> None:
    @tp.op
    def wrapped(x: num[Tensor, "n"]) -> num[Tensor, "p"]:
        p = tp.indices("p")
        return x[p % 5]

    with pytest.raises(tp.UsageError, match="two readings"):
        outputs_of(wrapped, x=counting(3))
    with pytest.raises(tp.UsageError, match="nothing bounds the index p"):
        outputs_of(wrapped, x=counting(5))


def test_an_output_that_only_guarded_reads_use_is_refused_with_both_readings() -> None:
    @tp.op
    def guarded(x: num[Tensor, "n"]) -> num[Tensor, "p"]:
        p = tp.indices("p")
        return x.get[2 * p]

    with pytest.raises(tp.UsageError) as caught:
        outputs_of(guarded, x=counting(9))
    said = str(caught.value)
    assert "nothing bounds the index p" in said
    assert "x.get[2*p]" in said
    assert "p in [0, 4]" in said


def test_mixed_signs_and_mods_are_exact() -> None:
    @tp.op
    def interleaved(x: num[Tensor, "n"], y: num[Tensor, "m"]) -> num[Tensor, "p"]:
        p, r = tp.indices("p", r=2)
        return tp.sum[r](x[p // 2 + p % 2] + y[p - p // 2 * 2 + r])

    assert ranges_of(interleaved, x=counting(4), y=counting(3)) == {"p": 7, "r": 2}


def test_two_outputs_that_bound_one_another_are_refused() -> None:
    @tp.op
    def hankel(x: num[Tensor, "n"]) -> num[Tensor, "p q"]:
        p, q = tp.indices("p q")
        return x[p + q]

    @tp.op
    def weighted(x: num[Tensor, "n"], a: num[Tensor, "i"], b: num[Tensor, "j"]) -> num[Tensor, "p q"]:
        p, q = tp.indices("p q")
        return x[p + q] * a[p] * b[q]

    with pytest.raises(tp.UsageError, match="nothing bounds the index"):
        outputs_of(hankel, x=counting(7))
    assert ranges_of(weighted, x=counting(8), a=counting(5), b=counting(4)) == {"p": 5, "q": 4}
    with pytest.raises(tp.UsageError) as caught:
        outputs_of(weighted, x=counting(7), a=counting(5), b=counting(4))
    assert "two readings" in str(caught.value)
    assert "x[p + q]" in str(caught.value)
    assert "p=5 q=3" in str(caught.value)
    assert "p=4 q=4" in str(caught.value)


def test_a_window_wider_than_its_image_is_an_error_not_a_range_of_one() -> None:
    @tp.op
    def window(x: num[Tensor, "n"], w: num[Tensor, "m"]) -> num[Tensor, "p"]:
        p, r = tp.indices("p r")
        return tp.sum[r](x[p + r] * w[r])

    with pytest.raises(tp.ReadOutOfBounds, match=r"reads x\[p \+ r\] outside its shape"):
        outputs_of(window, x=counting(3), w=counting(4))


def test_a_choice_guards_the_reads_of_its_branches() -> None:
    @tp.op
    def shifted(x: num[Tensor, "n"]) -> num[Tensor, "p"]:
        p = tp.indices("p")
        return tp.where(p >= 2, x[p - 2], 7)

    np.testing.assert_array_equal(outputs_of(shifted, x=counting(3))[0], [7, 7, 1, 2, 3])


def test_a_choice_guards_no_more_than_it_says() -> None:
    @tp.op
    def shifted(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
        n = tp.indices("n")
        return tp.where(n >= 1, x[n - 2], x[n])

    with pytest.raises(tp.ReadOutOfBounds, match=r"reads x\[n - 2\] outside its shape") as caught:
        outputs_of(shifted, x=counting(3))
    assert "d0=-1  from n=1" in str(caught.value)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda x, n: None, "the operation returns None"),
        (lambda x, n: x, "the operation returns <x int32"),
        (lambda x, n: tp.sum[n], "the operation returns tp.sum[n]"),
        (lambda x, n: [x[n]], "the operation returns [x[n]] (list)"),
        (lambda x, n: tp.sum[n](x[n], x[n]), "tp.sum[n] takes one expression"),
        (lambda x, n: tp.sum[n](x[n], axis=0), "given   axis="),
        (lambda x, n: x[next(iter(n))], "the index n is not several"),
        (lambda x, n: x[5 // n], "5 // (n) divides by an index"),
        (lambda x, n: x[n % 0], "an index is divided by 0"),
    ],
)
def test_what_is_no_expression_is_refused(returned: Callable[..., Any], said: str) -> None:
    @tp.op
    def f(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
        found: Tensor = returned(x, tp.indices("n"))
        return found

    with pytest.raises(tp.UsageError) as caught:
        outputs_of(f, x=counting(3))
    assert said in str(caught.value)


def test_wrong_output_axes_are_refused() -> None:
    @tp.op
    def shorter(x: num[Tensor, "n"]) -> num[Tensor, "p=n-3"]:
        return x[tp.indices("p")]

    @tp.op
    def divided(x: num[Tensor, "n"], *, k: int = 0) -> num[Tensor, "p=n//k"]:
        return x[tp.indices("p")]

    @tp.op
    def unknown(x: num[Tensor, "n"]) -> num[Tensor, "p=n*m"]:
        return x[tp.indices("p")]

    @tp.op
    def repeated(x: num[Tensor, "n"]) -> num[Tensor, "n n"]:
        return x[tp.indices("n")]

    for call, said in [
        (shorter, "the output axis p=n-3 has the extent -1"),
        (divided, "n // k divides 2 by 0"),
        (unknown, "speaks of m, which no operand or setting has"),
        (repeated, "names the axis n twice"),
    ]:
        with pytest.raises(tp.UsageError) as caught:
            outputs_of(call, x=counting(2))
        assert said in str(caught.value)


# --- empty tensors --------------------------------------------------------------------------------------------------

EMPTY: list[tuple[dict[str, tuple[int, ...]], Callable[..., Any], tuple[int, ...]]] = [
    ({"a": (0,)}, lambda p, k, a: a[p], (0,)),
    ({"a": (0,)}, lambda p, k, a: a[p // 2], (0,)),
    ({"a": (0,)}, lambda p, k, a: a[p + 1], (0,)),
    ({"a": (0,)}, lambda p, k, a: a[p % 3], (0,)),
    ({"a": (4,), "w": (0,)}, lambda p, k, a, w: a[p] * tp.sum[k](w[k]), (4,)),
    ({"a": (0,), "w": (3,)}, lambda p, k, a, w: tp.sum[k](a[p + k] * w[k]), (0,)),
    ({"a": (0,), "w": (3,)}, lambda p, k, a, w: tp.sum[k](a[p - k] * w[k], where=k <= p), (0,)),
    ({"a": (5, 0), "w": (0,)}, lambda p, k, a, w: tp.sum[k](a[p, k] * w[k]), (5,)),
]


@pytest.mark.parametrize(("shapes", "body", "want"), EMPTY)
def test_ranges_over_empty_tensors(
    shapes: dict[str, tuple[int, ...]], body: Callable[..., Any], want: tuple[int, ...]
) -> None:
    with tracing(Trace("empty")) as trace:
        axes = {name: [f"d{k}" for k in range(len(shape))] for name, shape in shapes.items()}
        tensors = [trace.add_tensor(name, "f32", shape, axes[name], "input") for name, shape in shapes.items()]
        p, k = tp.indices("p k")
        assert define("f", [p], body(p, k, *tensors)).shape == want


def test_a_fold_of_nothing_bounds_no_output() -> None:
    with tracing(Trace("empty")) as trace:
        a, w = (trace.add_tensor(name, "f32", (extent,), ["d"], "input") for name, extent in (("a", 4), ("w", 0)))
        p, k = tp.indices("p k")
        with pytest.raises(tp.UsageError, match="nothing bounds the index p"):
            define("f", [p], tp.sum[k](a[p + k] * w[k]))
