"""NumPy calls in the form that steps of a kernel take, ``f(*inputs, out=array)``: choices, conversions and gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import TapestryError
from ...expr import Table
from .folding import Array, Scalar


def where_stored(condition: Array, yes: Array, no: Scalar, out: Array) -> None:
    np.copyto(out, no)
    np.copyto(out, yes, where=condition)


def lookup(table: Array, lo: int, read: str | None) -> Callable[..., None]:
    def local(index: Any, mask: Any, out: Array) -> None:
        """Local positions; 0 where the mask is off, an error (``read`` named) where it is on and nothing is stored."""
        at = np.subtract(index, lo)
        missing = (at < 0) | (at >= len(table))
        found = table.take(at, mode="clip")
        missing |= found < 0
        if read is not None and np.any(missing & mask):
            raise TapestryError(f"{read} touches elements that its buffer does not store")
        np.copyto(out, np.where(missing, 0, found))

    return local


def value_of(table: Table) -> Callable[..., None]:
    values = np.array(table.values, dtype=np.int64)

    def look_up(index: Any, out: Array) -> None:
        """The table's value at each index; the first and the last stand for all beyond."""
        np.take(values, index, out=out, mode="clip")

    return look_up


def take_from(array: Array) -> Callable[..., None]:
    flat = array.reshape(-1)

    def take(index: Any, out: Array) -> None:
        if isinstance(index, np.ndarray):
            np.take(flat, index, out=out, mode="clip")
        else:  # a tensor without axes
            out[...] = flat[index]

    return take


def copy_into(value: Any, out: Array) -> None:
    np.copyto(out, value, casting="unsafe")


def truth_into(value: Any, out: Array) -> None:
    np.not_equal(value, 0, out=out)
