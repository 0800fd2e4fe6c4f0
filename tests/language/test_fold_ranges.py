"""Ranges of indices: a fold has the extent said or read, and anything else is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, int32, num
from tapestry.testing import outputs_of, program_of

from .ranges import counting, ranges_of, refused

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

    says = ": the output index n is folded, and occurs nowhere else"
    said = refused(total, tp.UsageError, 3, says, x=counting(2, 3))
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

    says = ": nothing gives the extent of the fold index r"
    said = refused(polyphase, tp.UsageError, 3, says, x=counting(8), w=counting(6))
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

    assert outputs_of(first, x=counting(7))[0] == 15
    says = " reads x[s] outside its shape"
    said = refused(first, tp.ReadOutOfBounds, 3, says, x=counting(3))
    assert "s in [0, 4]" in said
    assert "d0 in [0, 2]" in said
    assert "d0=3  from s=3" in said


def test_axes_read_alone_must_agree() -> None:
    @tp.op
    def dot(a: num[Tensor, "n"], b: num[Tensor, "m"]) -> num[Tensor, ""]:
        i = tp.indices("i")
        return tp.sum[i](a[i] * b[i])

    says = ": the fold index i reads axes of different extents"
    said = refused(dot, tp.UsageError, 3, says, a=counting(5), b=counting(3))
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
    assert "test_fold_ranges.py:" in str(caught.value)


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
    assert str(caught.value).startswith(f"fir (test_fold_ranges.py:{line}) reads x[s + t] outside its shape")
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


def test_what_takes_too_long_to_prove_says_what_to_write_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    @tp.op
    def tangled(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
        n, a, b, c = tp.indices("n", a=97, b=89, c=83)
        place = ((1009 * a + 1013 * b) % 97 * 7 + (1019 * c - 1021 * a) % 89 * 3) // 2
        return tp.sum[a, b, c](x[place] * x[n])

    monkeypatch.setattr("tapestry.space.polyhedral.PROOF_LIMIT", 2_000)
    with pytest.raises(tp.ProgramError) as caught:
        program_of(lambda x: tangled(x), x=np.ones(1000, np.float32))
    text = str(caught.value)
    assert re.match(
        r"tangled \(test_fold_ranges.py:\d+\): whether tangled stays inside its tensors takes more work than it may",
        text,
    )
    assert "guard the read (x.get[...])" in text
