"""What functions of tensors are given reaches the parameter it is for; an axis may be called as a parameter is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.dsl.door import door
from tapestry.errors import UsageError
from tapestry.reference import evaluate


@tp.program
def around(image: f32[Tensor, "n y x"]) -> Tensor:
    return tp.pad(image, y=1, x=(0, 2))


@tp.program
def patches(image: f32[Tensor, "n y x"]) -> Tensor:
    return tp.rearrange(image, "n (y b) x -> n b (y x)", y=2)


@tp.program
def columns(image: f32[Tensor, "n y x"]) -> Tensor:
    return tp.repeat(tp.reduce(image, "n y (x two) -> n y x", "max", x=2), "n y x -> n y (x again)", again=3)


IMAGE = np.arange(2 * 4 * 4, dtype=np.float32).reshape(2, 4, 4)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (around, np.pad(IMAGE, ((0, 0), (1, 1), (0, 2)))),
        (patches, IMAGE.reshape(2, 2, 2, 4).transpose(0, 2, 1, 3).reshape(2, 2, 8)),
        (columns, np.repeat(IMAGE.reshape(2, 4, 2, 2).max(3), 3, axis=2)),
    ],
    ids=["pad", "rearrange", "reduce and repeat"],
)
def test_an_axis_is_called_x(program: Any, expected: np.ndarray) -> None:
    (found,) = evaluate(program.bind(n=2, y=4, x=4), {"image": IMAGE}).values()
    np.testing.assert_array_equal(found, expected)


@door
def shifted(x: int, /, by: int = 1, *rest: int, sign: bool = True, **named: int) -> tuple[Any, ...]:
    return x, by, rest, sign, named


@door
def two(first: int, /, second: int) -> tuple[int, int]:
    return first, second


def test_parameters_by_position_alone_leave_their_names_to_others() -> None:
    assert shifted(1, x=2) == (1, 1, (), True, {"x": 2})
    assert shifted(1, by=3, x=2, sign=False) == (1, 3, (), False, {"x": 2})
    assert shifted(1, 2, 3, 4) == (1, 2, (3, 4), True, {})
    assert two(1, 2) == two(1, second=2) == (1, 2)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: shifted(x=2), "positional"),  # type: ignore[call-arg]
        (lambda: shifted(1, 2, by=3), "multiple values for argument 'by'"),  # type: ignore[misc]
        (lambda: two(first=1, second=2), "positional"),  # type: ignore[call-arg]
        (lambda: two(1), "missing a required argument: 'second'"),  # type: ignore[call-arg]
        (lambda: two(1, 2, 3), "too many positional arguments"),  # type: ignore[call-arg]
        (lambda: two(1, "2"), "second is '2', not an integer"),  # type: ignore[arg-type]
        (lambda: shifted(1, x="2"), "x is '2', not an integer"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_refused(call: Any, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        call()
    assert why in str(refused.value)
