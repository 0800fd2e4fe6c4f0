"""Transposed convolution: what the gradient of a convolution computes for its image, as an operation of its own.

``x`` [n, c, spatial...], ``w`` [c, k per group, window...] -> [n, k, spatial...]. Element p of the result adds up the
products x[n, c, i] w[c, k, r] of all i and r with stride * i + dilation * r - before = p.
"""

from __future__ import annotations

from math import prod

from ..dsl.define import define
from ..dsl.door import door
from ..dsl.index import indices
from ..dsl.tensor import Tensor
from ..errors import UsageError
from .convolution import Padding, Pair, paddings, per_axis
from .reduction import sum as fold

_OUT, _WINDOW = ("o", "p", "q"), ("t", "r", "s")


@door
def conv_transpose1d(
    x: Tensor, w: Tensor, *, stride: Pair = 1, padding: Padding = 0, extra: Pair = 0, dilation: Pair = 1,
    groups: int = 1, name: str = "",
) -> Tensor:  # fmt: skip
    """x [n, c, x], w [c, k/groups, s] -> [n, k, q]. See `conv_transpose2d`."""
    return _transposed(1, x, w, stride, padding, extra, dilation, groups, name)


@door
def conv_transpose2d(
    x: Tensor, w: Tensor, *, stride: Pair = 1, padding: Padding = 0, extra: Pair = 0, dilation: Pair = 1,
    groups: int = 1, name: str = "",
) -> Tensor:  # fmt: skip
    """x [n, c, y, x], w [c, k/groups, r, s] -> [n, k, p, q].

    The extents are stride (y - 1) + dilation (r - 1) + 1 - before - after + extra: ``padding`` crops the result, as
    that of the convolution would have padded its image, and ``extra`` (torch's output_padding, below the stride or the
    dilation) adds to its end. Raises UsageError where channels and groups contradict or nothing is left.
    """
    return _transposed(2, x, w, stride, padding, extra, dilation, groups, name)


@door
def conv_transpose3d(
    x: Tensor, w: Tensor, *, stride: Pair = 1, padding: Padding = 0, extra: Pair = 0, dilation: Pair = 1,
    groups: int = 1, name: str = "",
) -> Tensor:  # fmt: skip
    """x [n, c, z, y, x], w [c, k/groups, t, r, s] -> [n, k, o, p, q]. See `conv_transpose2d`."""
    return _transposed(3, x, w, stride, padding, extra, dilation, groups, name)


def _transposed(
    rank: int, x: Tensor, w: Tensor, stride: Pair, padding: Padding, extra: Pair, dilation: Pair, groups: int, name: str
) -> Tensor:
    call = f"conv_transpose{rank}d"
    if x.ndim != rank + 2 or w.ndim != rank + 2:
        raise UsageError(f"{call} takes tensors of {rank + 2} axes", sides={"x": repr(x), "w": repr(w)})
    if groups < 1 or x.shape[1] % groups or x.shape[1] != w.shape[0]:
        sides = {"x": repr(x), "w": repr(w), "groups": groups}
        hint = "x [n, c, ..], w [c, k/groups, ..], groups divides c"
        raise UsageError(f"{call}: channels and groups contradict", sides=sides, hint=hint)
    steps, gaps = per_axis(call, "stride", stride, rank), per_axis(call, "dilation", dilation, rank)
    pads = paddings(call, padding, w.shape[2:], gaps)
    more = _extra(call, extra, rank, steps, gaps)
    spans = zip(x.shape[2:], steps, gaps, w.shape[2:], pads, more, strict=True)
    extents = [a * (n - 1) + b * (s - 1) + 1 - sum(pad) + e for n, a, b, s, pad, e in spans]
    if min(extents) < 0 or not prod(x.shape[2:]):
        raise UsageError(f"{call} leaves nothing", sides={"x": repr(x), "w": repr(w), "extents": extents})
    return _defined(call, x, w, [before for before, _ in pads], extents, steps, gaps, groups, name)


def _defined(
    call: str, x: Tensor, w: Tensor, before: list[int], extents: list[int], steps: tuple[int, ...],
    gaps: tuple[int, ...], groups: int, name: str,
) -> Tensor:  # fmt: skip
    rank, depth = len(extents), x.shape[1] // groups
    names = ["n", "k", *_OUT[3 - rank :], "c", *_WINDOW[3 - rank :]]
    n, k, *rest = indices(" ".join(names))
    out, c, window = rest[:rank], rest[rank], rest[rank + 1 :]
    channel = k // w.shape[1] * depth + c if groups > 1 else c
    ahead = [p + b - d * s for p, b, d, s in zip(out, before, gaps, window, strict=True)]
    image = x.get(n, channel, *(i // a for i, a in zip(ahead, steps, strict=True)))
    weight = w[(channel, k % w.shape[1] if groups > 1 else k, *window)]
    where = _all([i % a == 0 for i, a in zip(ahead, steps, strict=True) if a > 1])
    value = fold[(c, *window)](image * weight, where=where)
    given = {"n": x.shape[0], "k": w.shape[1] * groups, "c": depth}
    given |= dict(zip(names[2 : 2 + rank], extents, strict=True)) | dict(
        zip(names[3 + rank :], w.shape[2:], strict=True)
    )
    return define(call, [n, k, *out], value, explicit=name, extents=given)


def _all(conditions: list[Tensor]) -> Tensor | None:
    found = None
    for condition in conditions:
        found = condition if found is None else found & condition
    return found


def _extra(call: str, extra: Pair, rank: int, steps: tuple[int, ...], gaps: tuple[int, ...]) -> tuple[int, ...]:
    found = (extra,) * rank if isinstance(extra, int) else tuple(extra)
    if len(found) != rank or any(not 0 <= e < max(a, b) for e, a, b in zip(found, steps, gaps, strict=False)):
        hint = "0 or more, below the stride or the dilation, one for all axes or one each"
        raise UsageError(f"{call}(extra={extra!r})", hint=hint)
    return found
