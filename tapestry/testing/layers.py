"""Programs of standard operations, as users write them: layers after one another on one tensor, with residuals."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ..dsl.declare import input as new_input
from ..dsl.program import program
from ..dsl.roles import param
from ..dsl.tensor import Tensor
from ..ops.attention import attention
from ..ops.convolution import conv1d, conv2d
from ..ops.elementwise import gelu, relu, silu, tanh
from ..ops.linear import einsum
from ..ops.normalization import layer_norm, rms_norm, softmax
from ..ops.pooling import avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
from ..ops.reduction import max as largest
from ..ops.reduction import mean
from ..ops.rotary import rotary
from ..ops.views import concat, pad, reverse, transpose
from ..program import Program
from .choices import Choices
from .growing import Size


class Layers:
    """Draws layers. Floats stay of the order of 1, as `tapestry.closeness` asks; int32 stays exact by wrapping."""

    def __init__(self, ch: Choices, size: Size) -> None:
        self.ch, self.size, self.count = ch, size, 0
        self.dtype = ch.pick(("f32", "f32", "bf16", "f16", "f64", "int32"))

    @property
    def floating(self) -> bool:
        return self.dtype != "int32"

    def weight(self, *shape: int) -> Tensor:
        self.count += 1
        return param(f"w{self.count}", self.dtype, shape)

    def program(self, most: int) -> Program:
        """Up to ``most`` layers; the last value comes out, and sometimes one before it."""

        def generated() -> dict[str, Tensor]:
            rank = self.ch.integer(2, 4)
            most_along = max(2, int((2 * self.size.elements) ** (1 / rank)))
            x = new_input("x", self.dtype, [self.ch.integer(1, most_along) for _ in range(rank)])
            values = [x]
            for _ in range(self.ch.integer(1, most)):
                following = self.ch.pick(LAYERS)(self, values[-1])
                if following is not None and prod(following.shape) <= self.size.elements:
                    values.append(following)
            extra = {"early": values[1]} if len(values) > 2 and self.ch.chance(30) else {}
            return {"result": values[-1] * 1, **extra}

        return program(generated).bind()


Layer = Callable[[Layers, Tensor], "Tensor | None"]
ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (relu, gelu, silu, tanh)


def _linear(g: Layers, x: Tensor) -> Tensor:
    inner, outer = x.shape[-1], g.ch.integer(1, 5)
    letters = "abcd"[: x.ndim - 1]
    y = einsum(f"{letters}i,io->{letters}o", x, g.weight(inner, outer))
    return y * (1 / inner) if g.floating else y


def _activation(g: Layers, x: Tensor) -> Tensor:
    return g.ch.pick(ACTIVATIONS)(x) if g.floating else relu(x)


def _norm(g: Layers, x: Tensor) -> Tensor | None:
    """With an eps of 1, which keeps rows of equal values from being blown up."""
    if not g.floating:
        return None
    axis, weighted = g.ch.integer(0, x.ndim - 1), g.ch.chance(50)
    w = g.weight(x.shape[axis]) if weighted else None
    return g.ch.pick((layer_norm, rms_norm))(x, w, axis=axis, eps=1.0)


def _softmax(g: Layers, x: Tensor) -> Tensor | None:
    return softmax(x, g.ch.integer(0, x.ndim - 1)) if g.floating else None


def _residual(g: Layers, x: Tensor) -> Tensor:
    y = transpose(x, g.ch.shuffled(range(x.ndim)))
    other = y if y.shape == x.shape else reverse(x, 0)
    return (x + other) * 0.5 if g.floating else x - other


def _reduced(g: Layers, x: Tensor) -> Tensor | None:
    if x.ndim < 3:
        return None
    axis = g.ch.integer(0, x.ndim - 1)
    return mean(x, axis) if g.floating and g.ch.chance(50) else largest(x, axis)


def _convolution(g: Layers, x: Tensor) -> Tensor | None:
    """Over the last one or two of three or four axes; the second axis holds the channels, sometimes one group each."""
    if x.ndim < 3:
        return None
    rank, channels = x.ndim - 2, x.shape[1]
    window = [g.ch.integer(1, 3) for _ in range(rank)]
    pads = [(g.ch.integer(0, 2), max(0, k - n) + g.ch.integer(0, 1)) for k, n in zip(window, x.shape[2:], strict=True)]
    groups = channels if g.ch.chance(40) else 1
    w = g.weight(groups * g.ch.integer(1, 2), channels // groups, *window)
    y = (conv1d, conv2d)[rank - 1](x, w, padding=pads, stride=g.ch.integer(1, 2), groups=groups)
    return y * (1 / prod(w.shape[1:])) if g.floating else y


def _pooling(g: Layers, x: Tensor) -> Tensor | None:
    if x.ndim < 3:
        return None
    rank = x.ndim - 2
    window = [g.ch.integer(1, min(3, n)) for n in x.shape[2:]]
    pads = [(k // 2, 0) for k in window]
    stride = g.ch.integer(1, 2)
    if g.floating and g.ch.chance(50):
        include = g.ch.chance(50)
        return (avg_pool1d, avg_pool2d)[rank - 1](x, window, stride=stride, padding=pads, count_include_pad=include)
    return (max_pool1d, max_pool2d)[rank - 1](x, window, stride=stride, padding=pads)


def _attention(g: Layers, x: Tensor) -> Tensor | None:
    """Self-attention of the tokens (axis -3) by heads (axis -2), the keys rotated and sometimes shared by the heads."""
    if not g.floating or x.ndim < 3:
        return None
    q = rotary(x) * 0.5 if x.shape[-1] % 2 == 0 and g.ch.chance(70) else x
    keys = x[..., :1, :] if g.ch.chance(40) else x
    return attention(q, keys * 0.5, keys, causal=g.ch.chance(60), offset=g.ch.integer(0, 2), scale=1 / x.shape[-1])


def _rearranged(g: Layers, x: Tensor) -> Tensor:
    axis = g.ch.integer(0, x.ndim - 1)
    if g.ch.chance(50):
        return concat([x, reverse(x, axis)], axis)
    return pad(x, [(g.ch.integer(0, 1), g.ch.integer(0, 1)) for _ in x.shape])


LAYERS: tuple[Layer, ...] = (
    _linear, _activation, _residual, _norm, _softmax, _convolution, _pooling, _attention, _reduced, _rearranged,
)  # fmt: skip
