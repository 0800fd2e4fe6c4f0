"""Boosted trees: what is evaluated is what was fitted, and fitting finds the structure that is there."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from tapestry.kernels.cost.fit import Recipe, boost
from tapestry.kernels.cost.trees import Forest, Tree

SMALL = Recipe(trees=12, depth=3, least=1, ridge=0.0, rate=1.0)


def drawn(rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4, size=(rows, 3)).astype(float)


@given(rows=st.integers(1, 40), seed=st.integers(0, 1000))
@settings(max_examples=60)
def test_one_row_and_many_rows_agree(rows: int, seed: int) -> None:
    x = drawn(rows, seed)
    y = np.sin(x @ np.array([1.0, 2.0, 3.0]))
    forest = Forest(*boost(x, y, Recipe(trees=5, depth=3, least=1)), width=3)
    assert forest.many(x) == pytest.approx([forest.one(row) for row in x], abs=1e-12)


@given(seed=st.integers(0, 1000))
@settings(max_examples=30)
def test_boosting_to_the_end_reproduces_a_function_of_few_values(seed: int) -> None:
    x = drawn(60, seed)
    y = x[:, 0] * x[:, 1] - 2.0 * (x[:, 2] > 1)
    forest = Forest(*boost(x, y, Recipe(trees=60, depth=3, least=1, ridge=0.0, rate=0.7)), width=3)
    assert np.abs(forest.many(x) - y).max() < 0.25  # y lies in -2..9


def test_a_step_is_found_exactly() -> None:
    x = np.arange(20.0)[:, None]
    base, trees = boost(x, (x[:, 0] > 6.5).astype(float), Recipe(trees=1, depth=1, rate=1.0, ridge=0.0, least=1))
    assert (trees[0].feature[0], trees[0].threshold[0]) == (0, 6.5)
    assert Forest(base, trees, 1).many(x) == pytest.approx([0.0] * 7 + [1.0] * 13)


def test_leaves_keep_the_least_number_of_rows() -> None:
    x = np.arange(10.0)[:, None]
    y = np.array([100.0] + [0.0] * 9)
    _, trees = boost(x, y, Recipe(trees=1, depth=1, least=4))
    assert trees[0].threshold[0] >= 3.5


def test_weights_count_as_repeated_rows() -> None:
    x, y = np.array([[0.0], [1.0], [2.0]]), np.array([1.0, 5.0, 2.0])
    repeated = boost(x[[0, 1, 1, 1, 2]], y[[0, 1, 1, 1, 2]], SMALL)
    weighted = boost(x, y, SMALL, np.array([1.0, 3.0, 1.0]))
    forests = [Forest(base, trees, 1).many(x) for base, trees in (repeated, weighted)]
    assert forests[0] == pytest.approx(forests[1])


def test_constant_columns_and_a_single_row() -> None:
    base, trees = boost(np.zeros((1, 3)), np.array([2.5]), Recipe(trees=3))
    assert Forest(base, trees, 3).many(np.ones((2, 3))) == pytest.approx([2.5, 2.5])


def test_a_foreign_feature_is_refused() -> None:
    with pytest.raises(ValueError, match="feature"):
        Forest(0.0, [Tree((3,), (0.0,), (0,), (0,), (1.0,))], 3)


def test_fitting_twice_gives_the_same_trees() -> None:
    x = drawn(50, 7)
    assert boost(x, x.sum(axis=1), Recipe(trees=8)) == boost(x, x.sum(axis=1), Recipe(trees=8))
