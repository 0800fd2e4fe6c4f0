"""Conditions on indices in the language: ``where=`` takes any of them, tables of constants included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import UsageError
from tapestry.program import Program
from tapestry.reference import evaluate

N = 12
LENGTHS = [3, 0, 7, 5]
BLOCKS = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 1]], dtype=bool)
Q, K = np.mgrid[:N, :N]


def folded(where: Callable[[Any, Any], Tensor]) -> Program:
    @tp.op
    def chosen(w: f32[Tensor, "q k"], x: f32[Tensor, "k"]) -> f32[Tensor, "q"]:
        """The values that a condition chooses, weighed."""
        q, k = tp.indices("q k")
        return tp.sum[k](w[q, k] * x[k], where=where(q, k))

    @tp.program
    def net(w: f32[Tensor, "q k"], x: f32[Tensor, "k"]) -> Tensor:
        return chosen(w, x)

    return net.bind(q=N, k=N)


FORMS = {
    "a lower bound": (lambda q, k: k > q - 3, Q - K < 3),
    "all but the own": (lambda q, k: k != q, K != Q),
    "a window and the first": (lambda q, k: (k <= q) & ((q - k < 4) | (k < 2)), (K <= Q) & ((Q - K < 4) | (K < 2))),
    "neither": (lambda q, k: ~((k < 2) | (q == k) | (q - k > 4)), (K >= 2) & (K != Q) & (Q - K <= 4)),
    "outside of a band": (lambda q, k: ~((k > q - 2) & (k < q + 2)), abs(K - Q) >= 2),
    "every third": (lambda q, k: (k % 3 == 0) | (k // 4 != q // 4), (K % 3 == 0) | (K // 4 != Q // 4)),
    "a set of blocks": (lambda q, k: tp.table(BLOCKS)[q // 4, k // 4] & (k <= q), BLOCKS[Q // 4, K // 4] & (K <= Q)),
    "up to a length": (lambda q, k: k < tp.table(LENGTHS)[q // 3], np.array(LENGTHS)[Q // 3] > K),
}


@pytest.mark.parametrize(("where", "mask"), FORMS.values(), ids=FORMS)
def test_a_fold_takes_the_points_that_hold(where: Callable[[Any, Any], Tensor], mask: np.ndarray[Any, Any]) -> None:
    program = folded(where)
    rng = np.random.default_rng(0)
    inputs = {"w": rng.integers(-9, 9, (N, N)).astype("f4"), "x": rng.integers(-9, 9, N).astype("f4")}
    assert np.array_equal(evaluate(program, inputs)["out"], (inputs["w"] * mask) @ inputs["x"])
    assert tp.parse(str(program)) == program


def test_a_map_chooses_by_any_of_them_and_reads_nothing_else() -> None:
    @tp.op
    def shifted(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
        """The element before, but for the first of each row and the last of all."""
        n = tp.indices("n")
        return tp.where((n < 1) | (n % 4 == 0) | ~(n < 11), 0.0, x[n - 1])

    @tp.program
    def net(x: f32[Tensor, "n"]) -> Tensor:
        return shifted(x)

    x = np.arange(N, dtype="f4")
    kept = (x >= 1) & (x % 4 != 0) & (x < 11)
    assert np.array_equal(evaluate(net.bind(n=N), {"x": x})["out"], np.where(kept, x - 1, 0))


def test_a_value_of_a_table_is_a_number_and_an_index() -> None:
    @tp.op
    def lasts(x: f32[Tensor, "b t"]) -> f32[Tensor, "b"]:
        """The last element of each row, over its length."""
        b = tp.indices("b")
        lengths = tp.table([3, 1, 7, 5])
        return x[b, lengths[b] - 1] / lengths[b]

    @tp.program
    def net(x: f32[Tensor, "b t"]) -> Tensor:
        return lasts(x)

    x = np.arange(32, dtype="f4").reshape(4, 8)
    lengths = np.array([3, 1, 7, 5])
    expected = x[np.arange(4), lengths - 1] / lengths.astype("f4")
    assert np.array_equal(evaluate(net.bind(b=4, t=8), {"x": x})["out"], expected)
    with pytest.raises(tp.ReadOutOfBounds, match=r"t=6"):
        net.bind(b=4, t=6)


def test_tables_are_as_long_as_their_indices_range() -> None:
    with pytest.raises(UsageError, match="extent"):
        folded(lambda q, k: k < tp.table(LENGTHS)[q])
    with pytest.raises(UsageError, match=r"outside of its values\n.*in \[0, 5\]"):
        folded(lambda q, k: k < tp.table(LENGTHS)[q // 2])


@pytest.mark.parametrize("values", [[], 3, [1.5, 2], [1, True], [[1, 2], [3]], ["a"]])
def test_a_table_holds_integers_or_truth_values(values: Any) -> None:
    with pytest.raises(UsageError):
        tp.table(values)


def test_a_table_takes_an_index_for_each_axis() -> None:
    with pytest.raises(UsageError, match=r"shape \(3, 3\)"):
        folded(lambda q, k: tp.table(BLOCKS)[q // 4])


ROWS = [3, 1, 7, 5]
STARTS = [0, 3, 4, 11]


@tp.op
def means(x: f32[Tensor, "n"]) -> f32[Tensor, "b"]:
    """Means of rows that are stored one behind another."""
    b, t = tp.indices("b", t=max(ROWS))
    rows = tp.table(ROWS)
    return tp.sum[t](x[tp.table(STARTS)[b] + t], where=t < rows[b]) / rows[b]


@tp.program
def jagged(x: f32[Tensor, "n"]) -> Tensor:
    return means(x)


def test_rows_may_be_stored_without_what_is_beyond_their_ends() -> None:
    x = np.arange(16, dtype="f4")
    parts = np.split(x, STARTS[1:])
    expected = np.array([part.sum() / np.float32(len(part)) for part in parts])
    assert np.array_equal(evaluate(jagged.bind(n=16), {"x": x})["out"], expected)


def test_a_row_that_ends_beyond_its_storage_is_an_error_with_a_witness() -> None:
    with pytest.raises(tp.ReadOutOfBounds, match=r"n in \[0, 14\] +witness: n=15  from b=3 t=4"):
        jagged.bind(n=15)
