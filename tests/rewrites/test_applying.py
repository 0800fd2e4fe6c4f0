"""Rules applied: what stays as it is, what came from what, and where a rule is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest

import tapestry as tp
from tapestry import Tensor, f32, param, state
from tapestry.errors import UsageError
from tapestry.expr import Affine, Read
from tapestry.program import Operation, Pin, Program
from tapestry.rewrites import RULES, Change, apply, matches, rule
from tapestry.rewrites.rule import Rule


@tp.program
def repeated(x: f32[Tensor, "n"], w: param[f32[Tensor, "n"]], *, n: int = 4) -> dict[str, Tensor]:
    a, b = tp.exp(x * w), tp.exp(x * w)
    return {"y": a + b, "z": tp.sum(b, 0)}


def names(program: Program) -> list[str]:
    return [op.name for op in program.operations]


def test_equal_operations_are_one_however_deep_and_their_readers_read_it() -> None:
    found = apply(repeated.bind(), "common_subexpressions")
    assert names(found.program) == ["multiply", "exp", "add", "sum"]
    assert [str(found.program.op_by_name["add"].body), found.program.op_by_name["sum"].operands] == [
        "add(exp[n], exp[n])",
        ("exp",),
    ]


def test_provenance_names_the_operations_that_were_there() -> None:
    found = apply(repeated.bind(), "common_subexpressions")
    assert found.origins == {
        "multiply": ("multiply", "multiply_1"),
        "exp": ("exp", "exp_1"),
        "add": ("add",),
        "sum": ("sum",),
    }
    assert found.before == repeated.bind()
    assert found.changed == ("add", "sum")


def test_matches_say_where_a_rule_applies_and_change_nothing() -> None:
    program = repeated.bind()
    assert [str(match).partition(" (")[0] for match in matches("common_subexpressions", program)] == [
        "common_subexpressions at multiply_1"
    ]
    assert matches("dead_values", program) == ()


def test_outputs_keep_their_names_and_two_of_them_stay_two() -> None:
    @tp.program
    def twins(x: f32[Tensor, "n"]) -> dict[str, Tensor]:
        hidden = tp.exp(x)
        return {"a": tp.exp(x), "b": tp.exp(x), "c": hidden + 1}

    found = apply(twins.bind(n=3), "common_subexpressions").program
    assert found.outputs == ("a", "b", "c")
    assert len(found.operations) == 3


def test_what_a_state_becomes_is_not_dead_and_inputs_stay() -> None:
    @tp.program
    def counted(x: f32[Tensor, "n"], count: state[f32[Tensor, "n"]], unused: param[f32[Tensor, "n"]]) -> Tensor:
        tp.update(count, count + 1)
        _ = x * 3
        return x * 2

    program = counted.bind(n=3)
    found = apply(program, "dead_values").program
    assert found.states == program.states
    assert [tensor.name for tensor in found.of_role("input", "param", "state")] == ["x", "count", "unused"]
    assert len(found.operations) == 2


def test_what_is_pinned_stays() -> None:
    program = repeated.bind().with_pins(Pin("op", "exp_1", (("mesh0", "n"),)), Pin("tensor", "multiply*", ()))
    assert apply(program, "common_subexpressions").steps == ()


def test_a_rule_asked_at_an_operation_that_it_does_not_fit_says_what_it_wants() -> None:
    with pytest.raises(UsageError, match="dead_values does not apply here") as error:
        apply(repeated.bind(), "dead_values", at="exp")
    assert "exp[n] = exp(multiply[n])" in str(error.value)
    with pytest.raises(UsageError, match="no operation 'expp'"):
        apply(repeated.bind(), "dead_values", at="expp")


def test_a_rule_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UsageError, match="no rule 'dead_value'") as error:
        matches("dead_value", repeated.bind())
    assert "did you mean 'dead_values'" in str(error.value)


def test_a_setting_that_a_rule_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="has no setting 'parts'"):
        RULES["dead_values"].with_options(parts=3)


def bare(find: Any) -> Rule:
    return Rule(find.__name__, "test", "", find, lambda: None)


def test_a_rule_that_never_ends_is_stopped() -> None:
    def add_nothing(program: Program, op: Operation) -> Iterator[Change]:
        yield Change((op.name,), (op,))

    with pytest.raises(UsageError, match="applies again and again"):
        apply(repeated.bind(), bare(add_nothing))


def test_what_a_rule_makes_is_verified() -> None:
    def outside(program: Program, op: Operation) -> Iterator[Change]:
        if op.name == "add" and len(op.operands) == 2:
            yield Change(("add",), (replace(op, body=Read("x", (Affine.dim("n") + 1,))),))

    with pytest.raises(UsageError, match="reads x"):
        apply(repeated.bind(), bare(outside))


def test_a_rule_without_its_algebra_is_refused() -> None:
    with pytest.raises(UsageError, match="a rule says what it does"):

        @rule(example=lambda: None)
        def silent(program: Program, op: Operation) -> Iterator[Change]:
            """Do something."""
            yield from ()


@dataclass(frozen=True)
class Looped(Operation):
    """An operation of a form that came later than the rules."""

    carried: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fetched(Read):
    """A read of a form that came later than the rules."""

    row: str = ""


def test_operations_of_forms_that_rules_do_not_know_stay_with_what_they_read() -> None:
    program = repeated.bind()
    n = Affine.dim("n")
    fetched = replace(program.op_by_name["exp_1"], body=Fetched("multiply_1", (n,), row="x"))
    given = {field.name: getattr(program.op_by_name["sum"], field.name) for field in fields(Operation)}
    looped = Looped(**given, carried=("exp",))
    plain = [op for op in program.operations if op.name not in ("exp_1", "sum")]
    strange = replace(program, operations=(*plain[:3], fetched, *plain[3:], looped))
    assert matches("common_subexpressions", strange) == ()
    assert len(matches("common_subexpressions", replace(program, operations=(*program.operations[:-1], looped)))) == 1


@tp.op
def row(table: f32[Tensor, "v"], ids: tp.int32[Tensor, "n"]) -> f32[Tensor, "n"]:
    n = tp.indices("n")
    return table[ids[n]]


def test_what_may_be_an_error_stays_where_it_is() -> None:
    @tp.program
    def looked_up(table: param[f32[Tensor, "v"]], ids: tp.int32[Tensor, "n"]) -> Tensor:
        return row(table, ids) + row(table, ids)

    program = looked_up.bind(v=5, n=3)
    found = apply(
        program, "common_subexpressions", "fuse_into_all", "fuse_pointwise", "recompute", "dead_values"
    ).program
    strict = [op for op in program.operations if "within(" in str(op.body)]
    assert len(strict) == 2
    assert strict == [op for op in found.operations if "within(" in str(op.body)]
