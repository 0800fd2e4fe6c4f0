"""Products of matrices put together another way: proved, and chosen by cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.expr import Affine, Bound, Inside, Read
from tapestry.program import Operation, Program
from tapestry.rewrites import RULES, Change, apply, improve, matches
from tapestry.testing import check_rule
from tapestry.testing.rules import Proof

from .wrong import Wrong, cases, spoiled, with_leaves


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.family == "products"])
def test_each_rule_is_proved_three_ways(name: str) -> None:
    assert check_rule(RULES[name], examples=16) > 3


@tp.program
def chain(a: f32[Tensor, "i j"], b: f32[Tensor, "j k"], c: f32[Tensor, "k m"], d: f32[Tensor, "m n"]) -> Tensor:
    return ((a @ b) @ c) @ d


def equations(program: Program) -> list[str]:
    return [line.strip() for line in str(program).splitlines() if "] = " in line]


def multiply_adds(_program: Program, op: Operation) -> float:
    return prod(dim.extent for dim in op.dims)


def test_a_chain_is_turned_around_as_far_as_it_goes_and_back() -> None:
    program = chain.bind(i=2, j=3, k=4, m=5, n=6)
    right = apply(program, "associate_right").program
    assert [op.operands for op in right.operations] == [("c", "d"), ("b", right.operations[0].output),
                                                        ("a", right.operations[1].output)]  # fmt: skip
    left = apply(right, "associate_left").program
    assert [sorted(op.extents.values()) for op in left.operations] == [
        sorted(op.extents.values()) for op in program.operations
    ]


def test_the_order_of_a_chain_is_chosen_by_its_cost() -> None:
    program = chain.bind(i=50, j=40, k=30, m=20, n=1)
    found = improve(program, ["associate_right", "associate_left"], multiply_adds).program
    assert sum(multiply_adds(found, op) for op in found.operations) == 20 * 30 + 30 * 40 + 40 * 50


def test_two_turns_are_made_where_neither_gains_by_itself() -> None:
    program = chain.bind(i=5, j=3, k=5, m=20, n=20)
    both = ["associate_right", "associate_left"]
    assert improve(program, both, multiply_adds, ahead=1).steps == ()
    found = improve(program, both, multiply_adds).program
    assert sum(multiply_adds(program, op) for op in program.operations) == 75 + 500 + 2000
    assert sum(multiply_adds(found, op) for op in found.operations) == 300 + 1200 + 300


def test_a_product_that_comes_out_stays() -> None:
    @tp.program
    def net(a: f32[Tensor, "i j"], b: f32[Tensor, "j k"], c: f32[Tensor, "k m"]) -> dict[str, Tensor]:
        ab = a @ b
        return {"ab": ab, "y": ab @ c}

    assert matches("associate_right", net.bind(i=2, j=3, k=4, m=5)) == ()


def test_a_linear_layer_is_one_operation_and_two_again() -> None:
    @tp.program
    def net(x: f32[Tensor, "n i"], w: f32[Tensor, "o i"], b: f32[Tensor, "o"]) -> Tensor:
        return tp.linear(x, w, b)

    program = net.bind(n=2, i=3, o=4)
    one = apply(program, "bias_into_sum").program
    assert len(one.operations) == 1
    two = apply(one, "bias_out_of_sum").program
    assert [op.factors is not None for op in two.operations] == [True, False]
    assert [str(op.body).partition("(")[0] for op in two.operations] == ["multiply", "add"]


# -- wrong on purpose --------------------------------------------------------------------------------------------------


def square(*, i: int = 3) -> tp.Tensor:
    a, b, c = (tp.input(name, "int32", (i, i), axes=("p", "q")) for name in "abc")
    return ((a @ b).named("ab") @ c).named("y")


def order_exchanged(program: Program, op: Operation) -> Iterator[Change]:
    """Multiply the last two matrices first, in the other order."""

    def fault(made: Operation) -> Operation:
        swap = {"b": "c", "c": "b"}
        return with_leaves(made, lambda node: replace(node, tensor=swap.get(node.tensor, node.tensor)))

    yield from spoiled("associate_right", program, op, fault) if op.name == "ab" else ()


def bias_in_every_term(program: Program, op: Operation) -> Iterator[Change]:
    """Add the bias to each term of the sum.

    before:
        product[i, j] = sum[k] x[i, k] * w[k, j]
        y[i, j] = product[i, j] + b[j]
    after:
        y[i, j] = sum[k] x[i, k] * w[k, j] + where([k < 1], b[j], 0)
    """

    def fault(made: Operation) -> Operation:
        always = Inside((Bound(Affine.dim("k"), 0, None),))
        return with_leaves(made, lambda node: always if isinstance(node, Inside) else node)

    yield from spoiled("bias_into_sum", program, op, fault) if op.name == "product" else ()


def terms_of_the_first(program: Program, op: Operation) -> Iterator[Change]:
    """Compute the terms of a sum of products by themselves, and add up the first one as often.

    before:
        y[i, j] = sum[k] x[i, k] * w[k, j]
    after:
        y.terms[i, j, k] = x[i, k] * w[k, j]
        y[i, j] = sum[k] y.terms[i, j, k]
    """

    def fault(made: Operation) -> Operation:
        def leaf(node: Read) -> Read:
            return replace(node, index=(*node.index[:-1], Affine())) if node.tensor == "y.terms" else node

        return with_leaves(made, leaf)

    yield from spoiled("terms_apart", program, op, fault) if op.name == "y" else ()


def layer(*, i: int = 2, k: int = 3, j: int = 2) -> tp.Tensor:
    return RULES["bias_into_sum"].example(i=i, k=k, j=j, dtype="int32")


def product(*, i: int = 2, k: int = 3, j: int = 2) -> tp.Tensor:
    return RULES["terms_apart"].example(i=i, k=k, j=j, dtype="int32")


WRONG = [
    Wrong(order_exchanged, square, ("sets", "values"), algebraic=True),
    Wrong(bias_in_every_term, layer, ("sets", "values", "text")),
    Wrong(terms_of_the_first, product, ("sets", "values", "text")),
]


@pytest.mark.parametrize(("wrong", "proof"), cases(WRONG))
def test_each_proof_that_can_see_the_fault_does(wrong: Wrong, proof: Proof) -> None:
    wrong.prove_seen_by(proof)
