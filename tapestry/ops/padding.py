"""Padding with what is inside: the border is x again, read at other places. Views, as all of `tapestry.ops.views`."""

from __future__ import annotations

from collections.abc import Sequence

from ..dsl.tensor import Tensor
from ..errors import UsageError
from .views import broadcast_to, concat, slice_view


def continued(x: Tensor, pairs: Sequence[tuple[int, int]], mode: str) -> Tensor:
    """x with (before, after) more elements along each axis. UsageError for more than x has to offer, and below 0."""
    for k, (before, after) in enumerate(pairs):
        if before or after:
            x = _along(x, k, before, after, mode)
    return x


def _along(x: Tensor, k: int, before: int, after: int, mode: str) -> Tensor:
    extent = x.shape[k]
    most = {"edge": before + after, "reflect": extent - 1, "symmetric": extent, "circular": extent}[mode]
    if min(before, after) < 0 or max(before, after) > most or not extent:
        sides = {"x": repr(x), "widths": (before, after)}
        what = f"pad: {mode} has no {max(before, after)} elements to continue {x.axes[k]} of extent {extent} with"
        raise UsageError(what, sides=sides, hint="pad less, or twice")
    skip = 1 if mode == "reflect" else 0
    if mode == "edge":
        left, right = (_repeated(x, k, at, count) for at, count in ((0, before), (extent - 1, after)))
    elif mode == "circular":
        left, right = _cut(x, k, slice(extent - before, extent)), _cut(x, k, slice(0, after))
    else:
        left = _cut(_cut(x, k, slice(skip, skip + before)), k, slice(None, None, -1))
        right = _cut(_cut(x, k, slice(extent - skip - after, extent - skip)), k, slice(None, None, -1))
    return concat([part for part, count in ((left, before), (x, 1), (right, after)) if count], k)


def _cut(x: Tensor, k: int, part: slice) -> Tensor:
    return slice_view(x, (*[slice(None)] * k, part))


def _repeated(x: Tensor, k: int, at: int, count: int) -> Tensor:
    one = _cut(x, k, slice(at, at + 1))
    return broadcast_to(one, (*x.shape[:k], count, *x.shape[k + 1 :]), axes=x.axes)
