"""Random inputs: the same for the same seed and tensor, in range for their dtype."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor as Handle
from tapestry import f32, int32
from tapestry.dtypes import DTYPES, numpy_dtype
from tapestry.inputs import random_inputs
from tapestry.program import Program, Role, Tensor

KNOWN_INT32 = [-2, 3, -2, 0, -2, -4, 0, -1]
KNOWN_F32 = [-0.3397754430770874, 0.7112336158752441]


def program(*tensors: Tensor) -> Program:
    return Program("p", tensors, (), ())


def tensor(name: str, dtype: str = "f32", shape: tuple[int, ...] = (40, 50), role: Role = "input") -> Tensor:
    return Tensor(name, dtype, shape, role)


def test_values_depend_on_the_seed_and_the_tensor_alone() -> None:
    alone = random_inputs(program(tensor("x")), 7)["x"]
    among = random_inputs(program(tensor("w", "int8", (3,)), tensor("x"), tensor("y")), 7)
    np.testing.assert_array_equal(among["x"], alone)
    assert (among["y"] != alone).any()
    assert (random_inputs(program(tensor("x")), 8)["x"] != alone).any()


def test_they_are_the_same_everywhere() -> None:
    """Known values: another NumPy, machine or hash seed must not change what a seed means."""
    assert random_inputs(program(tensor("x", "int32", (8,))), 1)["x"].tolist() == KNOWN_INT32
    assert random_inputs(program(tensor("x", "f32", (2,))), 1)["x"].tolist() == KNOWN_F32


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_values_are_small_and_of_the_declared_dtype(dtype: str) -> None:
    x = random_inputs(program(tensor("x", dtype)), 0)["x"]
    assert (x.dtype, x.shape) == (numpy_dtype(dtype), (40, 50))
    kind = DTYPES[dtype].kind
    ints = (0, 8) if dtype.startswith("u") else (-4, 4)
    low, high = {"bool": (0, 1), "int": ints, "float": (-1, 1)}[kind]
    wide = x.astype(np.float64)
    assert low <= wide.min() < wide.max() <= high
    assert len(np.unique(wide)) >= (2 if kind == "bool" else 9)


def test_params_keep_the_size_of_what_they_multiply() -> None:
    """A product with a weight has about the size of its operand; gains stay near one."""
    inputs = program(tensor("w", shape=(400, 300), role="param"), tensor("g", shape=(50,), role="param"))
    values = random_inputs(inputs, 0)
    x = np.random.default_rng(0).uniform(-1, 1, (20, 400))
    assert 0.3 < (x @ values["w"]).std() / x.std() < 1.5
    assert values["g"].min() >= 0.5
    assert values["g"].max() <= 1.5


def test_only_what_comes_from_outside_is_made() -> None:
    roles: tuple[Role, ...] = ("input", "param", "state", "value")
    made = random_inputs(program(*(replace(tensor(role), role=role) for role in roles)), 0)
    assert set(made) == {"input", "param", "state"}


def test_indices_that_have_to_be_inside_of_their_axis_are() -> None:
    """`tapestry run --random` runs a lookup, whose other indices would be an error."""

    @tp.program
    def lookup(ids: int32[Handle, "t"], other: int32[Handle, "t"], table: f32[Handle, "v d"]) -> Handle:
        return tp.embedding(ids, table) + tp.embedding(other, table[:3])

    drawn = random_inputs(lookup.bind(t=200, v=50, d=2), 0)
    assert set(drawn["ids"].tolist()) == set(range(9))
    assert set(drawn["other"].tolist()) == set(range(3))
    assert random_inputs(lookup.bind(t=200, v=5, d=2), 0)["ids"].max() == 4


def test_large_floats_may_be_a_block_over_and_over() -> None:
    whole = tensor("x", "f32", (3, 5))
    again = random_inputs(program(whole), 7, block=4)["x"].reshape(-1)
    np.testing.assert_array_equal(again, np.resize(again[:4], 15))
    assert len(set(again[:4])) == 4
    small = random_inputs(program(whole), 7, block=15)["x"]
    np.testing.assert_array_equal(small, random_inputs(program(whole), 7)["x"])
