"""Images of other extents: interpolation, pixels shuffled from channels to space, windows taken out and put back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from .views import pad, reshape, transpose

Mode = Literal["nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area"]
_RANK = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
_KEYS = -0.75
Weighed = tuple[tuple[Index, Tensor], ...]  # elements beside a place, and their weights
Beside = Callable[[Index, int, int, str], Weighed]


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
    below 0, or, with ``align_corners``, at p (in - 1) / (out - 1). "bicubic" weighs four along each axis (Keys, 1981,
    with a = -3/4), edges continued. Raises UsageError for a size that does not fit.
    """
    rank = x.ndim - 2
    if rank < 1 or not all(x.shape[2:]):
        raise UsageError("interpolate takes [n, c, spatial...]", sides={"x": repr(x)})
    new = _extents(x, rank, size, scale)
    if mode == "area":
        from .adaptive import adaptive_mean

        return adaptive_mean("interpolate", x, new, name)
    if mode in _RANK:
        if _RANK[mode] != rank:
            raise UsageError(f"interpolate: {mode} is for {_RANK[mode]} spatial axes", sides={"x": repr(x)})
        beside, taken = (
            (_four, pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")) if mode == "bicubic" else (_two, x)
        )
        return _weighed(x, taken, new, beside, align_corners, name)
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


def _weighed(x: Tensor, taken: Tensor, new: tuple[int, ...], beside: Beside, align: bool, name: str) -> Tensor:
    """The sum over the elements beside a place, along each axis, of an element times the product of its weights.

    ``taken``: x, or what continues it.
    """
    wide = promote(x.dtype, "f32") if DTYPES[x.dtype].kind == "float" else "f32"
    every = axes_of(x)
    out = tuple(indices("", **{str(i): m}) for i, m in zip(every[2:], new, strict=True))
    sides = [beside(*_place(p, n, m, align), n, wide) for p, n, m in zip(out, x.shape[2:], new, strict=True)]
    total: Tensor | None = None
    for corner in product(*sides):
        term = taken.get(*every[:2], *(place for place, _ in corner))
        for _, weight in corner:
            term = term * weight
        total = term if total is None else total + term
    assert total is not None
    stored = x.dtype if DTYPES[x.dtype].kind == "float" else None
    return define("interpolate", (*every[:2], *out), total, dtype=stored, explicit=name)


def _place(p: Index, n: int, m: int, align: bool) -> tuple[Index, int]:
    """Where the p-th of m lies among n: so much over so much, exact, whatever the floats."""
    return (p * (n - 1), max(1, m - 1)) if align else ((2 * p + 1) * n - m, 2 * m)


def _two(over: Index, under: int, n: int, wide: str) -> Weighed:
    """The two elements beside a place. Where one of them is not there the other has all weight."""
    low = over // under
    share = cast(over % under, wide) / under
    return (low, where(low >= n - 1, 1.0, 1 - share)), (low + 1, where(low < 0, 1.0, share))


def _four(over: Index, under: int, n: int, wide: str) -> Weighed:
    """The four elements beside a place, of what has two more elements before."""
    low = over // under
    t = cast(over % under, wide) / under
    return tuple((low + 1 + k, weight) for k, weight in enumerate((_far(t + 1), _near(t), _near(1 - t), _far(2 - t))))


def _near(t: Tensor) -> Tensor:
    """The weight of an element no farther than 1."""
    return ((_KEYS + 2) * t - (_KEYS + 3)) * t * t + 1


def _far(t: Tensor) -> Tensor:
    """The weight of an element between 1 and 2 away."""
    return ((t - 5) * t + 8) * t * _KEYS - 4 * _KEYS


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
