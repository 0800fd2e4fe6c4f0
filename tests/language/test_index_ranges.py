"""Ranges of indices: folds have the extent said or read, outputs the largest that fits, anything else is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, int32, num
from tapestry.dsl.define import define
from tapestry.dsl.trace import Trace, tracing
from tapestry.program import Operation
from tapestry.testing import outputs_of, program_of


def counting(*shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape, dtype=int)) + 1).reshape(shape).astype(np.int32)


def ranges_of(call: Callable[..., Any], **arrays: np.ndarray) -> dict[str, int]:
    """Extents of the last operation's dimensions."""
    operation: Operation = program_of(call, **arrays).operations[-1]
    return operation.extents


# --- folds ----------------------------------------------------------------------------------------------------------


@tp.op
def two_sums(a: num[Tensor, "n"], b: num[Tensor, "m"]) -> num[Tensor, ""]:
    i = tp.indices("i")
    return tp.sum[i](a[i]) + tp.sum[i](b[i])


def test_the_same_letter_in_two_folds_is_two_indices() -> None:
    (got,) = outputs_of(two_sums, a=np.ones(5, np.int32), b=np.ones(3, np.int32))
    assert got == 8


def test_a_fold_inside_a_fold_may_use_its_letter_again() -> None:
    @tp.op
    def nested(a: num[Tensor, "n"], b: num[Tensor, "m"]) -> num[Tensor, ""]:
        i = tp.indices("i")
        return tp.sum[i](a[i] * tp.max[i](b[i]))

    a, b = counting(5), counting(3)
    assert outputs_of(nested, a=a, b=b)[0] == a.sum() * b.max()


