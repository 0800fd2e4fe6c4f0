"""Pooling to given extents: output p of m takes the elements from p n // m up to ceil((p + 1) n / m) of n."""

from __future__ import annotations

from collections.abc import Sequence

from ..dsl.define import define
from ..dsl.door import door
from ..dsl.index import Index, indices
from ..dsl.tensor import Tensor
from ..dtypes import DTYPES
from ..errors import UsageError
from .elementwise import cast
from .reduction import max as largest
from .reduction import sum as fold

Extents = int | Sequence[int]


@door
def adaptive_avg_pool1d(x: Tensor, size: Extents, *, name: str = "") -> Tensor:
    """x [n, c, x] -> [n, c, size]. See `adaptive_avg_pool2d`."""
    return adaptive_mean("adaptive_avg_pool1d", x, _size("adaptive_avg_pool1d", 1, x, size), name)


@door
def adaptive_avg_pool2d(x: Tensor, size: Extents, *, name: str = "") -> Tensor:
    """x [n, c, y, x] -> [n, c, *size]: the mean over windows that cover the image, as equal as they can be."""
    return adaptive_mean("adaptive_avg_pool2d", x, _size("adaptive_avg_pool2d", 2, x, size), name)


@door
def adaptive_avg_pool3d(x: Tensor, size: Extents, *, name: str = "") -> Tensor:
    """x [n, c, z, y, x] -> [n, c, *size]. See `adaptive_avg_pool2d`."""
    return adaptive_mean("adaptive_avg_pool3d", x, _size("adaptive_avg_pool3d", 3, x, size), name)


@door
def adaptive_max_pool1d(x: Tensor, size: Extents, *, name: str = "") -> Tensor:
    """x [n, c, x] -> [n, c, size]: the largest element of each window. See `adaptive_avg_pool2d`."""
    return _adaptive_max("adaptive_max_pool1d", x, _size("adaptive_max_pool1d", 1, x, size), name)


@door
def adaptive_max_pool2d(x: Tensor, size: Extents, *, name: str = "") -> Tensor:
    """x [n, c, y, x] -> [n, c, *size]: the largest element of each window. See `adaptive_avg_pool2d`."""
    return _adaptive_max("adaptive_max_pool2d", x, _size("adaptive_max_pool2d", 2, x, size), name)


@door
def adaptive_max_pool3d(x: Tensor, size: Extents, *, name: str = "") -> Tensor:
    """x [n, c, z, y, x] -> [n, c, *size]: the largest element of each window. See `adaptive_avg_pool2d`."""
    return _adaptive_max("adaptive_max_pool3d", x, _size("adaptive_max_pool3d", 3, x, size), name)


def _size(call: str, rank: int, x: Tensor, size: Extents) -> tuple[int, ...]:
    found = (size,) * rank if isinstance(size, int) else tuple(size)
    if x.ndim != rank + 2 or not all(x.shape[2:]):
        raise UsageError(f"{call} takes a tensor of {rank + 2} axes with elements", sides={"x": repr(x)})
    if len(found) != rank or min(found) < 1:
        raise UsageError(f"{call}(size={size!r})", hint=f"1 or more, for all axes or for each of {rank}")
    return found


Windows = tuple[list[Index], list[Index], list[Index], list[Index], dict[str, int], Tensor | None]


def _windows(x: Tensor, size: tuple[int, ...]) -> Windows:
    """Indices of n and c, of the output, of the window and of what is read; extents; which points are in a window."""
    rank = len(size)
    found = list(indices(" ".join(["n", "c", *"opq"[3 - rank :], *"trs"[3 - rank :]])))
    lead, out, window = found[:2], found[2 : 2 + rank], found[2 + rank :]
    given, inside, at = {"n": x.shape[0], "c": x.shape[1]}, None, []
    for p, r, n, m in zip(out, window, x.shape[2:], size, strict=True):
        starts = [k * n // m for k in range(m)]
        lengths = {-(-(k + 1) * n // m) - first for k, first in enumerate(starts)}
        given |= {str(p): m, str(r): max(lengths)}
        at.append(p * n // m + r)
        if len(lengths) > 1:
            held = r < _end(p, n, m) - p * n // m
            inside = held if inside is None else inside & held
    return lead, out, window, at, given, inside


def _end(p: Index, n: int, m: int) -> Index:
    """ceil((p + 1) n / m)."""
    return (p * n + n + m - 1) // m


def adaptive_mean(call: str, x: Tensor, size: tuple[int, ...], name: str) -> Tensor:
    """The mean over the windows."""
    lead, out, window, at, given, inside = _windows(x, size)
    value, stored = x[(*lead, *at)], None
    if DTYPES[x.dtype].kind == "float":
        value, stored = cast(value, DTYPES[x.dtype].compute), x.dtype
    for p, n, m in zip(out, x.shape[2:], size, strict=True):
        value = value / (n // m if n % m == 0 else (_end(p, n, m) - p * n // m))
    total = fold[tuple(window)](value, where=inside)
    return define(call, [*lead, *out], total, dtype=stored, explicit=name, extents=given)


def _adaptive_max(call: str, x: Tensor, size: tuple[int, ...], name: str) -> Tensor:
    lead, out, window, at, given, inside = _windows(x, size)
    total = largest[tuple(window)](x[(*lead, *at)], where=inside)
    return define(call, [*lead, *out], total, explicit=name, extents=given)
