"""Pooling: a fold over a window, [n, c, spatial...] -> [n, c, spatial...], extents as for a convolution."""

from __future__ import annotations

from collections.abc import Sequence

from ..dsl.define import define
from ..dsl.door import door
from ..dsl.index import Index, indices
from ..dsl.tensor import Tensor
from ..dtypes import DTYPES, extreme
from ..errors import UsageError
from .convolution import Padding, Pair, paddings, per_axis
from .elementwise import cast, maximum, minimum
from .reduction import max as largest
from .reduction import sum as fold
from .views import pad as pad_view

_OUT, _WINDOW = ("o", "p", "q"), ("t", "r", "s")


@door
def max_pool1d(
    x: Tensor, window: Pair, *, stride: Pair | None = None, padding: Padding = 0, dilation: Pair = 1, name: str = ""
) -> Tensor:
    """x [n, c, x] -> [n, c, q]. See `max_pool2d`."""
    return _max_pool(1, x, window, stride, padding, dilation, name)


@door
def max_pool2d(
    x: Tensor, window: Pair, *, stride: Pair | None = None, padding: Padding = 0, dilation: Pair = 1, name: str = ""
) -> Tensor:
    """out[n, c, p, q] = max over r, s of x[n, c, stride*p + dilation*r - before, ...].

    Outside, x is -inf, or the least integer. ``stride`` None is the window's extent. Raises ReadOutOfBounds where the
    window is wider than the padded image.
    """
    return _max_pool(2, x, window, stride, padding, dilation, name)


@door
def max_pool3d(
    x: Tensor, window: Pair, *, stride: Pair | None = None, padding: Padding = 0, dilation: Pair = 1, name: str = ""
) -> Tensor:
    """x [n, c, z, y, x] -> [n, c, o, p, q]. See `max_pool2d`."""
    return _max_pool(3, x, window, stride, padding, dilation, name)


@door
def avg_pool1d(
    x: Tensor,
    window: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    count_include_pad: bool = True,
    name: str = "",
) -> Tensor:
    """x [n, c, x] -> [n, c, q]. See `avg_pool2d`."""
    return _avg_pool(1, x, window, stride, padding, count_include_pad, name)


@door
def avg_pool2d(
    x: Tensor,
    window: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    count_include_pad: bool = True,
    name: str = "",
) -> Tensor:
    """The mean over the window, x being 0 outside.

    The divisor is the window's size, or, with ``count_include_pad`` False, the number of its elements inside x.
    """
    return _avg_pool(2, x, window, stride, padding, count_include_pad, name)


@door
def avg_pool3d(
    x: Tensor,
    window: Pair,
    *,
    stride: Pair | None = None,
    padding: Padding = 0,
    count_include_pad: bool = True,
    name: str = "",
) -> Tensor:
    """x [n, c, z, y, x] -> [n, c, o, p, q]. See `avg_pool2d`."""
    return _avg_pool(3, x, window, stride, padding, count_include_pad, name)


@door
def lp_pool1d(x: Tensor, power: float, window: Pair, *, stride: Pair | None = None, name: str = "") -> Tensor:
    """x [n, c, x] -> [n, c, q]. See `lp_pool2d`."""
    return _lp_pool(1, x, power, window, stride, name)


@door
def lp_pool2d(x: Tensor, power: float, window: Pair, *, stride: Pair | None = None, name: str = "") -> Tensor:
    """(sum over the window of x ** power) ** (1 / power), as torch has it: signs count where the power is odd."""
    return _lp_pool(2, x, power, window, stride, name)


@door
def lp_pool3d(x: Tensor, power: float, window: Pair, *, stride: Pair | None = None, name: str = "") -> Tensor:
    """x [n, c, z, y, x] -> [n, c, o, p, q]. See `lp_pool2d`."""
    return _lp_pool(3, x, power, window, stride, name)


def _lp_pool(rank: int, x: Tensor, power: float, window: Pair, stride: Pair | None, name: str) -> Tensor:
    call = f"lp_pool{rank}d"
    if power <= 0 or DTYPES[x.dtype].kind != "float":
        raise UsageError(f"{call} takes floats and a power above 0", sides={"x": repr(x), "power": power})
    extents = _window(call, rank, x, window)
    lead, out, inner = _indices(rank)
    steps = per_axis(call, "stride", window if stride is None else stride, rank)
    at = [a * i + j for a, i, j in zip(steps, out, inner, strict=True)]
    value = cast(x[(*lead, *at)], DTYPES[x.dtype].compute) ** power
    body = fold[tuple(inner)](value) ** (1 / power)
    ranges = dict(zip(map(str, inner), extents, strict=True))
    return define(call, [*lead, *out], body, dtype=x.dtype, explicit=name, extents=ranges)


def _max_pool(
    rank: int, x: Tensor, window: Pair, stride: Pair | None, padding: Padding, dilation: Pair, name: str
) -> Tensor:
    call = f"max_pool{rank}d"
    extents = _window(call, rank, x, window)
    gaps = per_axis(call, "dilation", dilation, rank)
    pads = paddings(call, padding, extents, gaps)
    padded = pad_view(x, [(0, 0), (0, 0), *pads], value=extreme(x.dtype, float("-inf"))) if any(map(any, pads)) else x
    lead, out, inner = _indices(rank)
    steps = per_axis(call, "stride", window if stride is None else stride, rank)
    at = [a * i + b * j for a, i, b, j in zip(steps, out, gaps, inner, strict=True)]
    body = largest[tuple(inner)](padded[(*lead, *at)])
    return define(call, [*lead, *out], body, explicit=name, extents=dict(zip(map(str, inner), extents, strict=True)))


def _avg_pool(
    rank: int, x: Tensor, window: Pair, stride: Pair | None, padding: Padding, include: bool, name: str
) -> Tensor:
    call = f"avg_pool{rank}d"
    extents = _window(call, rank, x, window)
    pads = paddings(call, padding, extents, (1,) * rank)
    padded = pad_view(x, [(0, 0), (0, 0), *pads]) if any(map(any, pads)) else x
    lead, out, inner = _indices(rank)
    steps = per_axis(call, "stride", window if stride is None else stride, rank)
    at = [a * i + j for a, i, j in zip(steps, out, inner, strict=True)]
    value, stored = padded[(*lead, *at)], None
    if DTYPES[x.dtype].kind == "float" and DTYPES[x.dtype].compute != x.dtype:
        # A window may have more elements than 16 bits of a float can count; they compute in f32 anyway.
        value, stored = cast(value, DTYPES[x.dtype].compute), x.dtype
    for i, a, extent, (before, after), whole in zip(out, steps, extents, pads, x.shape[2:], strict=True):
        first = a * i - before
        inside = minimum(first + extent, whole) - maximum(first, 0)
        value = value / (extent if include or not (before or after) else inside)
    return define(
        call,
        [*lead, *out],
        fold[tuple(inner)](value),
        dtype=stored,
        explicit=name,
        extents=dict(zip(map(str, inner), extents, strict=True)),
    )


def _indices(rank: int) -> tuple[list[Index], list[Index], list[Index]]:
    """Indices of n and c, of the output's spatial axes, of the window."""
    names = ["n", "c", *_OUT[3 - rank :], *_WINDOW[3 - rank :]]
    found = list(indices(" ".join(names)))
    return found[:2], found[2 : 2 + rank], found[2 + rank :]


def _window(call: str, rank: int, x: Tensor, window: Pair) -> Sequence[int]:
    if x.ndim != rank + 2:
        raise UsageError(f"{call} takes a tensor of {rank + 2} axes", sides={"x": repr(x)})
    return per_axis(call, "window", window, rank)
