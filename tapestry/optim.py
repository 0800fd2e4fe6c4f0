"""Optimizers: what replaces weights after a step, as operations of the program that trains.

Weights are states of the program. What an optimizer remembers are states too, called after the weight ("w.momentum"),
in f32 at least; they start at zeros.

>>> import tapestry as tp
>>> @tp.program
... def loss(x: tp.f32[tp.Tensor, "n k"], w: tp.param[tp.f32[tp.Tensor, "k"]]) -> tp.Tensor:
...     return tp.mean((x @ w) ** 2)
>>> @tp.program
... def step(x: tp.f32[tp.Tensor, "n k"], w: tp.state[tp.f32[tp.Tensor, "k"]]) -> dict[str, tp.Tensor]:
...     value, grads = tp.value_and_grad(loss)(x, w)
...     tp.optim.adamw({"w": w}, grads, rate=0.01)
...     return {"loss": value}
>>> [name for name, _ in step.bind(n=8, k=3).states]
['adamw.steps', 'w', 'w.mean', 'w.square']
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from .dsl.declare import declare, update
from .dsl.define import axes_of, define
from .dsl.door import door, spoken
from .dsl.tensor import Tensor
from .dsl.trace import composite
from .dtypes import promote
from .errors import UsageError
from .ops.elementwise import cast, minimum, sqrt
from .ops.reduction import sum as total

Weights = Mapping[str, Tensor]


@door
@composite
def sgd(
    weights: Mapping[str, Tensor],
    grads: Mapping[str, Tensor],
    *,
    rate: float | Tensor,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> None:
    """w <- w - rate * m with m <- momentum * m + grad + weight_decay * w, as `torch.optim.SGD`.

    ``weights`` are states by name, each with a gradient of its shape; ``rate`` is a number or a tensor without axes.
    """
    for name, weight, grad in _pairs("sgd", weights, grads):
        at = axes_of(weight)
        slope = grad[at] if not weight_decay else grad[at] + weight_decay * weight[at]
        if momentum:
            remembered = _state(name, "momentum", weight)
            moved = define("momentum", at, momentum * remembered[at] + slope, dtype=remembered.dtype)
            update(remembered, moved)
            slope = moved[at]
        update(weight, define("weight", at, weight[at] - _at(rate) * slope, dtype=weight.dtype))


@door
@composite
def adamw(
    weights: Mapping[str, Tensor],
    grads: Mapping[str, Tensor],
    *,
    rate: float | Tensor = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """Adam with decoupled weight decay: Loshchilov and Hutter, arXiv:1711.05101, algorithm 2; as `torch.optim.AdamW`.

    ``weights`` are states by name, each with a gradient of its shape; ``rate`` is a number or a tensor without axes.
    The number of steps is a state as well ("adamw.steps", f64, as are the two corrections made from it).
    """
    first, second = betas
    steps = declare("state", "adamw.steps", "f64", (), None)
    counted = define("steps", (), steps[()] + 1)
    update(steps, counted)
    unbiased = [define("unbiased", (), 1 - beta ** counted[()]) for beta in betas]
    for name, weight, grad in _pairs("adamw", weights, grads):
        at = axes_of(weight)
        mean, square = _state(name, "mean", weight), _state(name, "square", weight)
        new_mean = define("mean", at, first * mean[at] + (1 - first) * grad[at], dtype=mean.dtype)
        new_square = define("square", at, second * square[at] + (1 - second) * grad[at] * grad[at], dtype=square.dtype)
        by_mean, by_square = (cast(correction[()], mean.dtype) for correction in unbiased)
        slope = (new_mean[at] / by_mean) / (sqrt(new_square[at] / by_square) + eps)
        moved = weight[at] * (1 - _at(rate) * weight_decay) - _at(rate) * slope
        update(weight, define("weight", at, moved, dtype=weight.dtype))
        update(mean, new_mean)
        update(square, new_square)


@door
@composite
def clip_by_global_norm(grads: Mapping[str, Tensor], limit: float) -> tuple[dict[str, Tensor], Tensor]:
    """The gradients scaled down together so that their norm is at most ``limit``, and the norm that they had.

    The norm is that of all elements of all gradients: Pascanu, Mikolov and Bengio, arXiv:1211.5063, algorithm 1.
    """
    squares = [total(_wide(grad) * _wide(grad)) for grad in grads.values()]
    if not squares:
        raise UsageError("there is no gradient to clip")
    norm = sqrt(reduce(lambda a, b: a + b, squares))
    factor = minimum(limit / (norm + 1e-6), 1.0)
    return {name: _scaled(grad, factor) for name, grad in grads.items()}, norm


def _scaled(grad: Tensor, factor: Tensor) -> Tensor:
    at = axes_of(grad)
    return define("scaled", at, grad[at] * factor[()], dtype=grad.dtype)


def _wide(grad: Tensor) -> Tensor:
    wide = promote(grad.dtype, "f32")
    return grad if grad.dtype == wide else grad.astype(wide)


def _at(rate: float | Tensor) -> float | Tensor:
    """The rate inside index notation."""
    return rate[()] if isinstance(rate, Tensor) else rate


def _state(name: str, what: str, weight: Tensor) -> Tensor:
    return declare("state", f"{name}.{what}", promote(weight.dtype, "f32"), weight.shape, weight.axes)


def _pairs(function: str, weights: Weights, grads: Weights) -> list[tuple[str, Tensor, Tensor]]:
    """Each weight with its gradient. UsageError for a weight without one, and for shapes that differ."""
    for name, weight in weights.items():
        if name not in grads:
            raise UsageError(f"{function}: {name} has no gradient", sides={"gradients": ", ".join(grads) or "none"})
        if weight.shape != grads[name].shape:
            sides = {"weight": spoken(weight), "gradient": spoken(grads[name])}
            raise UsageError(f"{function}: the gradient of {name} has another shape", sides=sides)
    return [(name, weight, grads[name]) for name, weight in weights.items()]


__all__ = ["adamw", "clip_by_global_norm", "sgd"]
