"""A layer of a mixture of experts that has room for so many tokens per expert: Fedus et al., arXiv:2101.03961.

    python examples/moe.py
    tapestry plan examples/moe.py:layer --machine h200x8 --mesh 8 --set t=4096

Each token goes to the expert that its router likes best, to the next free place there; a token that finds none is left
out, and its row of the result is zero. Places are indices that are values: tokens are folded into them and read back
from them, so that expert parallelism is a cut of x, and the way of the tokens there and back the traffic that follows.
"""

import tapestry as tp
from tapestry import Tensor, f32, int32, int64, param, state


@tp.op
def earlier(expert: int64[Tensor, "t"]) -> int32[Tensor, "t"]:
    """How many tokens before this one go to the same expert."""
    t, s = tp.indices("t s")
    return tp.sum[s](tp.where(expert[s] == expert[t], 1, 0), where=s < t)


@tp.op
def dispatch(tokens: f32[Tensor, "t d"], place: int64[Tensor, "t"], *, places: int) -> f32[Tensor, "places d"]:
    """The token at each place; zeros where there is none."""
    t, d, p = tp.indices("t d places")
    return tp.sum[t](tp.where(place[t] == p, tokens[t, d], 0.0))


@tp.op
def combine(computed: f32[Tensor, "places d"], place: int64[Tensor, "t"], gate: f32[Tensor, "t"]) -> f32[Tensor, "t d"]:
    """What was computed of each token, weighted; zeros for a token without a place."""
    t, d = tp.indices("t d")
    return gate[t] * computed.get[place[t], d]


@tp.program
def layer(
    tokens: f32[Tensor, "t d"],
    router: param[f32[Tensor, "d x"]],
    w_in: param[f32[Tensor, "x d f"]],
    w_out: param[f32[Tensor, "x f d"]],
    *,
    t: int = 512,
    d: int = 64,
    x: int = 8,
    f: int = 256,
    room: float = 1.25,
) -> Tensor:
    """[t, d] through the expert of each token; an expert has ``room`` times its equal share of places."""
    capacity = max(1, int(room * t / x))
    likes = tp.softmax(tokens @ router, name="likes")
    expert = tp.argmax(likes, axis="x", name="expert")
    before = earlier(expert)
    place = tp.where(before < capacity, expert * capacity + before, -1).named("place")
    held = dispatch(tokens, place, places=x * capacity).reshape(x, capacity, d)
    hidden = tp.relu(tp.einsum("xcd,xdf->xcf", held, w_in, name="hidden"))
    computed = tp.einsum("xcf,xfd->xcd", hidden, w_out, name="computed")
    return combine(computed.reshape(x * capacity, d), place, tp.max(likes, axis="x"))


@tp.program
def loss(
    tokens: f32[Tensor, "t d"],
    target: f32[Tensor, "t d"],
    router: param[f32[Tensor, "d x"]],
    w_in: param[f32[Tensor, "x d f"]],
    w_out: param[f32[Tensor, "x f d"]],
    *,
    room: float = 1.25,
) -> Tensor:
    """The mean square of what the layer, around which tokens pass too, lacks of the target."""
    t, d = tokens.shape
    x, _, f = w_in.shape
    return tp.mse_loss(tokens + layer(tokens, router, w_in, w_out, t=t, d=d, x=x, f=f, room=room), target)


@tp.program
def train_step(
    tokens: f32[Tensor, "t d"],
    target: f32[Tensor, "t d"],
    router: state[f32[Tensor, "d x"]],
    w_in: state[f32[Tensor, "x d f"]],
    w_out: state[f32[Tensor, "x f d"]],
    *,
    t: int = 512,
    d: int = 64,
    x: int = 8,
    f: int = 256,
    room: float = 1.25,
    rate: float = 1e-3,
) -> dict[str, Tensor]:
    """One step of AdamW. The router learns by the weight that it gives to the expert it chose."""
    weights = {"router": router, "w_in": w_in, "w_out": w_out}
    value, grads = tp.value_and_grad(loss)(tokens, target, *weights.values(), room=room)
    tp.optim.adamw(weights, grads, rate=rate)
    return {"loss": value}


if __name__ == "__main__":
    print(layer.bind())
