"""Tensors by name in safetensors files: what a run is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from ...dtypes import DTYPES, numpy_dtype
from ...errors import UsageError, close_match
from ...program import Program, Tensor

Array = np.ndarray[Any, np.dtype[Any]]


def wanted(program: Program) -> tuple[Tensor, ...]:
    """What a run has to be given: inputs, params and states."""
    return program.of_role("input", "param", "state")


def load_tensors(path: Path, program: Program) -> dict[str, Array]:
    """The inputs, params and states of the program, whole, by name.

    Raises UsageError for a file that cannot be read, is truncated or contradicts itself, and for a tensor that is
    missing, unknown, or of another dtype or shape than the program's.
    """
    stored = _read(path)
    tensors = wanted(program)
    _same_names(path, [tensor.name for tensor in tensors], list(stored))
    return {tensor.name: _array(path, tensor, stored[tensor.name]) for tensor in tensors}


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return dict(safetensors.deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except safetensors.SafetensorError as error:
        raise UsageError(f"not a whole safetensors file: {error}", where=str(path)) from error


def _same_names(path: Path, expected: Sequence[str], found: Sequence[str]) -> None:
    for name in found:
        if name not in expected:
            raise UsageError(
                f"holds {name!r}, which the program is not given", where=str(path), hint=close_match(name, [*expected])
            )
    if missing := [name for name in expected if name not in found]:
        sides = {"program": ", ".join(expected), "file": ", ".join(found) or "no tensors"}
        raise UsageError(f"{missing[0]!r} is missing", where=str(path), sides=sides)


def _array(path: Path, tensor: Tensor, stored: Mapping[str, Any]) -> Array:
    expected, found = (DTYPES[tensor.dtype].stored, list(tensor.shape)), (stored["dtype"], list(stored["shape"]))
    if found != expected:
        sides = {"program": "{} {}".format(*expected), "file": "{} {}".format(*found)}
        raise UsageError(f"{tensor.name!r} is of another dtype or shape", where=str(path), sides=sides)
    raw = np.frombuffer(stored["data"], dtype=np.uint8)
    if tensor.dtype == "bool" and raw.size and raw.max() > 1:
        raise UsageError(f"{tensor.name!r} holds bytes that are no booleans", where=str(path), witness=str(raw.max()))
    array: Array = raw.view(numpy_dtype(tensor.dtype)).reshape(tensor.shape)
    return array
