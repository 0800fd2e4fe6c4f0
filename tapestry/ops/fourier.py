"""Fourier transforms along an axis. A complex number is a pair (real, imaginary) along a last axis of extent 2.

A transform is a block operation: it is cut along every axis but its own.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, Literal

from ..blocks import BLOCKS
from ..dsl.block import BlockOperation
from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.element import combine
from ..dsl.index import Index
from ..dsl.tensor import Tensor, unique_names
from ..dsl.trace import composite
from ..errors import UsageError
from ..expr import Affine
from .arranging import moveaxis
from .reduction import axis_position

Axis = int | str
Norm = Literal["backward", "ortho", "forward"]


@door
@composite
def fft(x: Tensor, axis: Axis = -2, *, norm: Norm = "backward", name: str = "") -> Tensor:
    """X[k] = sum over s of x[s] exp(-2 pi i k s / n): [.., n, .., 2] -> the same, pairs (real, imaginary) at the end.

    ``norm`` says which way is divided by n: "forward", "backward" (the inverse), or both by its root: "ortho".
    """
    return _complex(x, axis, norm, inverse=False)


@door
@composite
def ifft(x: Tensor, axis: Axis = -2, *, norm: Norm = "backward", name: str = "") -> Tensor:
    """The inverse of `fft`: [.., n, .., 2] -> the same."""
    return _complex(x, axis, norm, inverse=True)


@door
@composite
def rfft(x: Tensor, axis: Axis = -1, *, norm: Norm = "backward", name: str = "") -> Tensor:
    """The first n // 2 + 1 of `fft` of real numbers, which say all: [.., n, ..] -> [.., n // 2 + 1, .., 2]."""
    _demand_floats("rfft", x)
    j = axis_position(x, axis)
    return moveaxis(_scaled(transform_of_reals(moveaxis(x, j, -1)), x.shape[j], norm, inverse=False), -2, j)


@door
@composite
def irfft(x: Tensor, length: int, axis: Axis = -2, *, norm: Norm = "backward", name: str = "") -> Tensor:
    """The inverse of `rfft`: [.., length // 2 + 1, .., 2] -> [.., length, ..]. What is imaginary of the pairs that
    stand for one number, the first and of an even length the last, does not count.
    """
    j = _demand_pairs("irfft", x, axis)
    if length < 1 or x.shape[j] != length // 2 + 1:
        sides = {"x": repr(x), "length": length}
        hint = f"length is {2 * x.shape[j] - 2} or {2 * x.shape[j] - 1} here"
        raise UsageError(f"irfft of {x.shape[j]} pairs cannot be {length} long", sides=sides, hint=hint)
    return moveaxis(_scaled(inverse_to_reals(moveaxis(x, j, -2), length), length, norm, inverse=True), -1, j)


def _complex(x: Tensor, axis: Axis, norm: Norm, *, inverse: bool) -> Tensor:
    j = _demand_pairs("ifft" if inverse else "fft", x, axis)
    found = transform(moveaxis(x, j, -2), inverse=inverse)
    return moveaxis(_scaled(found, x.shape[j], norm, inverse=inverse), -2, j)


def _scaled(x: Tensor, n: int, norm: Norm, *, inverse: bool) -> Tensor:
    if norm == "ortho":
        return x * (1 / sqrt(n))
    return x * (1 / n) if inverse == (norm == "backward") else x


def _demand_floats(what: str, x: Tensor) -> None:
    if x.dtype not in ("f32", "f64") or not x.ndim:
        raise UsageError(f"{what} takes an axis of f32 or f64", sides={"x": repr(x)}, hint="tp.cast(x, 'f32')")


def _demand_pairs(what: str, x: Tensor, axis: Axis) -> int:
    """The number of the axis. UsageError unless x has pairs at the end."""
    _demand_floats(what, x)
    j = axis_position(x, axis)
    if x.shape[-1] != 2 or j == x.ndim - 1:
        hint = "tp.stack([real, imaginary], -1) makes such"
        raise UsageError(f"{what} takes pairs (real, imaginary) along a last axis", sides={"x": repr(x)}, hint=hint)
    return j


# -- the kernels, and what their derivatives are made of ---------------------------------------------------------------


def transform(x: Tensor, *, inverse: bool) -> Tensor:
    """[.., n, 2] -> [.., n, 2], not scaled."""
    return _called("fft", x, {"s": x.shape[-2], "c": 2}, {"k": x.shape[-2], "d": 2}, inverse=inverse)


def transform_of_reals(x: Tensor) -> Tensor:
    """[.., n] -> [.., n // 2 + 1, 2], not scaled."""
    return _called("rfft", x, {"s": x.shape[-1]}, {"k": x.shape[-1] // 2 + 1, "d": 2})


def inverse_to_reals(x: Tensor, length: int) -> Tensor:
    """[.., length // 2 + 1, 2] -> [.., length], not scaled."""
    return _called("irfft", x, {"k": x.shape[-2], "c": 2}, {"s": length}, length=length)


def doubled(x: Tensor, length: int, factor: float) -> Tensor:
    """Pairs [.., length // 2 + 1, 2] times a factor, but for those that stand for one number alone."""
    i = axes_of(x)
    lone = combine("logical_or", combine("equal", i[-2], 0), combine("equal", i[-2] * 2, length))
    return define("doubled", i, combine("where", lone, x[i], combine("multiply", x[i], factor)), dtype=x.dtype)


def _called(kernel: str, x: Tensor, fold: dict[str, int], make: dict[str, int], **attributes: Any) -> Tensor:
    """A kernel on the last axes of a tensor; the others keep their names where these are not taken."""
    kept = x.ndim - len(fold)
    names = unique_names((*fold, *make, *x.axes[:kept]))[len(fold) + len(make) :]
    extents = {**dict(zip(names, x.shape, strict=False)), **fold, **make}
    i = {name: Index(Affine.dim(name), {name: extent}) for name, extent in extents.items()}
    read = x[tuple(i[name] for name in (*names, *fold))]
    return BlockOperation(BLOCKS[kernel])(read, fold=[i[n] for n in fold], make=[i[n] for n in make], **attributes)
