"""Extents are counted by 64-bit integers, and so is the end behind them: longer ones are refused at every door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.serialize import program_from_json, program_to_json
from tapestry.testing import program_of
from tapestry.verify import verify

TOO_LONG = [2**63 - 1, 2**63, 2**200]
LARGEST = 2**63 - 2


@tp.program
def first(x: f32[Tensor, "n"]) -> Tensor:
    return x[:1] + x[-1:]


@tp.op
def row(*, n: int) -> f32[Tensor, "n"]:
    return tp.indices("n") * 0.5


@tp.op
def longer(x: f32[Tensor, "n"]) -> f32[Tensor, "m=4*n"]:
    return x[tp.indices("m") // 4]


DOORS: dict[str, Callable[[int], Any]] = {
    "bind": lambda extent: first.bind(n=extent),
    "input": lambda extent: program_of(lambda: tp.input("x", "f32", (extent,))[:1] + 1),
    "full": lambda extent: program_of(lambda: tp.full((extent,), 0, "f32")[:1] + 1),
    "indices": lambda extent: program_of(lambda: tp.indices(n=extent)),
    "setting": lambda extent: program_of(lambda: row(n=extent)),
    "output": lambda extent: program_of(lambda: longer(tp.input("x", "f32", (extent // 4 + 1,)))),
    "broadcast": lambda extent: program_of(lambda x: tp.broadcast_to(x, (extent, 2)) + 1, x=np.ones(2, np.float32)),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("extent", TOO_LONG)
def test_what_64_bits_do_not_count_is_refused(door: str, extent: int) -> None:
    with pytest.raises(tp.UsageError, match=r"2\*\*63 - 2"):
        DOORS[door](extent)


def test_the_longest_axis_is_bound() -> None:
    program = first.bind(n=LARGEST)
    assert program.tensor("x").shape == (LARGEST,)
    assert program_from_json(program_to_json(program)) == program


def stretched(extent: int) -> Program:
    """A program made by hand with a dimension so long."""
    program = program_of(lambda x: x * 2, x=np.ones(3, np.float32))
    (op,) = program.operations
    tensors = tuple(replace(tensor, shape=(extent,)) for tensor in program.tensors)
    return replace(program, tensors=tensors, operations=(replace(op, dims=(replace(op.dims[0], extent=extent),)),))


@pytest.mark.parametrize("extent", TOO_LONG)
def test_programs_made_by_hand_are_refused_too(extent: int) -> None:
    for refuse in (verify, lambda p: program_from_json(program_to_json(p)), lambda p: evaluate(p, {"x": np.ones(3)})):
        with pytest.raises(tp.UsageError, match=r"is not|too large"):
            refuse(stretched(extent))  # type: ignore[operator]


def test_an_extent_of_thousands_of_digits_is_no_dimension() -> None:
    data = program_to_json(stretched(5))
    data["operations"][0]["dims"] = "n=" + "9" * 5000
    with pytest.raises(tp.UsageError, match="is not a dimension"):
        program_from_json(data)
