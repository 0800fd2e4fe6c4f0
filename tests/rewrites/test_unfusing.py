"""Operations taken apart: proved, and what stays together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32
from tapestry.dsl.define import define
from tapestry.dsl.index import indices
from tapestry.program import Operation, Program
from tapestry.rewrites import RULES, Change, apply, improve, matches
from tapestry.testing import check_rule
from tapestry.testing.rules import Proof

from .wrong import Wrong, cases


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.family == "unfusing"])
def test_each_rule_is_proved_three_ways(name: str) -> None:
    assert check_rule(RULES[name], examples=16) > 3


@tp.op
def normed(x: bf16[Tensor, "n m"], v: f32[Tensor, "n"]) -> bf16[Tensor, "n m"]:
    n, m = tp.indices("n m")
    return x[n, m] * tp.rsqrt(v[n] + 1e-5)


@tp.program
def net(x: bf16[Tensor, "n m"], v: f32[Tensor, "n"]) -> Tensor:
    return normed(x, v)


def elements_computed(program: Program, op: Operation) -> float:
    """Functions computed, each at every point of the operation."""
    return str(op.body).count("(") * float(program.tensor(op.output).size) + 1


def test_what_varies_along_fewer_dimensions_is_computed_over_those_where_that_is_cheaper() -> None:
    found = improve(net.bind(n=8, m=100), ["unfuse"], elements_computed).program
    assert [(op.name, list(op.extents.values())) for op in found.operations] == [
        ("normed.inner", [8]),
        ("normed", [8, 100]),
    ]
    assert found.by_name["normed.inner"].dtype == "f32"


def test_fused_and_unfused_is_what_it_was() -> None:
    program = net.bind(n=2, m=3)
    again = apply(apply(program, "unfuse").program, "fuse_pointwise").program
    assert str(again).replace("normed.", "") == str(program)


def test_a_result_that_several_read_is_computed_for_each() -> None:
    @tp.program
    def shared(x: f32[Tensor, "n"]) -> dict[str, Tensor]:
        total = tp.sum(x)
        return {"a": x + total, "b": x * total, "c": x - total}

    found = apply(shared.bind(n=3), "duplicate").program
    assert [op.monoid for op in found.operations].count("sum") == 3
    assert matches("duplicate", found) == ()
    assert len(apply(found, "common_subexpressions").program.operations) == 4


# -- wrong on purpose --------------------------------------------------------------------------------------------------


def wide_inside(*, n: int = 4) -> tp.Tensor:
    x = tp.input("x", "int8", (n,), axes=("n",))
    i = indices("n")
    return define("y", [i], x[i] * 100 // 3, dtype="int32").named("y")


def kept_as_narrow_as_it_is_typed(program: Program, op: Operation) -> Iterator[Change]:
    """Compute a part by itself, and keep it in the dtype of what it is computed of: it wraps where it did not."""
    for change in RULES["unfuse"].changes(program, op) if op.name == "y" else ():
        (tensor,) = change.tensors
        yield replace(change, tensors=(replace(tensor, dtype="int8"),))


WRONG = [Wrong(kept_as_narrow_as_it_is_typed, wide_inside, ("values",))]


@pytest.mark.parametrize(("wrong", "proof"), cases(WRONG))
def test_each_proof_that_can_see_the_fault_does(wrong: Wrong, proof: Proof) -> None:
    wrong.prove_seen_by(proof)
