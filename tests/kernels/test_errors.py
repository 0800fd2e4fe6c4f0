"""Errors of kernels are errors of Tapestry: one family, one wording, and each the built-in kind a caller looks for."""

from __future__ import annotations

import pickle

import pytest

from tapestry.errors import TapestryError
from tapestry.kernels import errors
from tapestry.kernels.convolution.problem import BadConvolution, ConvolutionProblem
from tapestry.kernels.convolution.sharded import event_pointer
from tapestry.kernels.elementwise.kernel import compile_map
from tapestry.kernels.elementwise.types import Layout
from tapestry.kernels.errors import CompileError, KernelError, WrongType, WrongValue
from tapestry.program import Block, Operation

KINDS = [
    kind
    for kind in (BadConvolution, *vars(errors).values())
    if isinstance(kind, type) and issubclass(kind, KernelError) and kind is not CompileError
]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_one_of_tapestrys_and_prints_both_sides(kind: type[KernelError]) -> None:
    error = kind("x is wrong", where="conv2d", expected="f16", came="f64", hint="cast it")
    assert isinstance(error, TapestryError)
    assert str(error) == "conv2d: x is wrong\n  expected   f16\n  came       f64\n  hint       cast it"
    assert (error.expected, error.came, error.sides) == ("f16", "f64", {"expected": "f16", "came": "f64"})


def test_what_is_not_said_is_not_printed() -> None:
    error = WrongValue("x is wrong", came=0)
    assert (error.expected, error.came) == (None, 0)
    assert str(error) == "x is wrong\n  came   0"


def test_an_error_survives_the_way_from_another_process() -> None:
    with pytest.raises(BadConvolution) as caught:
        ConvolutionProblem(1, 8, 8, 64, 5, 3, 3)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (BadConvolution, str(caught.value))


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(WrongType, match=r"arrived: not a CUDA event[\s\S]*came +str 'soon'"):
        event_pointer("soon")


def test_a_block_operation_is_no_map() -> None:
    block = Operation("sort", (), "y", (), Block("sort", ()))
    with pytest.raises(WrongValue, match=r"sort: only scalar expressions are compiled[\s\S]*the block sort"):
        compile_map(block, {"y": Layout.contiguous("f32", ())})
