"""What is seen on the way is not forgotten for what waits less and has nothing left to hide."""

from __future__ import annotations

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import load_machine
from tapestry.planner.search.question import Question
from tapestry.planner.search.search import searched
from tapestry.planner.strategy.mesh import Mesh


@tp.program
def grams(x: f32[Tensor, "n c"], up: param[f32[Tensor, "e c h"]], down: param[f32[Tensor, "e h c"]]) -> Tensor:
    """Two products of what is as good as free to make, and beside them what nobody asks for: products by experts."""
    shares = tp.softmax(x)
    x * tp.sum(x, axis=0, keepdims=True)
    tp.einsum("enh,ehc->nc", tp.einsum("nc,ech->enh", x, up), down)
    gram = tp.einsum("nc,nk->ck", shares, shares)
    return tp.einsum("nc,nk->ck", gram, gram)


def test_no_answer_that_was_seen_is_shorter_in_pieces_than_what_is_found() -> None:
    program = grams.bind(n=64, c=512, e=6, h=100)
    search = searched(Question.of(program, load_machine("cpu-4"), Mesh.of((4,), 4), time_limit=600))
    found = search.improved(search.first())
    assert search.seen
    assert found.makespan_s <= min(search.in_pieces(other).makespan_s for other in search.seen)
