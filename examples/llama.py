"""The decoder layers of a Llama-like model, forward, in bf16. The defaults are the shapes of an 8-billion-parameter
model.

    python examples/llama.py
    tapestry plan examples/llama.py:forward --machine h200x8 --mesh 8 --set layers=4 tokens=4096

Heads are dimensions of their own: Megatron's tensor parallelism is the cut of h (and of f in the MLP), sequence and
context parallelism are cuts of t, and of the keys inside attention.
"""

import tapestry as tp
from tapestry import Tensor, anyfloat, bf16


@tp.op
def gated(gate: anyfloat[Tensor, "t f"], up: anyfloat[Tensor, "t f"]) -> anyfloat[Tensor, "t f"]:
    """silu(gate) * up: Shazeer, arXiv:2002.05202."""
    t, f = tp.indices("t f")
    return tp.silu(gate[t, f]) * up[t, f]


def weight(name: str, **axes: int) -> Tensor:
    """A parameter of the layer being written; axes by name."""
    return tp.param(name, "bf16", tuple(axes.values()), axes=tuple(axes))


def attend(x: Tensor, *, heads: int, kv_heads: int, theta: float) -> Tensor:
    """Causal attention with grouped heads, [t, d] -> [t, d]."""
    d = x.shape[1]
    e = d // heads
    q = tp.einsum("td,dhe->the", x, weight("wq", d=d, h=heads, e=e), name="q")
    k = tp.einsum("td,dge->tge", x, weight("wk", d=d, g=kv_heads, e=e), name="k")
    v = tp.einsum("td,dge->tge", x, weight("wv", d=d, g=kv_heads, e=e), name="v")
    q, k = tp.rotary(q, base=theta, name="q_rotary"), tp.rotary(k, base=theta, name="k_rotary")
    seen = tp.attention(q, k, v, causal=True, name="attention")
    return tp.einsum("the,hed->td", seen, weight("wo", h=heads, e=e, d=d), name="o")


def mlp(x: Tensor, *, ffn: int) -> Tensor:
    """The gated MLP, [t, d] -> [t, d]."""
    d = x.shape[1]
    gate = tp.einsum("td,df->tf", x, weight("w_gate", d=d, f=ffn), name="gate")
    up = tp.einsum("td,df->tf", x, weight("w_up", d=d, f=ffn), name="up")
    return tp.einsum("tf,fd->td", gated(gate, up), weight("w_down", f=ffn, d=d), name="down")


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
    h = x
    for layer in range(layers):
        with tp.name(f"layers.{layer}"):
            normed = tp.rms_norm(h, weight("attention_norm", d=d))
            h = h + attend(normed, heads=heads, kv_heads=kv_heads, theta=theta)
            normed = tp.rms_norm(h, weight("mlp_norm", d=d))
            h = h + mlp(normed, ffn=ffn)
    return {"out": h}


if __name__ == "__main__":
    print(forward.bind(layers=1))
