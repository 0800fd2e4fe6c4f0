"""Tensors that are made of indices alone: ranges, identities, one number everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dsl.define import define
from ..dsl.door import door
from ..dsl.index import Index, indices
from ..dsl.tensor import Tensor
from ..dtypes import DTYPES, promote
from ..errors import UsageError
from .elementwise import cast, full, where


@door
def arange(
    start: float, stop: float | None = None, step: float = 1, *, dtype: str | None = None, name: str = ""
) -> Tensor:
    """start, start + step, ... before ``stop``; with one argument from 0. Integers are int64, other numbers f32."""
    first, end = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise UsageError("arange has step 0", hint="a step above or below 0")
    whole = all(isinstance(value, int) for value in (first, end, step))
    (n,) = _indices(n=max(0, int(-((first - end) // step))))
    if whole:
        return define("arange", (n,), cast(n * int(step) + int(first) * 1, dtype or "int64"), explicit=name)
    return _line("arange", n, first, step, dtype or "f32", name)


@door
def linspace(start: float, stop: float, count: int, *, dtype: str = "f32", name: str = "") -> Tensor:
    """So many equally spaced numbers, both ends included: start + n (stop - start) / (count - 1)."""
    (n,) = _indices(n=count)
    return _line("linspace", n, start, (stop - start) / (count - 1) if count > 1 else 0.0, dtype, name)


def _line(function: str, n: Index, start: float, step: float, dtype: str, name: str) -> Tensor:
    """start + n step, in f32 at least."""
    Tensor.check_dtype(dtype)
    wide = promote(dtype, "f32") if DTYPES[dtype].kind == "float" else "f32"
    return define(function, (n,), cast(cast(n, wide) * step + start, dtype), explicit=name)


@door
def eye(rows: int, columns: int | None = None, *, offset: int = 0, dtype: str = "f32", name: str = "") -> Tensor:
    """1 on a diagonal, 0 elsewhere."""
    i, j = _indices(i=rows, j=rows if columns is None else columns)
    return define("eye", (i, j), cast(where(j - i == offset, 1, 0), Tensor.check_dtype(dtype)), explicit=name)


def _indices(**extents: int) -> tuple[Index, ...]:
    return tuple(indices("", **{name: extent}) for name, extent in extents.items())


@door
def zeros(shape: Sequence[int], dtype: str = "f32", *, axes: Sequence[str] | None = None, name: str = "") -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype, axes=axes, name=name)


@door
def ones(shape: Sequence[int], dtype: str = "f32", *, axes: Sequence[str] | None = None, name: str = "") -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, axes=axes, name=name)


@door
def full_like(x: Tensor, value: Any, dtype: str | None = None, *, name: str = "") -> Tensor:
    """A tensor of one number, with the shape and axes of x, and its dtype unless another is given."""
    return full(x.shape, value, dtype or x.dtype, axes=x.axes, name=name)


@door
def zeros_like(x: Tensor, dtype: str | None = None, *, name: str = "") -> Tensor:
    """Zeros with the shape and axes of x."""
    return full_like(x, 0, dtype, name=name)


@door
def ones_like(x: Tensor, dtype: str | None = None, *, name: str = "") -> Tensor:
    """Ones with the shape and axes of x."""
    return full_like(x, 1, dtype, name=name)