def test_a_fold_may_use_the_letter_of_an_output_axis() -> None:
    @tp.op
    def shares(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
        n = tp.indices("n")
        return x[n] / tp.sum[n](x[n])

    x = np.array([1, 2, 5], np.float32)
    np.testing.assert_allclose(outputs_of(shares, x=x)[0], x / x.sum())


def test_an_output_index_that_is_only_folded_is_refused() -> None:
    @tp.op
    def total(x: num[Tensor, "n m"]) -> num[Tensor, "n"]:
        n, m = tp.indices("n m")
        return tp.sum[m](tp.max[n](x[n, m]))

    line = total.function.__code__.co_firstlineno + 3
    with pytest.raises(tp.UsageError) as caught:
        outputs_of(total, x=counting(2, 3))
    said = str(caught.value)
    assert said.startswith(
        f"total (test_index_ranges.py:{line}): the output index n is folded, and occurs nowhere else"
    )
    assert "sum[m](max[n](x[n, m]))" in said


def test_a_fold_used_twice_is_one_operation() -> None:
    @tp.op
    def squared(x: num[Tensor, "n k"]) -> num[Tensor, "n"]:
        n, k = tp.indices("n k")
        total = tp.sum[k](x[n, k])
        return total * total

    x = counting(3, 4)
    np.testing.assert_array_equal(outputs_of(squared, x=x)[0], x.sum(1) ** 2)
    assert len(program_of(squared, x=x).operations) == 2


@tp.op
def causal_fir(x: num[Tensor, "n"], w: num[Tensor, "m"]) -> num[Tensor, "t"]:
    t, s = tp.indices("t s")
    return tp.sum[s](x[t - s] * w[s], where=s <= t)


def test_a_causal_filter_folds_all_of_its_taps() -> None:
    x, w = counting(10), counting(3)
    assert ranges_of(causal_fir, x=x, w=w) == {"t": 10, "s": 3}
    np.testing.assert_array_equal(outputs_of(causal_fir, x=x, w=w)[0], np.convolve(x, w)[:10])


def test_a_fold_that_nothing_gives_an_extent_is_refused() -> None:
    @tp.op
    def polyphase(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "p=2*n"]:
        p, r = tp.indices("p r")
        return tp.sum[r](x.get[p // 2 - r] * w[p % 2 + 2 * r])

    line = polyphase.function.__code__.co_firstlineno + 3
    with pytest.raises(tp.UsageError) as caught:
        outputs_of(polyphase, x=counting(8), w=counting(6))
    said = str(caught.value)
    assert said.startswith(f"polyphase (test_index_ranges.py:{line}): nothing gives the extent of the fold index r")
    assert "w[p % 2 + 2*r]" in said
    assert "axis d0=6" in said
    assert "tp.indices(r=...)" in said


def test_a_given_extent_is_the_range_of_the_fold() -> None:
    @tp.op
    def polyphase(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "p=2*n"]:
        p, r = tp.indices("p", r=3)
        return tp.sum[r](x.get[p // 2 - r] * w[p % 2 + 2 * r])

    x, w = counting(8), counting(6)
    stuffed = np.zeros(16, np.int32)
    stuffed[::2] = x
    np.testing.assert_array_equal(outputs_of(polyphase, x=x, w=w)[0], np.convolve(stuffed, w)[:16])


def test_a_given_extent_that_leaves_the_tensor_is_an_error_with_a_witness() -> None:
    @tp.op
    def first(x: num[Tensor, "n"]) -> num[Tensor, ""]:
        s = tp.indices(s=5)
        return tp.sum[s](x[s])

    line = first.function.__code__.co_firstlineno + 3
    assert outputs_of(first, x=counting(7))[0] == 15
    with pytest.raises(tp.ReadOutOfBounds) as caught:
        outputs_of(first, x=counting(3))
    said = str(caught.value)
    assert said.startswith(f"first (test_index_ranges.py:{line}) reads x[s] outside its shape")
    assert "s in [0, 4]" in said
    assert "d0 in [0, 2]" in said
    assert "d0=3  from s=3" in said


def test_axes_read_alone_must_agree() -> None:
    @tp.op
    def dot(a: num[Tensor, "n"], b: num[Tensor, "m"]) -> num[Tensor, ""]:
        i = tp.indices("i")
        return tp.sum[i](a[i] * b[i])

    line = dot.function.__code__.co_firstlineno + 3
    with pytest.raises(tp.UsageError) as caught:
        outputs_of(dot, a=counting(5), b=counting(3))
    said = str(caught.value)
    assert said.startswith(f"dot (test_index_ranges.py:{line}): the fold index i reads axes of different extents")
    assert "a[i]" in said
    assert "axis d0=5" in said
    assert "b[i]" in said
    assert "axis d0=3" in said
    assert "tp.indices(i=" in said


@pytest.mark.parametrize(("n", "m"), [(5, 3), (3, 5)])
def test_a_name_of_the_signature_does_not_cut_a_fold_short(n: int, m: int) -> None:
    @tp.op
    def sums(a: num[Tensor, "i"], b: num[Tensor, "j"]) -> num[Tensor, ""]:
        i = tp.indices("i")
        return tp.sum[i](a[i]) + tp.sum[i](b[i])

    with pytest.raises(tp.UsageError) as caught:
        outputs_of(sums, a=counting(n), b=counting(m))
    assert "b[i]" in str(caught.value)
    assert "test_index_ranges.py:" in str(caught.value)


def test_the_trace_of_a_matrix_that_is_not_square_is_refused() -> None:
    @tp.op
    def trace(x: num[Tensor, "n m"]) -> num[Tensor, ""]:
        i = tp.indices("i")
        return tp.sum[i](x[i, i])

    assert outputs_of(trace, x=counting(3, 3))[0] == 1 + 5 + 9
    with pytest.raises(tp.UsageError, match="different extents"):
        outputs_of(trace, x=counting(3, 4))


def test_a_fold_over_an_index_that_nothing_reads_counts() -> None:
    @tp.op
    def repeated(x: num[Tensor, "n"], *, times: int) -> num[Tensor, "n"]:
        n, times_ = tp.indices("n times")
        return tp.sum[times_](x[n])

    np.testing.assert_array_equal(outputs_of(lambda x: repeated(x, times=3), x=counting(4))[0], 3 * counting(4))


def test_a_guarded_read_gives_no_extent() -> None:
    @tp.op
    def ends(x: num[Tensor, "n"]) -> num[Tensor, ""]:
        i = tp.indices("i")
        return tp.sum[i](x.get(i, fill=1))

    with pytest.raises(tp.UsageError, match="nothing gives the extent of the fold index i"):
        outputs_of(ends, x=counting(3))


def test_a_condition_speaks_of_indices_that_the_fold_does_not_read() -> None:
    @tp.op
    def means(x: f32[Tensor, "t d"]) -> f32[Tensor, "t d"]:
        t, d, s = tp.indices("t d s")
        return tp.sum[s](x[s, d], where=s <= t) / (t + 1)

    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    want = x.cumsum(0) / np.arange(1, 6)[:, None]
    np.testing.assert_allclose(outputs_of(means, x=x)[0], want, rtol=1e-5)


# --- given extents --------------------------------------------------------------------------------------------------


def test_extents_given_to_indices() -> None:
    n, k, p, s = tp.indices("n k p", s=5)
    assert [str(i) for i in (n, k, p, s)] == ["n", "k", "p", "s"]
    assert str(tp.indices(s=5)) == "s"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tp.indices(), "at least one name"),
        (lambda: tp.indices("n n"), "names n twice"),
        (lambda: tp.indices("n", n=3), "names n twice"),
        (lambda: tp.indices(n=-1), "extent n=-1"),
        (lambda: tp.indices(n=2.0), "extent n=2.0"),
        (lambda: tp.indices(n=True), "extent n=True"),
    ],
)
def test_wrong_extents_are_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(tp.UsageError, match=said):
        call()


def test_two_extents_of_one_index_contradict() -> None:
    @tp.op
    def f(x: num[Tensor, "n"]) -> num[Tensor, ""]:
        return tp.sum[tp.indices(s=2)](x[tp.indices(s=3)])

    @tp.op
    def g(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
        return x[tp.indices(n=2)]

    with pytest.raises(tp.UsageError, match="the index s has two extents"):
        outputs_of(f, x=counting(5))
    with pytest.raises(tp.UsageError, match="the index n has two extents"):
        outputs_of(g, x=counting(5))


def test_a_given_extent_is_that_of_an_output_axis() -> None:
    @tp.op
    def hankel(x: num[Tensor, "n"]) -> num[Tensor, "p q"]:
        p, q = tp.indices("q", p=3)[::-1]
        return x[p + q]

    x = counting(7)
    np.testing.assert_array_equal(outputs_of(hankel, x=x)[0], np.lib.stride_tricks.sliding_window_view(x, 5))


def test_a_given_extent_counts_where_the_index_does_not_occur() -> None:
    @tp.op
    def repeated(x: num[Tensor, "n"]) -> num[Tensor, "n p"]:
        n, p = tp.indices("n", p=3)
        del p
        return x[n]

    np.testing.assert_array_equal(outputs_of(repeated, x=counting(2))[0], [[1, 1, 1], [2, 2, 2]])


def test_settings_are_extents_of_axes_that_no_operand_has() -> None:
    @tp.op
    def one_hot(labels: int32[Tensor, "t"], *, k: int) -> f32[Tensor, "t k"]:
        t, c = tp.indices("t k")
        return tp.where(labels[t] == c, 1.0, 0.0)

    @tp.op
    def eye(*, n: int, m: int) -> f32[Tensor, "n m"]:
        i, j = tp.indices("n m")
        return tp.where(i == j, 1.0, 0.0)

    @tp.op
    def histogram(x: int32[Tensor, "n"], *, bins: int) -> int32[Tensor, "bins"]:
        n, b = tp.indices("n bins")
        return tp.sum[n](tp.where(x[n] == b, 1, 0))

    labels = np.array([2, 0, 3, 2], np.int32)
    np.testing.assert_array_equal(outputs_of(lambda x: one_hot(x, k=4), x=labels)[0], np.eye(4)[labels])
    np.testing.assert_array_equal(outputs_of(lambda x: eye(n=3, m=5), x=labels)[0], np.eye(3, 5))
    np.testing.assert_array_equal(outputs_of(lambda x: histogram(x, bins=6), x=labels)[0], np.bincount(labels, None, 6))


def test_a_setting_speaks_in_an_expression_of_an_output_axis() -> None:
    @tp.op
    def repeated(x: num[Tensor, "n"], *, times: int = 2) -> num[Tensor, "p=times*n"]:
        p = tp.indices("p")
        return x[p // times]

    np.testing.assert_array_equal(outputs_of(lambda x: repeated(x, times=3), x=counting(2))[0], [1, 1, 1, 2, 2, 2])


def test_a_setting_that_contradicts_an_axis_is_refused() -> None:
    @tp.op
    def f(x: num[Tensor, "n"], *, n: int) -> num[Tensor, "n"]:
        return x[tp.indices("n")]

    np.testing.assert_array_equal(outputs_of(lambda x: f(x, n=3), x=counting(3))[0], counting(3))
    with pytest.raises(tp.UsageError, match="the setting n=4 contradicts"):
        outputs_of(lambda x: f(x, n=4), x=counting(3))


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

    line = shifted.function.__code__.co_firstlineno + 3
    with pytest.raises(tp.UsageError) as caught:
        outputs_of(shifted, x=counting(8), w=counting(3))
    said = str(caught.value)
    assert said.startswith(f"shifted (test_index_ranges.py:{line}): the range of the output index p has two readings")
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


# --- where errors point ---------------------------------------------------------------------------------------------


def tap(x: Tensor, t: Any, s: Any) -> Tensor:
    return x[t + s]


def product(x: Tensor, w: Tensor, t: Any, s: Any) -> Tensor:
    return tap(x, t, s) * w[s]


def folded(x: Tensor, w: Tensor, t: Any, s: Any) -> Tensor:
    return tp.sum[s](product(x, w, t, s))


def test_an_error_names_the_line_of_the_expression_three_helpers_deep() -> None:
    @tp.op
    def fir(x: num[Tensor, "t"], w: num[Tensor, "m"]) -> num[Tensor, "t"]:
        t, s = tp.indices("t s")
        return folded(x, w, t, s)

    with pytest.raises(tp.ReadOutOfBounds) as caught:
        outputs_of(fir, x=counting(8), w=counting(3))
    line = tap.__code__.co_firstlineno + 1
    assert str(caught.value).startswith(f"fir (test_index_ranges.py:{line}) reads x[s + t] outside its shape")
    assert "x[d0=8]" in str(caught.value)


def test_messages_hold_no_numpy_scalars() -> None:
    @tp.op
    def first(x: num[Tensor, "n"]) -> num[Tensor, ""]:
        s = tp.indices(s=np.int64(5))
        return tp.sum[s](x[np.int64(2) * s + np.int64(1)])

    with pytest.raises(tp.ReadOutOfBounds) as caught:
        outputs_of(first, x=counting(3))
    assert "x[2*s + 1]" in str(caught.value)
    assert "int64" not in str(caught.value)
