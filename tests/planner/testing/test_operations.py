"""`check_operation`: what is right passes, and each proof says what is wrong with what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tapestry as tp
from tapestry import Tensor
from tapestry.errors import UsageError
from tapestry.testing import check_operation

from ... import blocks_of_mine as mine

X = np.random.default_rng(0).normal(size=(3, 4))


def test_what_is_right_passes() -> None:
    check_operation(
        lambda x: tp.softmax(x, 1),
        X,
        oracle=lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
        torch=lambda x: torch.softmax(x, 1),
    )


def test_several_results_and_integers_are_held_to_what_there_is() -> None:
    check_operation(lambda x: (tp.min(x, 0), tp.max(x, 0)), np.arange(6), oracle=lambda x: (x.min(0), x.max(0)))


@pytest.mark.parametrize(
    ("operation", "beside", "said"),
    [
        (lambda x: tp.sum(x, 1), {"oracle": lambda x: x.mean(1)}, "element"),
        (lambda x: tp.sum(x, 1), {"oracle": lambda x: x.sum(0)}, "shape"),
        (lambda x: (x, x), {"oracle": lambda x: x}, "results"),
        (lambda x: tp.stop_gradient(x) * x, {"torch": lambda x: x * x}, "grad"),
        (lambda x: tp.stop_gradient(x) * x, {}, "gradient along x0"),
    ],
)
def test_what_is_wrong_is_said(operation: Callable[..., Tensor], beside: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said) as error:
        check_operation(operation, X, **beside)
    assert "\nprogram " in str(error.value)


def ranked(x: Tensor) -> Tensor:
    n, s = tp.indices("n s")
    k = tp.indices(k=x.shape[1])
    found: Tensor = mine.SORTED(x[n, s], fold=s, make=k)
    return found


def test_a_gradient_that_does_not_exist_is_an_error_unless_it_is_not_asked_for() -> None:
    with pytest.raises(UsageError):
        check_operation(ranked, X)
    check_operation(ranked, X, oracle=lambda x: np.sort(x, 1), proofs=["oracle", "shards"])
