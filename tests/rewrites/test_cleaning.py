"""Dead values and common subexpressions: proved, and told apart from what only looks alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tapestry as tp
from tapestry.dsl.program import program
from tapestry.rewrites import RULES, apply, matches
from tapestry.testing import check_rule


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.family == "cleaning"])
def test_each_rule_is_proved_three_ways(name: str) -> None:
    assert check_rule(RULES[name], examples=16) > 3


def x() -> tp.Tensor:
    return tp.input("x", "f32", (4, 4))


def as_a_sum() -> tp.Tensor:
    a = x()
    return tp.sum(a, 0) - tp.sum(a, 1)


def as_a_transpose() -> tp.Tensor:
    a = x()
    return tp.exp(a) - tp.exp(tp.transpose(a))


def as_constants() -> tp.Tensor:
    a = x()
    return tp.divide(1.0, a * 0.0) - tp.divide(1.0, a * -0.0)


def as_dtypes() -> tp.Tensor:
    a = x()
    return tp.cast(a, "f64") - tp.cast(a, "f32")


@pytest.mark.parametrize("alike", [as_a_sum, as_a_transpose, as_constants, as_dtypes])
def test_what_only_looks_alike_is_computed_apart(alike: Callable[[], tp.Tensor]) -> None:
    bound = program(alike).bind()
    assert matches("common_subexpressions", bound) == ()


def test_constants_of_the_same_values_are_one() -> None:
    @tp.program
    def net(a: tp.f32[tp.Tensor, "n"]) -> tp.Tensor:
        left, right = tp.constant([1.0, 2.0, 3.0]), tp.constant([1.0, 2.0, 3.0])
        return a * left + tp.exp(a * right)

    found = apply(net.bind(n=3), "common_subexpressions").program
    assert [op.name for op in found.operations] == ["multiply", "exp", "add"]
    assert len(found.of_role("const")) == 1


def test_a_result_that_comes_out_is_kept_and_the_hidden_one_read_from_it() -> None:
    @tp.program
    def net(a: tp.f32[tp.Tensor, "n"]) -> dict[str, tp.Tensor]:
        hidden = tp.exp(a)
        return {"y": hidden + 1, "seen": tp.exp(a)}

    found = apply(net.bind(n=3), "common_subexpressions").program
    assert [op.output for op in found.operations] == ["seen", "y"]


def test_values_that_only_dead_ones_read_are_dead() -> None:
    @tp.program
    def net(a: tp.f32[tp.Tensor, "n"]) -> tp.Tensor:
        _ = tp.exp(a * 2) + 1
        return a + 1

    assert [op.output for op in apply(net.bind(n=3), "dead_values").program.operations] == ["out"]
