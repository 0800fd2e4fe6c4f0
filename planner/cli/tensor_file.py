"""Tensors by name in safetensors files: what a run is given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...dtypes import name_of
from ...errors import UsageError, close_match
from ...program import Program, Tensor
from ...workers.stores.inputs import GIVEN, read_of
from ...workers.stores.tensors import read_tensors

Array = np.ndarray[Any, np.dtype[Any]]


def wanted(program: Program) -> tuple[Tensor, ...]:
    """What a run has to be given: inputs, params and states."""
    return program.of_role(*GIVEN)


def load_tensors(path: Path, program: Program) -> dict[str, Array]:
    """The inputs, params and states of the program, whole, by name.

    Raises UsageError for a file that cannot be read, is truncated or contradicts itself, and for a tensor that is
    missing or of another dtype or shape than the program's. A warning (`Unread`) names tensors that it does not read.
    """
    tensors = wanted(program)
    stored = read_of(program, read_tensors(path), str(path), *GIVEN)
    _same_names(path, [tensor.name for tensor in tensors], list(stored))
    return {tensor.name: _checked(path, tensor, stored[tensor.name]) for tensor in tensors}


def _same_names(path: Path, expected: Sequence[str], found: Sequence[str]) -> None:
    for name in found:
        if name not in expected:
            raise UsageError(
                f"holds {name!r}, which the program is not given", where=str(path), hint=close_match(name, [*expected])
            )
    if missing := [name for name in expected if name not in found]:
        sides = {"program": ", ".join(expected), "file": ", ".join(found) or "no tensors"}
        raise UsageError(f"{missing[0]!r} is missing", where=str(path), sides=sides)


def _checked(path: Path, tensor: Tensor, array: Array) -> Array:
    found, expected = (name_of(array.dtype), list(array.shape)), (tensor.dtype, list(tensor.shape))
    if found != expected:
        sides = {"program": "{}{}".format(*expected), "file": "{}{}".format(*found)}
        raise UsageError(f"{tensor.name!r} is of another dtype or shape", where=str(path), sides=sides)
    return array
