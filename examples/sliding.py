"""Domains that are no boxes: sliding-window attention, a ragged batch, a set of blocks; equal work on four ranks.

    python examples/sliding.py
    tapestry plan examples/sliding.py:sliding --machine cpu-4

What a query does not see is not computed, not priced and not moved. Prints, for each operation, how its points lie on
the ranks, what moves, and how far the run is from NumPy's own answer.

Sliding windows with a few keys that all see: Xiao et al., "Efficient Streaming Language Models with Attention Sinks",
arXiv:2309.17453.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tapestry as tp
from tapestry import Tensor, f32

if TYPE_CHECKING:
    import numpy as np

RANKS, TOKENS, HEADS, WIDTH = 4, 256, 2, 16
WINDOW, SINKS = 32, 4
LENGTHS = (256, 31, 64, 7, 128, 90, 12, 200)
EDGE = 32
BLOCKS = tuple(tuple(q == k or (q * q + k) % 3 == 0 for k in range(TOKENS // EDGE)) for q in range(TOKENS // EDGE))

CUT = {"sliding": ("attention.state", "d0"), "ragged": ("ragged_softmax*", "b"), "blocks": ("chosen_products", "q")}


@tp.program
def sliding(q: f32[Tensor, "256 2 16"], k: f32[Tensor, "256 2 16"], v: f32[Tensor, "256 2 16"]) -> Tensor:
    """Each query sees the keys just before, and the first few."""
    return tp.attention(q, k, v, where=lambda t, s: (s <= t) & ((t - s < WINDOW) | (s < SINKS)))


@tp.op
def ragged_softmax(x: f32[Tensor, "b t e"], *, lengths: tuple[int, ...] = LENGTHS) -> f32[Tensor, "b t e"]:
    """A softmax over rows of different lengths; 0 beyond the end of a row."""
    b, t, e, s = tp.indices("b t e s")
    length = tp.table(lengths)[b]
    total = tp.sum[s](tp.exp(x[b, s, e]), where=s < length)
    return tp.where(t < length, tp.exp(x[b, t, e]) / total, 0.0)


@tp.program
def ragged(x: f32[Tensor, "8 256 16"]) -> Tensor:
    """Softmax over the tokens that a row has."""
    return ragged_softmax(x)


@tp.op
def chosen_products(x: f32[Tensor, "q e"], w: f32[Tensor, "k e"]) -> f32[Tensor, "q e"]:
    """Each row weighed by the rows of its blocks."""
    q, k, e = tp.indices("q k e")
    return tp.sum[k](x[q, e] * w[k, e], where=tp.table(BLOCKS)[q // EDGE, k // EDGE])


@tp.program
def blocks(x: f32[Tensor, "256 16"], w: f32[Tensor, "256 16"]) -> Tensor:
    """A product over a set of blocks."""
    return chosen_products(x, w)


def by_hand(program: str, given: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The same with NumPy, masks written out."""
    import numpy as np

    rows, columns = np.mgrid[:TOKENS, :TOKENS]
    if program == "sliding":
        seen = (columns <= rows) & ((rows - columns < WINDOW) | (columns < SINKS))
        scores = np.where(seen, np.einsum("the,she->hts", given["q"], given["k"]) / WIDTH**0.5, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(np.einsum("hts,she->the", weights / weights.sum(-1, keepdims=True), given["v"]))
    if program == "ragged":
        there = (np.arange(TOKENS) < np.array(LENGTHS)[:, np.newaxis])[:, :, np.newaxis]
        weights = np.exp(given["x"]) * there
        return np.asarray(weights / weights.sum(1, keepdims=True))
    return np.asarray(given["x"] * (np.array(BLOCKS)[rows // EDGE, columns // EDGE] @ given["w"]))


def main() -> None:
    """Plan, check and run each program over four ranks."""
    import numpy as np

    from tapestry.planner import load_machine, plan
    from tapestry.program import Pin

    for name, program in (("sliding", sliding), ("ragged", ragged), ("blocks", blocks)):
        bound = program.bind()
        rng = np.random.default_rng(0)
        given = {tensor.name: rng.standard_normal(tensor.shape).astype(np.float32) for tensor in bound.of_role("input")}
        pattern, dim = CUT[name]  # as a large one would be cut: these are too small to be worth more than one rank
        pin = Pin("op", pattern, (("mesh0", dim),), "balanced")
        made = plan(bound, load_machine("cpu-4"), mesh=(RANKS,), pins=[pin])
        made.check()
        done = made.run(given)
        [out] = done.outputs.values()
        print(made.explain())
        print(f"{name}: {done.bytes_moved} bytes moved, {np.abs(out - by_hand(name, given)).max():.1e} from NumPy\n")


if __name__ == "__main__":
    main()
