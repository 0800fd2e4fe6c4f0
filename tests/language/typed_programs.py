"""What users write, as `mypy --strict` should take it: index notation, optional operands, settings, arithmetic."""

from enum import Enum

import numpy as np

import tapestry as tp
from tapestry import Tensor, anyfloat, f32, int32, num, param, state


class Mode(Enum):
    PLAIN = 1
    DOUBLE = 2


@tp.op
def taps(x: f32[Tensor, "t"], w: f32[Tensor, "s"]) -> f32[Tensor, "t"]:
    t, s = tp.indices("t s")
    return tp.sum[s](x.get(t - s) * w[s], where=s <= t)


@tp.op
def mixed(x: num[Tensor, "n k"], gain: num[Tensor, "k"] | None = None, *, m: int = 3) -> num[Tensor, "n m"]:
    n, k = tp.indices("n k")
    m_ = tp.indices("m")
    value = x[n, k] * (k + 1) + 2 * n - (n // 2) % 3 + (1.0 - k) / (k + 1)
    chosen = tp.where((k >= m_) & ~(k == 0) | (n != k), value, 0.0)
    biased = chosen if gain is None else chosen * gain[k] ** 2
    return tp.max[k](-biased, where=(k > 0) & (k <= n)) + tp.sum[k](x[n, k]) / 2


@tp.op
def neighbours(x: anyfloat[Tensor, "n"]) -> anyfloat[Tensor, "n"]:
    n = tp.indices("n")
    return tp.exp(x.get[n - 1] + x.get(n + 1, fill=1.0)) + abs(x[n])


@tp.program
def layer(
    x: f32[Tensor, "n d"], w: param[f32[Tensor, "d d"]], bias: f32[Tensor, "d"] | None = None
) -> f32[Tensor, "n d"]:
    y = x @ w
    return y if bias is None else y + bias


@tp.program
def net(
    x: f32[Tensor, "n d"],
    w: param[f32[Tensor, "d d"]],
    count: state[int32[Tensor, ""]],
    bias: param[f32[Tensor, "d"]] | None = None,
    *,
    mode: Mode = Mode.PLAIN,
    widths: tuple[int, ...] = (1, 2),
) -> dict[str, Tensor]:
    y: Tensor = layer(x, w, bias)
    z = tp.softmax(tp.relu(y) * 0.5 + 1, axis=-1)[:, ::-1]
    tp.update(count, count + 1)
    keep = (z > 0.5) & (z < 1)
    table = tp.constant(np.ones(3), "f32", axes=("k",))
    stacked = tp.concat([tp.stack([z, y])[0], tp.where(keep, z, y)], axis=0)
    return {"out": stacked.reshape(-1).named("flat"), "table": table + sum(widths), "t": z.T.astype("bf16")}


program = net.bind(n=4, d=4, mode=Mode.DOUBLE)
text: str = str(program)
names: tuple[str, ...] = program.outputs
