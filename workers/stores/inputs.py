"""Inputs at the door: every tensor that a run needs, and no other, of the right dtype and shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...dtypes import name_of, numpy_dtype
from ...errors import UsageError, close_match
from ...program import Program, Role, Tensor
from .arrays import Array

GIVEN: tuple[Role, ...] = ("input", "param", "state")


def checked_inputs(program: Program, inputs: Mapping[str, Any], *roles: Role) -> dict[str, Array]:
    """The arrays of inputs, params and states, or of some of these. UsageError for one that is missing, unknown, or of
    another dtype or shape.
    """
    wanted = {tensor.name: tensor for tensor in program.of_role(*(roles or GIVEN))}
    for name in inputs:
        if name not in wanted:
            raise UsageError(
                f"{program.name} has no input {name!r}", where=f"input {name}", hint=close_match(name, list(wanted))
            )
    missing = [name for name in wanted if name not in inputs]
    if missing:
        listed = ", ".join(_described(wanted[name]) for name in missing)
        raise UsageError(
            f"{len(missing)} of {len(wanted)} inputs are missing",
            where=program.name,
            sides={"missing": listed, "given": ", ".join(inputs) or "nothing"},
        )
    return {name: _checked(tensor, np.asarray(inputs[name])) for name, tensor in wanted.items()}


def _described(tensor: Tensor) -> str:
    return f"{tensor.name} {tensor.dtype}{list(tensor.shape)}"


def _checked(tensor: Tensor, array: Array) -> Array:
    if array.dtype != numpy_dtype(tensor.dtype) or array.shape != tensor.shape:
        what = "dtype" if array.dtype != numpy_dtype(tensor.dtype) else "shape"
        raise UsageError(
            f"an input has the wrong {what}",
            where=f"input {tensor.name}",
            sides={
                "given": f"{_dtype_name(array)}{list(array.shape)}",
                "wanted": f"{tensor.dtype}{list(tensor.shape)}",
            },
        )
    return array


def _dtype_name(array: Array) -> str:
    try:
        return name_of(array.dtype)
    except KeyError:
        return str(array.dtype)
