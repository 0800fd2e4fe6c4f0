"""The decoder layers of a Llama-like model in bf16. The defaults are the shapes of an 8-billion-parameter model.

    python examples/llama.py
    tapestry plan examples/llama.py:forward --machine h200x8 --mesh 8 --set layers=4 tokens=4096

    tapestry plan examples/llama.py:decode_step --machine h200x8 --mesh 8 --set layers=4 context=4096

    tapestry plan examples/llama.py:train_step --machine h200x8 --set layers=4 tokens=4096

`train_step` is a step of training: forward, gradients and AdamW in one program, weights and what AdamW remembers as
states.

`decode_step` is one token more: it reads the token's row of the embedding, adds its keys and values to the cache, which
is a state, and attends to what the cache holds so far.

Heads are dimensions of their own: Megatron's tensor parallelism is the cut of h (and of f in the MLP), sequence and
context parallelism are cuts of t, and of the keys inside attention.
"""

from collections.abc import Callable

import tapestry as tp
from tapestry import Tensor, anyfloat, bf16, int32

Declare = Callable[..., Tensor]  # a weight of the layer being written, by its name and its axes


@tp.op
def gated(gate: anyfloat[Tensor, "t f"], up: anyfloat[Tensor, "t f"]) -> anyfloat[Tensor, "t f"]:
    """silu(gate) * up: Shazeer, arXiv:2002.05202."""
    t, f = tp.indices("t f")
    return tp.silu(gate[t, f]) * up[t, f]


def weight(name: str, **axes: int) -> Tensor:
    """A parameter of the layer being written; axes by name."""
    return tp.param(name, "bf16", tuple(axes.values()), axes=tuple(axes))


def attend(x: Tensor, *, heads: int, kv_heads: int, theta: float, weight: Declare = weight) -> Tensor:
    """Causal attention with grouped heads, [t, d] -> [t, d]."""
    d = x.shape[1]
    e = d // heads
    q = tp.einsum("td,dhe->the", x, weight("wq", d=d, h=heads, e=e), name="q")
    k = tp.einsum("td,dge->tge", x, weight("wk", d=d, g=kv_heads, e=e), name="k")
    v = tp.einsum("td,dge->tge", x, weight("wv", d=d, g=kv_heads, e=e), name="v")
    q, k = tp.rotary(q, base=theta, name="q_rotary"), tp.rotary(k, base=theta, name="k_rotary")
    seen = tp.attention(q, k, v, causal=True, name="attention")
    return tp.einsum("the,hed->td", seen, weight("wo", h=heads, e=e, d=d), name="o")


def mlp(x: Tensor, *, ffn: int, weight: Declare = weight) -> Tensor:
    """The gated MLP, [t, d] -> [t, d]."""
    d = x.shape[1]
    gate = tp.einsum("td,df->tf", x, weight("w_gate", d=d, f=ffn), name="gate")
    up = tp.einsum("td,df->tf", x, weight("w_up", d=d, f=ffn), name="up")
    return tp.einsum("tf,fd->td", gated(gate, up), weight("w_down", f=ffn, d=d), name="down")


def decoder(
    x: Tensor, *, layers: int, heads: int, kv_heads: int, ffn: int, theta: float, weight: Declare = weight
) -> Tensor:
    """Activations [t, d] through all decoder layers."""
    h, d = x, x.shape[1]
    for layer in range(layers):
        with tp.name(f"layers.{layer}"):
            normed = tp.rms_norm(h, weight("attention_norm", d=d))
            h = h + attend(normed, heads=heads, kv_heads=kv_heads, theta=theta, weight=weight)
            normed = tp.rms_norm(h, weight("mlp_norm", d=d))
            h = h + mlp(normed, ffn=ffn, weight=weight)
    return h


@tp.program
def forward(
    x: bf16[Tensor, "t=tokens d"],
    *,
    layers: int = 32,
    d: int = 4096,
    heads: int = 32,
    kv_heads: int = 8,
    ffn: int = 14336,
    tokens: int = 8192,
    theta: float = 500000.0,
) -> dict[str, Tensor]:
    """Activations [tokens, d] through all decoder layers."""
    return {"out": decoder(x, layers=layers, heads=heads, kv_heads=kv_heads, ffn=ffn, theta=theta)}


