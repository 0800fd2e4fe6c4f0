"""Inputs at the door: every tensor that a run needs, and no other, of the right dtype and shape."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from ...dtypes import name_of
from ...errors import UsageError, close_match
from ...program import Program, Role, Tensor
from ..tensors import host_array, is_host

GIVEN: tuple[Role, ...] = ("input", "param", "state")
Value = TypeVar("Value")


class Unread(UserWarning):
    """A file or dictionary of weights holds more than the program reads."""


def read_of(program: Program, values: Mapping[str, Value], where: str, *roles: Role) -> dict[str, Value]:
    """What the program is given of a checkpoint that holds more: `Unread` names the rest.

    Where something of the roles is missing nothing is left out, so that whoever looks for it meets the name that it may
    have been meant to be.
    """
    known = {tensor.name for tensor in program.of_role(*GIVEN)}
    more = [name for name in values if name not in known]
    if not more or not {tensor.name for tensor in program.of_role(*roles)} <= values.keys():
        return dict(values)
    listed = ", ".join(more[:4]) + (f" and {len(more) - 4} more" if len(more) > 4 else "")
    warnings.warn(Unread(f"{where} holds what {program.name} does not read: {listed}"), stacklevel=3)
    return {name: value for name, value in values.items() if name in known}


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
