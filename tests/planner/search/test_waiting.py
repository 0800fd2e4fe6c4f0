"""What is moved after all is computed is worth more than the model, which adds up, says."""

from __future__ import annotations

import tapestry as tp
from tapestry import Tensor, bf16
from tapestry.planner import plan
from tapestry.program import Pin

HEADS, TOKENS, WIDTH = 32, 8192, 4096
NEARLY = 1.005  # of what pins give


@tp.program
def gradients(x: bf16[Tensor, "t d"], target: bf16[Tensor, "t d"]) -> dict[str, Tensor]:
    """Forward and backward of attention, and of a gated product behind it."""

    @tp.program
    def loss(x: bf16[Tensor, "t d"], target: bf16[Tensor, "t d"]) -> Tensor:
        d = x.shape[1]
        q, k, v = (
            tp.einsum("td,dhe->the", x, tp.param(name, "bf16", (d, heads, d // HEADS)), name=name[1])
            for name, heads in (("wq", HEADS), ("wk", HEADS // 4), ("wv", HEADS // 4))
        )
        seen = tp.attention(q, k, v, causal=True)
        h = x + tp.einsum("the,hed->td", seen, tp.param("wo", "bf16", (HEADS, d // HEADS, d)))
        up, gate = (h @ tp.param(name, "bf16", (d, 3 * d)) for name in ("up", "gate"))
        away = (h + (tp.silu(gate) * up) @ tp.param("down", "bf16", (3 * d, d))).astype("f32") - target.astype("f32")
        return tp.mean(away * away)

    value, grads = tp.value_and_grad(loss, wrt=("w*", "up", "gate", "down"))(x, target)
    return {"loss": value, **{f"of_{name}": grad for name, grad in grads.items()}}


def test_no_gradient_is_added_up_last_where_others_hide_what_they_gather() -> None:
    program = gradients.bind(t=TOKENS, d=WIDTH)
    forward = [op for op in program.operations if not op.name.startswith("grad.") and "t" in op.extents]
    pins = [Pin("op", op.name, (("mesh0", "t"),), "zigzag") for op in forward]
    found, pinned = (plan(program, "h200x8", mesh=(8,), pins=some) for some in ([], pins))
    assert found.check().ok
    assert found.document.predicted.makespan_s <= NEARLY * pinned.document.predicted.makespan_s
