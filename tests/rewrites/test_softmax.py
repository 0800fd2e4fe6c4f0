"""Streaming softmax: proved, masked, in heads, run over cut keys, and refused where it is no attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.dsl.define import define
from tapestry.dsl.index import indices
from tapestry.expr import Call
from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.program import Block, Operation, Pin, Program
from tapestry.reference import evaluate
from tapestry.rewrites import RULES, Change, apply, matches
from tapestry.testing import assert_close, check_rule
from tapestry.testing.rules import Proof

from .wrong import Wrong, cases, spoiled


def test_it_is_proved_three_ways() -> None:
    assert check_rule(RULES["streaming_softmax"], examples=16) > 3


@tp.program
def heads(
    q: f32[Tensor, "t h e"], k: f32[Tensor, "s h e"], v: f32[Tensor, "s h e"], *, causal: bool = True, sign: float = 1.0
) -> Tensor:
    """Attention as its three steps, the mask before the scale."""
    scores = tp.einsum("the,she->hts", q, k)
    h, t, s = indices("h t s")
    if causal:
        visible = tp.where(s <= t, scores[h, t, s], -inf)
        sizes = dict(zip("hts", scores.shape, strict=True))
        scores = define("masked", [h, t, s], visible, extents=sizes)
    weights = tp.softmax(scores * (sign * 0.25), 2)
    return tp.einsum("hts,she->the", weights, v)


SIZES = {"t": 5, "h": 2, "e": 4, "s": 5}


@pytest.mark.parametrize("causal", [True, False])
def test_heads_with_and_without_a_mask_become_attention(causal: bool) -> None:
    program = heads.bind(**SIZES, causal=causal)
    found = apply(program, "streaming_softmax").program
    state, _ = found.operations
    assert isinstance(state.body, Block)
    assert state.body.attrs == {"scale": 0.25, "width": 4}
    assert [str(bound) for bound in state.where] == (["s - t < 1"] if causal else [])
    inputs = random_inputs(program, seed=1)
    assert_close(program, inputs, evaluate(found, inputs), evaluate(program, inputs))


def test_keys_that_are_cut_are_folded_by_their_states() -> None:
    program = heads.bind(**(SIZES | {"s": 8, "t": 1}), causal=False)
    found = apply(program, "streaming_softmax").program
    pinned = found.with_pins(Pin("op", "einsum_1.state", (("mesh0", "s"),)))
    made = plan(pinned, "cpu-4", mesh=(2,))
    inputs = random_inputs(program, seed=1)
    assert_close(program, inputs, made.run(inputs).outputs, evaluate(program, inputs))


def test_a_mask_below_a_negative_scale_is_no_mask() -> None:
    assert matches("streaming_softmax", heads.bind(**SIZES, sign=-1.0)) == ()
    assert len(matches("streaming_softmax", heads.bind(**SIZES, sign=-1.0, causal=False))) == 1


def test_what_is_read_elsewhere_or_is_no_attention_stays() -> None:
    @tp.program
    def seen(q: f32[Tensor, "t e"], k: f32[Tensor, "s e"], v: f32[Tensor, "s e"]) -> dict[str, Tensor]:
        weights = tp.softmax(q @ tp.transpose(k), 1)
        return {"weights": weights, "y": weights @ v}

    @tp.program
    def other_axis(q: f32[Tensor, "t e"], k: f32[Tensor, "s e"], v: f32[Tensor, "s e"]) -> Tensor:
        return tp.softmax(q @ tp.transpose(k), 0) @ v

    @tp.program
    def wider(q: f32[Tensor, "t e"], k: f32[Tensor, "s e"], v: f32[Tensor, "s d"]) -> Tensor:
        return tp.softmax(q @ tp.transpose(k), 1) @ v

    programs = [seen.bind(t=3, s=4, e=2), other_axis.bind(t=3, s=4, e=2), wider.bind(t=3, s=4, e=2, d=3)]
    assert [matches("streaming_softmax", program) for program in programs] == [(), (), ()]


# -- wrong on purpose --------------------------------------------------------------------------------------------------


def example(*, t: int = 3, s: int = 4, e: int = 2) -> tp.Tensor:
    found: tp.Tensor = RULES["streaming_softmax"].example(t=t, s=s, e=e)
    return found


def in_the_state(change: Callable[[Operation, Block], Operation]) -> Callable[[Operation], Operation]:
    return lambda op: change(op, op.body) if isinstance(op.body, Block) else op


def scale_forgotten(program: Program, op: Operation) -> Iterator[Change]:
    """Attend with scores as they are."""

    def fault(op: Operation, block: Block) -> Operation:
        return replace(op, body=replace(block, attributes=(("scale", 1.0), *block.attributes[1:])))

    yield from spoiled("streaming_softmax", program, op, in_the_state(fault))


def values_as_keys(program: Program, op: Operation) -> Iterator[Change]:
    """Attend with the values as keys."""

    def fault(op: Operation, block: Block) -> Operation:
        q, _, v = block.reads
        return replace(op, body=replace(block, reads=(q, v, v)))

    yield from spoiled("streaming_softmax", program, op, in_the_state(fault))


def divided_by_the_largest(program: Program, op: Operation) -> Iterator[Change]:
    """Divide by the largest score instead of the sum."""
    for change in RULES["streaming_softmax"].changes(program, op):
        state, last = change.added
        at, total = last.reads
        largest = replace(total, index=(*total.index[:-1], total.index[-1] + 1))
        yield replace(change, added=(state, replace(last, body=Call("divide", (at, largest)))))


WRONG = [
    Wrong(scale_forgotten, example, ("values",), algebraic=True),
    Wrong(values_as_keys, example, ("sets", "values"), algebraic=True),
    Wrong(divided_by_the_largest, example, ("values",), algebraic=True),
]


@pytest.mark.parametrize(("wrong", "proof"), cases(WRONG))
def test_each_proof_that_can_see_the_fault_does(wrong: Wrong, proof: Proof) -> None:
    wrong.prove_seen_by(proof)
