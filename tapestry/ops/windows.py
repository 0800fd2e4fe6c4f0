"""Windows taken out of images, and added back into them."""

from __future__ import annotations

from math import prod

from ..dsl.define import define
from ..dsl.door import door
from ..dsl.index import indices
from ..dsl.tensor import Tensor
from ..errors import UsageError
from ..expr import Affine, Expr
from .convolution import Padding, Pair, paddings, per_axis
from .reduction import sum as fold_sum
from .views import pad, reshape


def _counts(
    call: str, size: tuple[int, ...], window: tuple[int, ...], steps: tuple[int, ...], gaps: tuple[int, ...],
    pads: list[tuple[int, int]],
) -> tuple[int, ...]:  # fmt: skip
    """How many windows there are along each axis."""
    spans = [n + sum(p) - d * (s - 1) - 1 for n, p, d, s in zip(size, pads, gaps, window, strict=True)]
    if min(spans) < 0:
        raise UsageError(f"{call}: the window is wider than the padded image",
                         sides={"image": list(size), "window": list(window)})  # fmt: skip
    return tuple(span // a + 1 for span, a in zip(spans, steps, strict=True))


@door
def unfold(x: Tensor, window: Pair, *, stride: Pair = 1, padding: Padding = 0, dilation: Pair = 1) -> Tensor:
    """Windows as columns: x [n, c, y, x] -> [n, c * r * s, windows], a view; x is 0 outside."""
    if x.ndim != 4:
        raise UsageError("unfold takes [n, c, y, x]", sides={"x": repr(x)})
    extents, steps = per_axis("unfold", "window", window, 2), per_axis("unfold", "stride", stride, 2)
    gaps = per_axis("unfold", "dilation", dilation, 2)
    pads = paddings("unfold", padding, extents, gaps)
    counts = _counts("unfold", x.shape[2:], extents, steps, gaps, pads)
    padded = pad(x, [(0, 0), (0, 0), *pads]) if any(map(any, pads)) else x
    n, c = x.shape[:2]

    def at(index: tuple[Affine, ...]) -> Expr:
        i, k, r, s, p, q = index
        return padded.at((i, k, p * steps[0] + r * gaps[0], q * steps[1] + s * gaps[1]))

    view = padded.view((n, c, *extents, *counts), ("n", "c", "r", "s", "p", "q"), at)
    return reshape(view, (n, c * prod(extents), prod(counts)), axes=("n", "c", "p"))


@door
def fold(
    x: Tensor, size: Pair, window: Pair, *, stride: Pair = 1, padding: Padding = 0, dilation: Pair = 1, name: str = ""
) -> Tensor:
    """Columns added back into an image: x [n, c * r * s, windows] -> [n, c, *size], the adjoint of `unfold`."""
    whole, extents = per_axis("fold", "size", size, 2), per_axis("fold", "window", window, 2)
    steps, gaps = per_axis("fold", "stride", stride, 2), per_axis("fold", "dilation", dilation, 2)
    pads = paddings("fold", padding, extents, gaps)
    counts = _counts("fold", whole, extents, steps, gaps, pads)
    if x.ndim != 3 or x.shape[1] % prod(extents) or x.shape[2] != prod(counts):
        sides = {"x": repr(x), "window": list(extents), "windows": list(counts)}
        raise UsageError("fold takes [n, c * window, windows]", sides=sides)
    apart = reshape(x, (x.shape[0], x.shape[1] // prod(extents), *extents, *counts))
    n, c, y, z, r, s = indices("n c y z r s")
    ahead = [y + pads[0][0] - r * gaps[0], z + pads[1][0] - s * gaps[1]]
    where = None
    for i, a in zip(ahead, steps, strict=True):
        if a > 1:
            where = i % a == 0 if where is None else where & (i % a == 0)
    value = apart.get(n, c, r, s, *(i // a for i, a in zip(ahead, steps, strict=True)))
    given = {"n": x.shape[0], "c": apart.shape[1], "y": whole[0], "z": whole[1], "r": extents[0], "s": extents[1]}
    return define("fold", [n, c, y, z], fold_sum[r, s](value, where=where), explicit=name, extents=given)
