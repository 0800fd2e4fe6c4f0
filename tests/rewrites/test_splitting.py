"""Dimensions and folds in parts: proved, and what each leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.expr import Affine, Read
from tapestry.program import Operation, Program
from tapestry.rewrites import RULES, Change, apply, matches
from tapestry.testing import check_rule
from tapestry.testing.rules import Proof

from .wrong import Wrong, cases, spoiled, with_leaves


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.family == "splitting"])
def test_each_rule_is_proved_three_ways(name: str) -> None:
    assert check_rule(RULES[name], examples=16) > 3


@tp.program
def product(x: f32[Tensor, "i k"], w: f32[Tensor, "k j"]) -> Tensor:
    return (x @ w).named("y")


def equations(program: Program) -> list[str]:
    return [line.strip() for line in str(program).splitlines() if " = " in line and "[" in line]


def test_a_dimension_is_split_once_and_merged_back() -> None:
    program = product.bind(i=4, k=6, j=2)
    split = apply(program, RULES["split_dimension"].with_options(dim="k", parts=3)).program
    (op,) = split.operations
    assert [(dim.name, dim.extent) for dim in op.dims] == [("i", 4), ("j", 2), ("k0", 3), ("k1", 2)]
    assert op.reduce_dims == ("k0", "k1")
    merged = apply(split, "merge_dimensions").program
    (back,) = merged.operations
    assert str(back.body) == str(program.operations[0].body).replace("k", "k0")
    assert back.extents == {"i": 4, "j": 2, "k0": 6}


def test_parts_of_uneven_length_leave_out_what_is_beyond_the_end() -> None:
    program = product.bind(i=4, k=7, j=2)
    found = apply(program, RULES["split_reduction"].with_options(parts=3)).program
    assert equations(found) == [
        "y.part[i, j, k0] = sum[k1] x[i, 3*k0 + k1] * w[3*k0 + k1, j]  where 3*k0 + k1 < 7",
        "y[i, j] = sum[k0] y.part[i, j, k0]",
    ]


def test_the_parts_of_narrow_floats_are_kept_as_their_sum_is_computed() -> None:
    @tp.program
    def summed(x: tp.f16[Tensor, "k"]) -> dict[str, Tensor]:
        return {"sum": tp.sum(x), "max": tp.max(x)}

    found = apply(summed.bind(k=8), "split_reduction").program
    assert {name: found.by_name[name].dtype for name in ("sum.part", "max.part")} == {
        "sum.part": "f32",
        "max.part": "f16",
    }


def test_what_goes_by_the_order_or_position_of_points_is_folded_in_one() -> None:
    @tp.program
    def net(x: f32[Tensor, "k"]) -> dict[str, Tensor]:
        return {"where": tp.argmax(x), "scan": tp.cumsum(x, 0)}

    program = net.bind(k=9)
    assert matches("split_reduction", program) == ()
    uneven = RULES["split_dimension"].with_options(parts=2)
    assert [match.op.name for match in matches(uneven, program) if match.op.reduce_dims] == []


def test_the_dimension_of_a_record_is_in_one_piece() -> None:
    @tp.program
    def net(x: f32[Tensor, "n k"]) -> dict[str, Tensor]:
        values, places = tp.topk(x, 4, 1)
        return {"values": values, "places": places}

    program = net.bind(n=4, k=8)
    split = [match.change.added[0] for match in matches("split_dimension", program) if match.op.record_dim]
    assert [op.record_dim for op in split] == [program.operations[0].record_dim] * len(split)
    assert len(split) > 0


# -- wrong on purpose --------------------------------------------------------------------------------------------------


def doubled(*, n: int = 6) -> tp.Tensor:
    return (tp.input("x", "int32", (n,), axes=("n",)) * 2).named("y")


def parts_exchanged(program: Program, op: Operation) -> Iterator[Change]:
    """Go over a dimension in parts, and read as if part and place had changed places.

    before:
        y[n] = x[n] * 2
    after:
        y[3*n0 + n1] = x[3*n0 + n1] * 2
    """

    def fault(made: Operation) -> Operation:
        other = Affine.dim("n0") + 2 * Affine.dim("n1")
        return with_leaves(made, lambda node: replace(node, index=(other,)) if isinstance(node, Read) else node)

    yield from spoiled("split_dimension", program, op, fault) if program.tensor("x").size % 2 == 0 else ()


def flattened(*, a: int = 2, b: int = 4) -> tp.Tensor:
    return tp.sum(tp.reshape(tp.input("x", "int32", (a * b,)), (a, b))).named("y")


def one_too_few(program: Program, op: Operation) -> Iterator[Change]:
    """Go over two dimensions as over one, and stop before the last element.

    before:
        y[] = sum[d0, d1] x[4*d0 + d1]
    after:
        y[] = sum[d0] x[d0]
    """

    def fault(made: Operation) -> Operation:
        return replace(made, dims=tuple(replace(dim, extent=dim.extent - 1) for dim in made.dims))

    yield from spoiled("merge_dimensions", program, op, fault) if op.name == "y" and op.dims[0].extent > 1 else ()


WRONG = [
    Wrong(parts_exchanged, doubled, ("sets", "values", "text")),
    Wrong(one_too_few, flattened, ("sets", "values")),
]


@pytest.mark.parametrize(("wrong", "proof"), cases(WRONG))
def test_each_proof_that_can_see_the_fault_does(wrong: Wrong, proof: Proof) -> None:
    wrong.prove_seen_by(proof)
