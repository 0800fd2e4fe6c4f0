"""A perceptron of three layers, the smallest program with something to shard.

python examples/mlp.py
tapestry plan examples/mlp.py:forward --machine cpu-4 --set n=512
"""

import tapestry as tp
from tapestry import Tensor, f32, param


@tp.program
def forward(
    x: f32[Tensor, "n d"],
    w0: param[f32[Tensor, "d hidden"]],
    b0: param[f32[Tensor, "hidden"]],
    w1: param[f32[Tensor, "hidden hidden"]],
    b1: param[f32[Tensor, "hidden"]],
    w2: param[f32[Tensor, "hidden k"]],
    *,
    n: int = 256,
    d: int = 784,
    hidden: int = 1024,
    k: int = 10,
) -> Tensor:
    """Class probabilities [n, k] of n vectors of d numbers."""
    h0 = tp.gelu(x @ w0 + b0)
    h1 = tp.gelu(h0 @ w1 + b1)
    return tp.softmax(h1 @ w2, name="probabilities")


if __name__ == "__main__":
    print(forward.bind())
