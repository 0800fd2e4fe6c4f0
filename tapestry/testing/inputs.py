"""Input values of a program."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from numpy.typing import NDArray

from ..inputs import random_inputs
from ..program import Program


def inputs_for(program: Program) -> st.SearchStrategy[dict[str, NDArray[Any]]]:
    """Values of inputs, params and states: floats in [-1, 1], integers in -4, ..., 4 (see `tapestry.inputs`)."""
    return st.integers(0, 2**31 - 1).map(lambda seed: random_inputs(program, seed))
