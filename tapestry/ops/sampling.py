"""Images read at places that are values: between their pixels, and the places of an affine map."""

from __future__ import annotations

from itertools import product
from typing import Literal

from ..dsl.define import define
from ..dsl.door import door
from ..dsl.index import Index, indices
from ..dsl.tensor import Tensor, read_element
from ..dsl.trace import composite
from ..dtypes import DTYPES, promote
from ..errors import UsageError
from .elementwise import cast, floor, round  # noqa: A004
from .numbers import clip


@door
@composite
def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    mode: Literal["bilinear", "nearest"] = "bilinear",
    padding: Literal["zeros", "border"] = "zeros",
    align_corners: bool = False,
    name: str = "",
) -> Tensor:
    """x [n, c, h, w] at the places grid [n, p, q, 2] -> [n, c, p, q]: Jaderberg et al., arXiv:1506.02025.

    A place is (along w, along h), the image reaching from -1 to 1: from the first pixel's outer edge to the last one's,
    or, with ``align_corners``, from centre to centre. Outside x is 0, or with "border" as at the nearest pixel.
    """
    if x.ndim != 4 or grid.ndim != 4 or grid.shape[0] != x.shape[0] or grid.shape[3] != 2:
        sides = {"x": repr(x), "grid": repr(grid)}
        raise UsageError("grid_sample takes x [n, c, h, w] and grid [n, p, q, 2]", sides=sides)
    if DTYPES[grid.dtype].kind != "float" or DTYPES[x.dtype].kind != "float":
        raise UsageError("grid_sample takes floats", sides={"x": repr(x), "grid": repr(grid)})
    wide = promote(grid.dtype, "f32")
    sides_of = [
        _neighbours(cast(grid[..., 1 - k], wide), extent, mode, padding == "border", align_corners)
        for k, extent in enumerate(x.shape[2:])
    ]
    n, c, p, q = indices(n=x.shape[0], c=x.shape[1], p=grid.shape[1], q=grid.shape[2])
    total: Tensor | None = None
    for (row, above), (column, beside) in product(*sides_of):
        term = read_element(x, (n, c, row[n, p, q], column[n, p, q]), fill=0)
        for weight in (above, beside):
            term = term if weight is None else term * weight[n, p, q]
        total = term if total is None else total + term
    assert total is not None
    return define("grid_sample", (n, c, p, q), total, dtype=x.dtype)


def _neighbours(
    g: Tensor, extent: int, mode: str, border: bool, align_corners: bool
) -> list[tuple[Tensor, Tensor | None]]:
    """The pixels that a coordinate is read from along one axis, and their weights."""
    place = (g + 1) * ((extent - 1) / 2) if align_corners else ((g + 1) * extent - 1) * 0.5
    if border:
        place = clip(place, 0, extent - 1)
    if mode == "nearest":
        return [(cast(round(place), "int32"), None)]
    low = floor(place)
    share = place - low
    number = cast(low, "int32")
    return [(number, 1 - share), (number + 1, share)]


@door
@composite
def affine_grid(
    theta: Tensor, size: tuple[int, int, int, int], *, align_corners: bool = False, name: str = ""
) -> Tensor:
    """The places theta [n, 2, 3] (x, y, 1) of an image of ``size`` [n, c, h, w], for `grid_sample`: [n, h, w, 2]."""
    if theta.ndim != 3 or theta.shape[1:] != (2, 3) or len(size) != 4 or size[0] != theta.shape[0] or min(size) < 1:
        sides = {"theta": repr(theta), "size": tuple(size)}
        raise UsageError("affine_grid takes theta [n, 2, 3] and the extents [n, c, h, w] of an image", sides=sides)
    n, p, q, k = indices(n=size[0], p=size[2], q=size[3], k=2)
    wide = promote(theta.dtype, "f32")
    y, x = (_coordinate(i, extent, wide, align_corners) for i, extent in ((p, size[2]), (q, size[3])))
    return define(
        "affine_grid", (n, p, q, k), theta[n, k, 0] * x + theta[n, k, 1] * y + theta[n, k, 2], dtype=theta.dtype
    )


def _coordinate(i: Index, extent: int, wide: str, align_corners: bool) -> Tensor:
    """Where pixel i lies between -1 and 1."""
    if align_corners:
        return cast(2 * i - (extent - 1), wide) / max(1, extent - 1)
    return cast(2 * i - (extent - 1), wide) / extent