@tp.program
def train_step(
    x: bf16[Tensor, "t=tokens d"],
    target: bf16[Tensor, "t d"],
    *,
    layers: int = 32,
    d: int = 4096,
    heads: int = 32,
    kv_heads: int = 8,
    ffn: int = 14336,
    tokens: int = 8192,
    theta: float = 500000.0,
    rate: float = 1e-4,
) -> dict[str, Tensor]:
    """One step of AdamW towards activations ``target``: the loss is the mean square of what the normed result lacks."""
    weights: list[Tensor] = []

    def learned(name: str, **axes: int) -> Tensor:
        weights.append(tp.state(name, "bf16", tuple(axes.values()), axes=tuple(axes)))
        return weights[-1]

    @tp.program
    def loss(x: bf16[Tensor, "t d"], target: bf16[Tensor, "t d"]) -> Tensor:
        h = decoder(x, layers=layers, heads=heads, kv_heads=kv_heads, ffn=ffn, theta=theta, weight=learned)
        away = tp.rms_norm(h, learned("norm", d=d)).astype("f32") - target.astype("f32")
        return tp.mean(away * away)

    value, grads = tp.value_and_grad(loss, wrt=("layers.*", "norm"))(x, target)
    tp.optim.adamw(dict(zip(grads, weights, strict=True)), grads, rate=rate)
    return {"loss": value}


@tp.op
def cached_scores(
    q: anyfloat[Tensor, "t h e"], k: anyfloat[Tensor, "s g e"], at: int32[Tensor, ""], *, group: int
) -> anyfloat[Tensor, "h s"]:
    """q . k / sqrt(e) with the keys up to the token's place ``at``, the others out of sight; heads in groups."""
    h, s, e = tp.indices("h s e")
    score = tp.sum[e](q[0, h, e] * k[s, h // group, e])
    return tp.where(s <= at, score * q.shape[-1] ** -0.5, float("-inf"))


@tp.op
def cached_values(
    p: anyfloat[Tensor, "h s"], v: anyfloat[Tensor, "s g e"], *, group: int, t: int = 1
) -> anyfloat[Tensor, "t h e"]:
    """The values that a token attends to, weighted."""
    h, s, e = tp.indices("h s e")
    return tp.sum[s](p[h, s] * v[s, h // group, e])


def attend_cached(x: Tensor, at: Tensor, *, heads: int, kv_heads: int, context: int, theta: float) -> Tensor:
    """Attention of one token [1, d] to all up to its place, whose keys and values are cached; [1, d]."""
    d = x.shape[1]
    e = d // heads
    cache_k, cache_v = (
        tp.state(f"cache_{name}", "bf16", (context, kv_heads, e), axes=("s", "g", "e")) for name in "kv"
    )
    q = tp.einsum("td,dhe->the", x, weight("wq", d=d, h=heads, e=e), name="q")
    k = tp.einsum("td,dge->tge", x, weight("wk", d=d, g=kv_heads, e=e), name="k")
    v = tp.einsum("td,dge->tge", x, weight("wv", d=d, g=kv_heads, e=e), name="v")
    q = tp.rotary(q, base=theta, offset=at, name="q_rotary")
    k = tp.rotary(k, base=theta, offset=at, name="k_rotary")
    keys = tp.dynamic_update_slice(cache_k, k, [at, 0, 0], name="keys")
    values = tp.dynamic_update_slice(cache_v, v, [at, 0, 0], name="values")
    tp.update(cache_k, keys)
    tp.update(cache_v, values)
    shares = tp.softmax(cached_scores(q, keys, at, group=heads // kv_heads).astype("f32")).astype("bf16")
    seen = cached_values(shares, values, group=heads // kv_heads)
    return tp.einsum("the,hed->td", seen, weight("wo", h=heads, e=e, d=d), name="o")


@tp.program
def decode_step(
    token: int32[Tensor, "t=1"],
    at: int32[Tensor, ""],
    *,
    layers: int = 32,
    d: int = 4096,
    heads: int = 32,
    kv_heads: int = 8,
    ffn: int = 14336,
    context: int = 8192,
    vocabulary: int = 128256,
    theta: float = 500000.0,
) -> dict[str, Tensor]:
    """The logits [1, vocabulary] of what follows ``token``, which stands at place ``at`` of the context."""
    h = tp.embedding(token, weight("embedding", v=vocabulary, d=d), name="embedded")
    for layer in range(layers):
        with tp.name(f"layers.{layer}"):
            normed = tp.rms_norm(h, weight("attention_norm", d=d))
            h = h + attend_cached(normed, at, heads=heads, kv_heads=kv_heads, context=context, theta=theta)
            normed = tp.rms_norm(h, weight("mlp_norm", d=d))
            h = h + mlp(normed, ffn=ffn)
    h = tp.rms_norm(h, weight("norm", d=d))
    return {"logits": tp.einsum("td,vd->tv", h, weight("unembedding", v=vocabulary, d=d), name="logits")}


if __name__ == "__main__":
    print(forward.bind(layers=1))
