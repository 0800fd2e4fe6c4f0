"""Images of other extents: interpolation, pixels shuffled from channels to space, windows taken out and put back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Literal

from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.index import Index, indices
from ..dsl.tensor import Tensor
from ..dtypes import DTYPES, promote
from ..errors import UsageError
from ..expr import Affine, Expr
from .elementwise import cast, where
from .views import reshape, transpose

Mode = Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "area"]
_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}


@door
def interpolate(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    *,
    scale: int | Sequence[int] | None = None,
    mode: Mode = "nearest",
    align_corners: bool = False,
    name: str = "",
) -> Tensor:
    """x [n, c, spatial...] at other spatial extents: ``size``, or integer multiples by ``scale``.

    "nearest" reads x[p in // out], "nearest-exact" x[(2 p + 1) in // (2 out)], "area" the mean of what falls on p (see
    `adaptive_avg_pool2d`), the linear modes weigh the two neighbours along each axis: at (p + 1/2) in / out - 1/2, not
    below 0, or, with ``align_corners``, at p (in - 1) / (out - 1). Raises UsageError for a size that does not fit.
    """
    rank = x.ndim - 2
    if rank < 1 or not all(x.shape[2:]):
        raise UsageError("interpolate takes [n, c, spatial...]", sides={"x": repr(x)})
    new = _extents(x, rank, size, scale)
    if mode == "area":
        from .adaptive import adaptive_mean

        return adaptive_mean("interpolate", x, new, name)
    if mode in _LINEAR:
        if _LINEAR[mode] != rank:
            raise UsageError(f"interpolate: {mode} is for {_LINEAR[mode]} spatial axes", sides={"x": repr(x)})
        return _linear(x, new, align_corners, name)
    return _nearest(x, new, mode == "nearest-exact")


def _extents(
    x: Tensor, rank: int, size: int | Sequence[int] | None, scale: int | Sequence[int] | None
) -> tuple[int, ...]:
    if (size is None) == (scale is None):
        raise UsageError("interpolate takes either size= or scale=", sides={"size": size, "scale": scale})
    given = size if size is not None else scale
    found = (given,) * rank if isinstance(given, int) else tuple(given or ())
    if len(found) != rank or min(found) < 1:
        raise UsageError(f"interpolate({'size' if scale is None else 'scale'}={given!r})",
                         hint=f"1 or more, for all axes or for each of {rank}")  # fmt: skip
    return found if scale is None else tuple(n * s for n, s in zip(x.shape[2:], found, strict=True))


def _nearest(x: Tensor, new: tuple[int, ...], exact: bool) -> Tensor:
    old = x.shape[2:]

    def at(index: tuple[Affine, ...]) -> Expr:
        moved = zip(index[2:], old, new, strict=True)
        return x.at((*index[:2], *((p * 2 + 1) * n // (2 * m) if exact else p * n // m for p, n, m in moved)))

    return x.view((*x.shape[:2], *new), x.axes, at)


def _linear(x: Tensor, new: tuple[int, ...], align: bool, name: str) -> Tensor:
    """The sum over the corners of a cell of an element times the product of its weights."""
    wide = promote(x.dtype, "f32") if DTYPES[x.dtype].kind == "float" else "f32"
    every = axes_of(x)
    out = tuple(indices("", **{str(i): m}) for i, m in zip(every[2:], new, strict=True))
    sides = [_neighbours(p, n, m, align, wide) for p, n, m in zip(out, x.shape[2:], new, strict=True)]
    total: Tensor | None = None
    for corner in product(*sides):
        term = x.get(*every[:2], *(place for place, _ in corner))
        for _, weight in corner:
            term = term * weight
        total = term if total is None else total + term
    assert total is not None
    stored = x.dtype if DTYPES[x.dtype].kind == "float" else None
    return define("interpolate", (*every[:2], *out), total, dtype=stored, explicit=name)


def _neighbours(p: Index, n: int, m: int, align: bool, wide: str) -> tuple[tuple[Index, Tensor], tuple[Index, Tensor]]:
    """The two elements beside position p, and their weights. Where one of them is not there the other has all weight.

    The position is over / under, the lower neighbour over // under: exact, whatever the floats.
    """
    over, under = (p * (n - 1), max(1, m - 1)) if align else ((2 * p + 1) * n - m, 2 * m)
    low = over // under
    share = cast(over % under, wide) / under
    return (low, where(low >= n - 1, 1.0, 1 - share)), (low + 1, where(low < 0, 1.0, share))


@door
def pixel_shuffle(x: Tensor, factor: int) -> Tensor:
    """[.., c f², h, w] -> [.., c, h f, w f]: channels become pixels, arXiv:1609.05158."""
    if x.ndim < 3 or factor < 1 or x.shape[-3] % factor**2:
        raise UsageError(
            f"pixel_shuffle by {factor}: the channels are no multiple of {factor**2}", sides={"x": repr(x)}
        )
    *outer, c, h, w = x.shape
    apart = reshape(x, (*outer, c // factor**2, factor, factor, h, w))
    k = len(outer)
    turned = transpose(apart, (*range(k + 1), k + 3, k + 1, k + 4, k + 2))
    return reshape(turned, (*outer, c // factor**2, h * factor, w * factor), axes=x.axes)


@door
def pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    """[.., c, h f, w f] -> [.., c f², h, w]: the inverse of `pixel_shuffle`."""
    if x.ndim < 3 or factor < 1 or x.shape[-1] % factor or x.shape[-2] % factor:
        raise UsageError(f"pixel_unshuffle by {factor}: it does not divide the image", sides={"x": repr(x)})
    *outer, c, h, w = x.shape
    apart = reshape(x, (*outer, c, h // factor, factor, w // factor, factor))
    k = len(outer)
    turned = transpose(apart, (*range(k + 1), k + 2, k + 4, k + 1, k + 3))
    return reshape(turned, (*outer, c * factor**2, h // factor, w // factor), axes=x.axes)


@door
def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """[n, c, ..]: channel g (c / groups) + i comes from i groups + g the other way round, arXiv:1707.01083."""
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise UsageError(f"channel_shuffle: {groups} groups do not divide the channels", sides={"x": repr(x)})
    apart = reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    turned = transpose(apart, (0, 2, 1, *range(3, x.ndim + 1)))
    return reshape(turned, x.shape, axes=x.axes)
