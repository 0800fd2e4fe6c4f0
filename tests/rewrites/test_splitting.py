"""Dimensions and folds in parts: proved, and what each leaves alone."""

from __future__ import annotations

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.program import Program
from tapestry.rewrites import RULES, apply, matches
from tapestry.testing import check_rule


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
