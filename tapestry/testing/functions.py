"""Functions of tensors, run on arrays through the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dsl.declare import input as declare
from ..dsl.program import program
from ..dtypes import name_of
from ..program import Program
from ..reference import evaluate


def program_of(function: Callable[..., Any], /, **arrays: NDArray[Any]) -> Program:
    """The verified program that applies a function of the language to inputs of the arrays' names, shapes and dtypes.

    The function gets them by position, in the order given.
    """

    def applied() -> Any:
        return function(*(declare(name, name_of(array.dtype), array.shape) for name, array in arrays.items()))

    return program(applied).bind()


def outputs_of(function: Callable[..., Any], /, **arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """What the reference computes for a function of the language on these arrays, in the order of its results."""
    built = program_of(function, **arrays)
    values = evaluate(built, {name: np.asarray(array) for name, array in arrays.items()})
    return tuple(values[name] for name in built.outputs)
