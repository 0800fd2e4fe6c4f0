"""Answers that cost as much by the model hide more in pieces: operations of much work are cut otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import plan
from tapestry.program import Pin


@tp.program
def grams(x: f32[Tensor, "n=64 c=512"], w: param[f32[Tensor, "e=6 c h=100"]], v: param[f32[Tensor, "e h c"]]) -> Tensor:
    """Experts, and beside them what a softmax has in common with itself, twice; the last alone is an output."""
    shares = tp.softmax(x)
    _ = x * tp.sum(x, axis=0, keepdims=True)
    hidden = tp.einsum("nc,ech->enh", x, w, name="hidden")
    _ = tp.einsum("enh,ehc->nc", hidden, v, name="mixed")
    once = tp.einsum("nc,nk->ck", shares, shares, name="once")
    return tp.einsum("ac,ak->ck", once, once, name="twice")


def seconds(pins: Sequence[Pin] = ()) -> float:
    return plan(grams.bind(), "cpu-4", mesh=(4,), pins=pins, time_limit=600).document.predicted.makespan_s


def test_what_is_sent_in_pieces_is_found_beside_what_is_read_so() -> None:
    """Both cost the same by the model; a fold that goes on while the rest is computed hides more than a gather."""
    free = seconds()
    for dim in "ack":
        assert free <= 1.01 * seconds([Pin("op", "twice", (("mesh0", dim),))])
