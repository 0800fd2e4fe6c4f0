"""Convolution: one index expression for each rank.

``x`` [n, c, spatial...], ``w`` [k, c per group, window...] -> [n, k, spatial...]; what deep learning calls convolution,
that is, cross-correlation. Output channel k belongs to group k // (K / groups) and folds the input channels of that
group. Padding is a view of x (`tp.pad` with 0), so the declaration below is the whole operation: its accesses, halos,
fold and cost follow from the index expression.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dsl.annotations import num
from ..dsl.door import door
from ..dsl.index import indices
from ..dsl.op import op
from ..dsl.tensor import Tensor
from ..errors import UsageError
from .reduction import sum as fold
from .views import pad as pad_view

Pair = int | Sequence[int]
Padding = int | str | Sequence[int | Sequence[int]]


@op
def _conv1d(
    x: num[Tensor, "n i x"],
    w: num[Tensor, "k c s"],
    *,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    name: str,
) -> num[Tensor, "n k q"]:
    n, k, q, c, s = indices("n k q c s")
    channel = k // (w.shape[0] // groups) * w.shape[1] + c
    return fold[c, s](x[n, channel, stride[0] * q + dilation[0] * s] * w[k, c, s])


@op
def _conv2d(
    x: num[Tensor, "n i y x"],
    w: num[Tensor, "k c r s"],
    *,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    name: str,
) -> num[Tensor, "n k p q"]:
    n, k, p, q, c, r, s = indices("n k p q c r s")
    channel = k // (w.shape[0] // groups) * w.shape[1] + c
    y, z = stride[0] * p + dilation[0] * r, stride[1] * q + dilation[1] * s
    return fold[c, r, s](x[n, channel, y, z] * w[k, c, r, s])


@op
def _conv3d(
    x: num[Tensor, "n i z y x"],
    w: num[Tensor, "k c t r s"],
    *,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    name: str,
) -> num[Tensor, "n k o p q"]:
    n, k, o, p, q, c, t, r, s = indices("n k o p q c t r s")
    channel = k // (w.shape[0] // groups) * w.shape[1] + c
    at = [a * i + b * j for a, i, b, j in zip(stride, (o, p, q), dilation, (t, r, s), strict=True)]
    return fold[c, t, r, s](x[n, channel, at[0], at[1], at[2]] * w[k, c, t, r, s])


@door
def conv1d(
    x: Tensor, w: Tensor, *, stride: Pair = 1, padding: Padding = 0, dilation: Pair = 1, groups: int = 1, name: str = ""
) -> Tensor:
    """x [n, c, x], w [k, c/groups, s] -> [n, k, q]. See `conv2d`."""
    return _conv(1, x, w, stride, padding, dilation, groups, name)


@door
def conv2d(
    x: Tensor, w: Tensor, *, stride: Pair = 1, padding: Padding = 0, dilation: Pair = 1, groups: int = 1, name: str = ""
) -> Tensor:
    """x [n, c, y, x], w [k, c/groups, r, s] -> [n, k, p, q].

    out[n, k, p, q] = sum over c, r, s of x[n, group(k) + c, stride*p + dilation*r - before, ...] * w[k, c, r, s], x
    being 0 outside. ``padding`` is an integer, one entry an axis, or (before, after) pairs; "same" keeps the extents at
    stride 1, "valid" pads nothing. Raises UsageError where channels and groups contradict, ReadOutOfBounds where the
    window is wider than the padded image.
    """
    return _conv(2, x, w, stride, padding, dilation, groups, name)


@door
def conv3d(
    x: Tensor, w: Tensor, *, stride: Pair = 1, padding: Padding = 0, dilation: Pair = 1, groups: int = 1, name: str = ""
) -> Tensor:
    """x [n, c, z, y, x], w [k, c/groups, t, r, s] -> [n, k, o, p, q]. See `conv2d`."""
    return _conv(3, x, w, stride, padding, dilation, groups, name)


def _conv(
    rank: int, x: Tensor, w: Tensor, stride: Pair, padding: Padding, dilation: Pair, groups: int, name: str
) -> Tensor:
    call = f"conv{rank}d"
    if x.ndim != rank + 2 or w.ndim != rank + 2:
        raise UsageError(f"{call} takes tensors of {rank + 2} axes", sides={"x": repr(x), "w": repr(w)})
    if groups < 1 or w.shape[0] % groups or x.shape[1] != w.shape[1] * groups:
        sides = {"x": repr(x), "w": repr(w), "groups": groups}
        raise UsageError(
            f"{call}: channels and groups contradict",
            sides=sides,
            hint="x [n, c, ..], w [k, c/groups, ..], groups divides k",
        )
    steps, gaps = per_axis(call, "stride", stride, rank), per_axis(call, "dilation", dilation, rank)
    pads = paddings(call, padding, w.shape[2:], gaps)
    padded = pad_view(x, [(0, 0), (0, 0), *pads]) if any(sum(map(abs, p)) for p in pads) else x
    primitive = (_conv1d, _conv2d, _conv3d)[rank - 1]
    return primitive(padded, w, stride=steps, dilation=gaps, groups=groups, name=name)


def per_axis(call: str, what: str, value: Pair, rank: int) -> tuple[int, ...]:
    """One positive integer an axis, from one integer or a sequence."""
    found = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(found) != rank or not all(isinstance(v, int) and v >= 1 for v in found):
        raise UsageError(f"{call}({what}={value!r})", hint=f"a positive integer, or {rank} of them")
    return found


def paddings(call: str, padding: Padding, window: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    """(before, after) for every spatial axis."""
    rank = len(window)
    if padding == "same":
        spans = [d * (extent - 1) for extent, d in zip(window, dilation, strict=True)]
        return [(span // 2, span - span // 2) for span in spans]
    if padding == "valid":
        return [(0, 0)] * rank
    entries = [padding] * rank if isinstance(padding, int) else list(padding)
    pairs = [(e, e) if isinstance(e, int) else tuple(e) for e in entries if not isinstance(e, str)]
    if len(pairs) != rank or not all(len(p) == 2 and all(isinstance(v, int) and v >= 0 for v in p) for p in pairs):
        hint = f'an integer, {rank} integers, {rank} pairs (before, after), "same" or "valid"'
        raise UsageError(f"{call}(padding={padding!r})", hint=hint)
    return [(p[0], p[1]) for p in pairs]
