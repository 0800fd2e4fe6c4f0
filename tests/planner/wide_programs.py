"""Programs in which tensors have many readers: what is hard about deciding them is that everything meets everywhere."""

from __future__ import annotations

import tapestry as tp
from tapestry import Tensor, f32, param


@tp.program
def stacked(x: f32[Tensor, "n c"], *, ways: int = 64) -> Tensor:
    """One operation with as many operands as there are ways."""
    return tp.relu(tp.stack([tp.tanh(x * float(k + 1)) for k in range(ways)]))


@tp.program
def recurrent(
    xs: f32[Tensor, "t n c"],
    w: param[f32[Tensor, "c h"]],
    u: param[f32[Tensor, "h h"]],
    b: param[f32[Tensor, "h"]],
    *,
    steps: int = 24,
) -> Tensor:
    """Every step reads the same weights."""
    h = tp.tanh(xs[0] @ w + b)
    for t in range(1, steps):
        h = tp.tanh(xs[t] @ w + h @ u + b)
    return h


@tp.program
def triangular(a: f32[Tensor, "m m"], b: f32[Tensor, "m r"], *, blocks: int = 4) -> Tensor:
    """Forward substitution in blocks: what is solved is read by all blocks below it."""
    size = a.shape[0] // blocks
    solved: list[Tensor] = []
    for i in range(blocks):
        rest = b[i * size : (i + 1) * size]
        for j, x in enumerate(solved):
            rest = rest - a[i * size : (i + 1) * size, j * size : (j + 1) * size] @ x
        diagonal = a[i * size : (i + 1) * size, i * size : (i + 1) * size]
        solved.append(diagonal @ rest)
    return tp.concat(solved, axis=0)


@tp.op
def conv(x: f32[Tensor, "n c y x"], w: f32[Tensor, "k c 3 3"]) -> f32[Tensor, "n k p q"]:
    n, k, p, q, c, r, s = tp.indices("n k p q c r s")
    return tp.sum[c, r, s](x[n, c, p + r, q + s] * w[k, c, r, s])


def convolved(x: Tensor, name: str, channels: int) -> Tensor:
    w = tp.param(name, "f32", (channels, x.shape[1], 3, 3))
    return tp.relu(conv(tp.pad(x, (0, 0, 1, 1), value=0.0), w))


def halved(x: Tensor) -> Tensor:
    n, c, y, w = x.shape
    return tp.mean(x.reshape(n, c, y // 2, 2, w // 2, 2), axis=(3, 5))


def doubled(x: Tensor) -> Tensor:
    n, c, y, w = x.shape
    return tp.broadcast_to(x.reshape(n, c, y, 1, w, 1), (n, c, y, 2, w, 2)).reshape(n, c, 2 * y, 2 * w)


@tp.program
def u_net(x: f32[Tensor, "n c y x"], t: f32[Tensor, "n e"], *, depth: int = 3, width: int = 32) -> Tensor:
    """One step of denoising: down, up, with a connection at every resolution and the time added everywhere."""
    kept: list[Tensor] = []
    h = convolved(x, "first", width)
    for k in range(depth):
        channels = width * 2**k
        h = convolved(h, f"down{k}a", channels)
        shift = t @ tp.param(f"time{k}", "f32", (t.shape[1], channels))
        h = h + shift.reshape(shift.shape[0], channels, 1, 1)
        h = convolved(h, f"down{k}b", channels)
        kept.append(h)
        h = halved(h)
    h = convolved(h, "middle", width * 2**depth)
    for k in reversed(range(depth)):
        h = tp.concat([doubled(h), kept[k]], axis=1)
        h = convolved(h, f"up{k}a", width * 2**k)
        shift = t @ tp.param(f"back{k}", "f32", (t.shape[1], width * 2**k))
        h = h + shift.reshape(shift.shape[0], width * 2**k, 1, 1)
        h = convolved(h, f"up{k}b", width * 2**k)
    return x - convolved(h, "last", x.shape[1])
