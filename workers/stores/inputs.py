"""Inputs at the door: every tensor that a run needs, and no other, of the right dtype and shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...dtypes import name_of
from ...errors import UsageError, close_match
from ...program import Program, Role, Tensor
from ..tensors import host_array, is_host

GIVEN: tuple[Role, ...] = ("input", "param", "state")


def checked_inputs(
    program: Program, inputs: Mapping[str, Any], *roles: Role, elsewhere: bool = False
) -> dict[str, Any]:
    """The arrays of inputs, params and states, or of some of these: NumPy's, sharing the memory of what was given, or
    (``elsewhere``) what was given itself where it does not lie in host memory. UsageError for one that is missing,
    unknown, or of another dtype or shape, or that lies elsewhere.
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
    given = {name: value if elsewhere and not is_host(value) else host_array(value) for name, value in inputs.items()}
    return {name: _checked(tensor, given[name]) for name, tensor in wanted.items()}


def _described(tensor: Tensor) -> str:
    return f"{tensor.name} {tensor.dtype}{list(tensor.shape)}"


def _checked(tensor: Tensor, array: Any) -> Any:
    wrong = _dtype_name(array) != tensor.dtype
    if wrong or tuple(array.shape) != tensor.shape:
        what = "dtype" if wrong else "shape"
        raise UsageError(
            f"an input has the wrong {what}",
            where=f"input {tensor.name}",
            sides={
                "given": f"{_dtype_name(array)}{list(array.shape)}",
                "wanted": f"{tensor.dtype}{list(tensor.shape)}",
            },
        )
    return array


def _dtype_name(array: Any) -> str:
    """Our name of the dtype of an array, or of a tensor of another library; theirs where we have none."""
    try:
        return name_of(array.dtype if isinstance(array, np.ndarray) else np.dtype(str(array.dtype).rpartition(".")[2]))
    except (KeyError, TypeError):
        return str(array.dtype)
