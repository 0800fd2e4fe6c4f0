"""Tasks that fold onto partial results: any monoid, in place and not, to the values of the reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.closeness import assert_close
from tapestry.inputs import random_inputs
from tapestry.reference import evaluate

from .test_partial_results import CASES, FOLDED, folding, folding_to_several, values
from .turns import attend, made, product
from .unchecked import run_unchecked

SEVERAL = [("moments", "f32"), ("minmax", "int8"), ("top5", "f32")]


@pytest.mark.parametrize(("monoid", "dtype"), [case for case in CASES if case[1] in ("f16", "f32", "bool")])
def test_every_monoid_is_folded_in_turns(monoid: str, dtype: str) -> None:
    program, x = folding(monoid, dtype), values(dtype)
    if monoid == "prod" and not dtype.startswith("int"):
        x = (1 + x / 64).astype(x.dtype)
    document = made(program, 16, 40, in_place=dtype != "f16")
    found = run_unchecked(document, {"x": x}, poison=True)
    assert_close(program, {"x": x}, found.outputs, evaluate(program, {"x": x}))


@pytest.mark.parametrize(("monoid", "dtype"), SEVERAL)
def test_folds_of_several_results_are_folded_in_turns(monoid: str, dtype: str) -> None:
    program, x = folding_to_several(monoid, dtype), values(dtype)
    found = run_unchecked(made(program, 16, 40), {"x": x}, poison=True)
    assert_close(program, {"x": x}, found.outputs, evaluate(program, {"x": x}))


@pytest.mark.parametrize("in_place", [True, False])
def test_states_of_attention_are_folded_in_turns(in_place: bool) -> None:
    program, inputs = attend.bind(), random_inputs(attend.bind(), 3)
    document = made(program, 8, 24, in_place=in_place, name="attention.state")
    found = run_unchecked(document, inputs, poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))


def test_what_is_there_comes_first_then_the_fold_of_the_points_by_themselves() -> None:
    """Sums of turns that are exact, added up in an order that f32 can tell: (2^24 + 1) + 1, not 2^24 + (1 + 1)."""
    x = np.zeros((6, FOLDED), np.float32)
    x[:, 0], x[:, 20], x[:, 50] = 2.0**24, 1.0, 1.0
    program = folding("sum", "f32")
    apart = run_unchecked(made(program, 16, 40), {"x": x}).outputs["y"]
    together = run_unchecked(made(program, 16), {"x": x}).outputs["y"]
    assert apart.tolist() == [2.0**24] * 6
    assert together.tolist() == [2.0**24 + 2] * 6


def test_every_order_of_the_lanes_gives_the_same_bits() -> None:
    program, inputs = product.bind(), random_inputs(product.bind(), 5)
    document = made(program, 10, 40, name=program.operations[0].name)
    bits = {run_unchecked(document, inputs, order=seed, poison=True).outputs["out"].tobytes() for seed in (None, 1, 2)}
    assert len(bits) == 1


@settings(max_examples=10, deadline=None)
@given(st.sets(st.integers(1, FOLDED - 1), max_size=4), st.integers(0, 1 << 16), st.booleans())
def test_whole_numbers_do_not_depend_on_the_turns(ends: set[int], seed: int, in_place: bool) -> None:
    program, x = folding("sum", "int32"), values("int32", seed)
    found = run_unchecked(made(program, *sorted(ends), in_place=in_place), {"x": x}, poison=True)
    np.testing.assert_array_equal(found.outputs["y"], evaluate(program, {"x": x})["y"])
