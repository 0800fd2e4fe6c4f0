"""A step of training whose layers repeat: forward, backward, and one weight's update after another."""

from __future__ import annotations

import tapestry as tp
from tapestry import Tensor, f32


@tp.program
def trained(x: f32[Tensor, "n c"], *, layers: int = 4) -> dict[str, Tensor]:
    """AdamW of layers that have two products each."""
    weights: list[Tensor] = []

    @tp.program
    def loss(x: f32[Tensor, "n c"]) -> Tensor:
        for k in range(layers):
            weights.append(tp.state(f"w{k}in", "f32", (x.shape[1], x.shape[1])))
            weights.append(tp.state(f"w{k}out", "f32", (x.shape[1], x.shape[1])))
            hidden = tp.relu(tp.einsum("nc,cd->nd", x, weights[-2]))
            x = tp.einsum("nd,dc->nc", hidden, weights[-1]) + x
        return tp.mean(x * x)

    value, grads = tp.value_and_grad(loss, wrt="w*")(x)
    tp.optim.adamw(dict(zip(grads, weights, strict=True)), grads, rate=0.1)
    return {"loss": value}
