"""In which type an expression computes follows from its dtypes alone: other extents compute alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tapestry as tp
from tapestry import Tensor
from tapestry.dsl.define import axes_of, define
from tapestry.dtypes import numpy_dtype
from tapestry.reference import evaluate
from tapestry.testing import program_of

NUMBERS = {"1": 1, "0.1": 0.1}
# At these it shows in which type they are computed with: the last place of the next narrower type is lost.
ODD = {"int8": 127, "int32": 2**24 + 1, "f16": 1 + 2**-10, "f32": 1 + 2**-23, "f64": 1 + 2**-40}


def values(dtype: str, extent: int) -> NDArray[Any]:
    return np.full(extent, ODD[dtype]).astype(numpy_dtype(dtype))


def computed(use: Any, **arrays: NDArray[Any]) -> tuple[str, list[Any]]:
    """The dtype of the result, and its first three values."""
    made = program_of(use, **arrays)
    (name,) = made.outputs
    return made.tensor(name).dtype, evaluate(made, arrays)[name][:3].tolist()


@pytest.mark.parametrize("first", [*ODD, *NUMBERS])
@pytest.mark.parametrize("second", [*ODD, *NUMBERS])
def test_a_choice_that_the_ranges_decide_keeps_its_type(first: str, second: str) -> None:
    def use(third: Tensor, *others: Tensor) -> Tensor:
        (i,) = axes_of(third)
        given = dict(zip(sorted({first, second} & ODD.keys()), others, strict=True))
        a, b = (given[name][i] if name in given else NUMBERS[name] for name in (first, second))
        return define("chosen", [i], tp.where(i < 4, a, b) * third[i] + 1)

    for third in ("int8", "int32", "f16", "f32"):
        found = []
        for extent in (3, 6):  # below index 4 it is the first branch, and of extent 3 the ranges say so
            others = {f"x_{name}": values(name, extent) for name in sorted({first, second} & ODD.keys())}
            found.append(computed(use, third=values(third, extent), **others))
        assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["int8", "int32", "f16", "f64"])
def test_a_read_that_is_never_inside_has_the_type_of_its_tensor(dtype: str) -> None:
    def use(y: Tensor, x: Tensor) -> Tensor:
        (i,) = axes_of(y)
        return define("missed", [i], x.get(i + 2, fill=1) * y[i] + 2**-30)

    y = values("f32", 4)
    found = [computed(use, y=y, x=np.ones(extent).astype(numpy_dtype(dtype))) for extent in (2, 5)]
    assert found[0] == found[1]


def test_a_fill_stands_for_an_element_of_a_wide_integer() -> None:
    def use(x: Tensor) -> Tensor:
        (i,) = axes_of(x)
        return define("wide", [i], x.get(i + 9, fill=2**40) + x[i])

    assert computed(use, x=np.ones(3, np.int64)) == ("int64", [2**40 + 1] * 3)
