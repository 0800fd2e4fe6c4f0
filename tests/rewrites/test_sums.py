"""Factors taken out of sums and put back: proved, and what keeps them where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import tapestry as tp
from tapestry import Tensor, f32, int8, int32
from tapestry.expr import Const, Read
from tapestry.program import Operation, Program
from tapestry.rewrites import RULES, Change, apply, matches
from tapestry.testing import check_rule
from tapestry.testing.rules import Proof

from .wrong import Wrong, cases, spoiled, with_leaves


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.family == "sums"])
def test_each_rule_is_proved_three_ways(name: str) -> None:
    assert check_rule(RULES[name], examples=16) > 3


def equations(program: Program) -> list[str]:
    return [line.strip() for line in str(program).splitlines() if "] = " in line]


def test_the_divisor_of_a_mean_is_taken_out_of_its_sum() -> None:
    @tp.program
    def net(x: f32[Tensor, "n k"]) -> Tensor:
        return tp.mean(x, 1)

    found = apply(net.bind(n=2, k=3), "factor_out").program
    assert equations(found) == ["mean.sum[n] = sum[k] x[n, k]", "out[n] = mean.sum[n] / 3"]


def test_a_sum_of_three_factors_becomes_two_products_of_matrices() -> None:
    @tp.program
    def net(a: f32[Tensor, "i j"], b: f32[Tensor, "j k"], c: f32[Tensor, "k m"]) -> Tensor:
        return tp.einsum("ij,jk,km->im", a, b, c)

    found = apply(net.bind(i=2, j=3, k=4, m=5), "factor_out").program
    assert equations(found) == [
        "einsum.sum[i, k] = sum[j] a[i, j] * b[j, k]",
        "out[i, m] = sum[k] einsum.sum[i, k] * c[k, m]",
    ]


def test_what_a_triangle_leaves_out_is_left_out_of_the_inner_sum() -> None:
    @tp.op
    def below(x: f32[Tensor, "n k"], c: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
        n, k = tp.indices("n k")
        return tp.sum[k](c[n] * x[n, k], where=k < n)

    @tp.program
    def net(x: f32[Tensor, "n k"], c: f32[Tensor, "n"]) -> Tensor:
        return below(x, c)

    found = apply(net.bind(n=4, k=4), "factor_out").program
    assert equations(found) == [
        "below.sum[n] = sum[k] x[n, k]  where k - n < 0",
        "out[n] = c[n] * below.sum[n]",
    ]


def test_integers_that_wrap_at_another_width_stay() -> None:
    @tp.program
    def net(x: int8[Tensor, "n k"], c: int32[Tensor, "n"]) -> Tensor:
        return c * tp.sum(x, 1, dtype="int8")

    assert matches("distribute", net.bind(n=2, k=3)) == ()


def test_a_sum_that_comes_out_or_is_read_twice_stays() -> None:
    @tp.program
    def net(x: f32[Tensor, "n k"], c: f32[Tensor, "n"]) -> dict[str, Tensor]:
        seen, twice = tp.sum(x, 1), tp.sum(x * x, 1)
        return {"seen": seen, "y": c * seen, "z": c * twice, "again": twice + 1}

    assert matches("distribute", net.bind(n=2, k=3)) == ()


# -- wrong on purpose --------------------------------------------------------------------------------------------------


def taken_out_of_the_largest(*, n: int = 3, k: int = 4) -> tp.Tensor:
    x, c = tp.input("x", "int32", (n, k), axes=("n", "k")), tp.input("c", "int32", (n, 1), axes=("n", "one"))
    return tp.max(c * x, 1).named("y")


def factor_out_of_any_fold(program: Program, op: Operation) -> Iterator[Change]:
    """Take a factor out of a fold, whatever it folds by: max(-x) is no -max(x)."""
    if op.monoid == "max":
        for change in RULES["factor_out"].changes(program, replace(op, monoid="sum")):
            inner, outer = change.added
            yield replace(change, added=(replace(inner, monoid="max"), outer))


def factor_left_behind(program: Program, op: Operation) -> Iterator[Change]:
    """Take a factor out of a sum, and forget it.

    before:
        y[n] = sum[k] c[n] * x[n, k]
    after:
        y.sum[n] = sum[k] x[n, k]
        y[n] = c[n] * y.sum[n]
    """

    def fault(made: Operation) -> Operation:
        return with_leaves(made, lambda node: Const(1) if isinstance(node, Read) and node.tensor == "c" else node)

    yield from spoiled("factor_out", program, op, fault) if op.name == "y" else ()


def one_term_multiplied(program: Program, op: Operation) -> Iterator[Change]:
    """Multiply the first term of a sum by what the whole sum is multiplied by."""
    for change in RULES["multiply_out"].changes(program, op) if op.name == "y" else ():
        (made,) = change.added
        body: Any = made.body
        yield replace(change, added=(replace(made, body=replace(body, args=(body.args[0], body.args[1].args[1]))),))


def scaled(*, n: int = 3, k: int = 4) -> tp.Tensor:
    return RULES["factor_out"].example(n=n, k=k, dtype="int32")


def in_brackets(*, n: int = 4) -> tp.Tensor:
    return RULES["multiply_out"].example(n=n, dtype="int32")


WRONG = [
    Wrong(factor_out_of_any_fold, taken_out_of_the_largest, ("values",), algebraic=True),
    Wrong(factor_left_behind, scaled, ("sets", "values", "text"), algebraic=True),
    Wrong(one_term_multiplied, in_brackets, ("values",), algebraic=True),
]


@pytest.mark.parametrize(("wrong", "proof"), cases(WRONG))
def test_each_proof_that_can_see_the_fault_does(wrong: Wrong, proof: Proof) -> None:
    wrong.prove_seen_by(proof)
