"""Fusion: proved, and what it does at guards, roundings, blocks and outputs."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, int8, param
from tapestry.program import Operation, Program
from tapestry.reference import evaluate
from tapestry.rewrites import RULES, apply, improve, matches
from tapestry.testing import check_rule


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.family == "fusion"])
def test_each_rule_is_proved_three_ways(name: str) -> None:
    assert check_rule(RULES[name], examples=16) > 3


@tp.program
def narrow(x: int8[Tensor, "n"]) -> Tensor:
    wrapped = (x * 100).named("wrapped")
    return wrapped + 1


def test_what_was_rounded_is_rounded_still() -> None:
    found = apply(narrow.bind(n=3), "fuse_pointwise").program
    assert len(found.operations) == 1
    x = np.array([1, 2, 3], dtype=np.int8)
    assert evaluate(found, {"x": x})["out"].tolist() == evaluate(narrow.bind(n=3), {"x": x})["out"].tolist()
    assert "int8(" in str(found)


@tp.program
def layered(x: f32[Tensor, "n m"], w: param[f32[Tensor, "m k"]], b: param[f32[Tensor, "k"]]) -> Tensor:
    return tp.gelu(x @ w + b)


def names(program: Program) -> list[str]:
    return [op.name for op in program.operations]


def test_a_bias_goes_into_the_activation_and_not_into_the_product() -> None:
    found = apply(layered.bind(n=4, m=3, k=2), "fuse_pointwise")
    assert names(found.program) == ["matmul", "gelu"]
    assert found.origins["gelu"] == ("add", "gelu")


def test_an_output_is_not_fused_away_but_may_be_computed_again() -> None:
    @tp.program
    def net(x: f32[Tensor, "n"]) -> dict[str, Tensor]:
        seen = x + 1
        return {"seen": seen, "y": tp.exp(seen)}

    program = net.bind(n=3)
    assert [matches(rule, program) for rule in ("fuse_pointwise", "fuse_into_all", "compose_views")] == [(), (), ()]
    found = apply(program, "recompute").program
    assert names(found) == ["add", "exp"]
    assert found.op_by_name["exp"].operands == ("x",)


def test_a_block_takes_a_view_where_that_is_a_read_still_and_no_arithmetic() -> None:
    @tp.program
    def seen(q: f32[Tensor, "t h e"], k: f32[Tensor, "t h e"], v: f32[Tensor, "t h e"]) -> Tensor:
        turned = tp.reverse(k, 0).named("turned")
        return tp.attention(q, turned, v * 2)

    program = seen.bind(t=4, h=1, e=2)
    found = apply(program, "compose_views", "fuse_pointwise").program
    (state,) = [op for op in found.operations if op.monoid == "online_softmax"]
    assert len(found.operations) == len(program.operations) - 1
    assert state.reads[1].tensor == "k"
    assert state.reads[2].tensor == "multiply"


def seconds(program: Program, op: Operation) -> float:
    """A cost of tests: points that are computed, and what is read and written."""
    size = sum(program.tensor(name).size for name in (*op.operands, op.output))
    return 1.0 + size + len(str(op.body)) / 1000


def test_changes_are_chosen_by_cost() -> None:
    found = improve(layered.bind(n=4, m=3, k=2), ["fuse_pointwise"], seconds)
    assert names(found.program) == ["matmul", "gelu"]
    dear = improve(layered.bind(n=4, m=3, k=2), ["fuse_pointwise"], lambda program, op: float(len(str(op.body))))
    assert dear.steps == ()


def test_a_change_that_gains_nothing_is_made_for_what_follows() -> None:
    @tp.program
    def net(x: f32[Tensor, "n"]) -> Tensor:
        return tp.exp(tp.abs(x * 2))

    price = {1: 1.0, 2: 2.5, 3: 1.0}

    def by_length(program: Program, op: Operation) -> float:
        """Two functions in one operation cost more than one each, three little."""
        return price[sum(str(op.body).count(name) for name in ("exp(", "absolute(", "abs(", "multiply("))]

    assert names(improve(net.bind(n=3), ["fuse_pointwise"], by_length).program) == ["exp"]


def test_only_wanted_changes_are_made() -> None:
    found = improve(layered.bind(n=4, m=3, k=2), ["fuse_pointwise"], seconds, wanted=lambda program, match: False)
    assert found.steps == ()


def test_bodies_do_not_grow_without_end() -> None:
    @tp.program
    def net(x: f32[Tensor, "n"]) -> Tensor:
        for _ in range(12):
            x = (x * x + x).named("squared")
        return x

    found = apply(net.bind(n=2), "fuse_pointwise").program
    assert 1 < len(found.operations) < 12
