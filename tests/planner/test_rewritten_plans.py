"""Plans of programs that were made ready: what stays, what the plan says of it, and what is proved of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import CheckFailed, UsageError
from tapestry.expr import Read
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine, load_plan, plan
from tapestry.planner.origin import prove_origin
from tapestry.planner.search.ready import made_ready
from tapestry.planner.strategy.mesh import Mesh
from tapestry.reference import evaluate
from tapestry.testing import assert_close


@tp.program
def layer(x: f32[Tensor, "n m"], w: param[f32[Tensor, "m k"]], b: param[f32[Tensor, "k"]]) -> Tensor:
    """One layer, and a value that nobody reads."""
    _ = tp.exp(x)
    return tp.gelu(x @ w + b)


PROGRAM = layer.bind(n=64, m=16, k=32)


@pytest.fixture(scope="module")
def made() -> Any:
    return plan(PROGRAM, "cpu-4", mesh=(2,), rewrite=True)


def test_the_plan_holds_the_program_that_is_run_and_what_it_was_made_from(made: Any, tmp_path: Path) -> None:
    assert [op.name for op in made.program.operations] == ["matmul", "gelu"]
    assert made.program.outputs == PROGRAM.outputs
    assert made.program.of_role("input", "param") == PROGRAM.of_role("input", "param")
    made.save(tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json").document.claims.origin == made.document.claims.origin
    assert "4 operations as written are 2: 1 dead_values, 1 fuse_pointwise" in str(
        made._repr_mimebundle_()["text/plain"]
    )


def test_it_is_checked_and_run_as_any_other(made: Any) -> None:
    assert made.check().ok
    inputs = random_inputs(PROGRAM)
    assert_close(PROGRAM, inputs, made.run(inputs, device="numpy").outputs, evaluate(PROGRAM, inputs))


def test_without_rewriting_the_program_is_as_written() -> None:
    found = plan(PROGRAM, "cpu-4", mesh=(1,))
    assert found.program == PROGRAM
    assert found.document.claims.origin is None


def test_explain_says_what_an_operation_was_made_of(made: Any) -> None:
    assert "is      add, gelu as written" in str(made.explain("gelu"))
    with pytest.raises(UsageError, match="no operation 'add'") as error:
        made.explain("add")
    assert "it is computed in gelu" in str(error.value)


def test_given_the_program_as_written_the_changes_are_made_again_and_both_executed(made: Any) -> None:
    proved = prove_origin(made.document, made.program, PROGRAM)
    assert str(proved) == (
        "the program as written: made again, 2 rewrites give the embedded program; executed, both compute the same"
    )


def test_another_program_is_not_what_it_was_made_from(made: Any) -> None:
    with pytest.raises(CheckFailed, match="not made from this program"):
        prove_origin(made.document, made.program, layer.bind(n=64, m=16, k=31))


def test_a_program_that_no_rule_makes_is_refused(made: Any) -> None:
    gelu = made.program.op_by_name["gelu"]
    other = replace(made.program, operations=(made.program.operations[0], replace(gelu, source="elsewhere.py:1")))
    with pytest.raises(CheckFailed, match="do not give the operations"):
        prove_origin(made.document, other, PROGRAM)


def test_a_step_that_no_rule_makes_is_refused(made: Any) -> None:
    claims = made.document.claims
    steps = tuple(msgspec.structs.replace(step, at="matmul") for step in claims.origin.rewrites)
    origin = msgspec.structs.replace(claims.origin, rewrites=steps)
    document = msgspec.structs.replace(made.document, claims=msgspec.structs.replace(claims, origin=origin))
    with pytest.raises(CheckFailed, match="dead_values does not apply"):
        prove_origin(document, made.program, PROGRAM)


def test_products_stay_products() -> None:
    """A body that no library knows costs more than it saves, whatever rates say."""

    @tp.program
    def scaled(x: tp.bf16[Tensor, "n m"], w: param[tp.bf16[Tensor, "m k"]], v: param[tp.bf16[Tensor, "m k"]]) -> Tensor:
        loud = x * 2
        return (loud @ w) * (loud @ v)

    found = made_ready(scaled.bind(n=64, m=16, k=32), load_machine("cpu-4"), Mesh.of((2,), 4)).program
    assert all(op.factors is not None for op in found.operations if op.monoid)
    assert all(isinstance(factor, Read) for op in found.operations for factor in op.factors or ())
