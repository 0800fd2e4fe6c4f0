"""Long programs, and expressions nested far deeper than Python calls functions: nothing calls itself on a part."""

import sys

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.expr import Affine, Call, Cast, Const, Read, fold
from tapestry.notation import format_expr
from tapestry.parse import parse_expr
from tapestry.planner import load_machine, plan
from tapestry.reference import evaluate
from tapestry.serialize import program_from_json, program_to_json

DEPTH = 3_000  # three times as deep as Python calls itself


@tp.op
def shifted(x: f32[Tensor, "n"], *, times: int) -> f32[Tensor, "n"]:
    """x / 2 + 1, again and again, in one expression."""
    n = tp.indices("n")
    found = x[n]
    for _ in range(times // 2):
        found = found * 0.5 + 1.0
    return found


@tp.program
def expression(x: f32[Tensor, "n"], *, times: int = DEPTH) -> Tensor:
    return shifted(x, times=times)


@tp.program
def stacked(x: f32[Tensor, "n"], *, parts: int = DEPTH) -> Tensor:
    return tp.stack([x[k % x.shape[0]] for k in range(parts)])


@tp.program
def chain(x: f32[Tensor, "n"], *, steps: int = DEPTH) -> Tensor:
    for _ in range(steps):
        x = tp.tanh(x).named("step")
    return x


@pytest.fixture(scope="module")
def deep():
    return expression.bind(n=4)


def test_a_deep_expression_is_bound_verified_and_written_and_read_back(deep):
    assert program_from_json(program_to_json(deep)) == deep
    assert str(deep).count("* 0.5 + 1.0") == DEPTH // 2


def test_a_deep_expression_means_what_it_says(deep):
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(evaluate(deep, {"x": x})["out"], np.full(4, 2.0), rtol=1e-6)


def test_a_deep_expression_is_planned_and_run(deep):
    found = plan(deep, load_machine("cpu-4"), mesh=(2,))
    x = np.arange(4, dtype=np.float32)
    out = found.run({"x": x}, device="numpy").outputs["out"]
    np.testing.assert_allclose(out, np.full(4, 2.0), rtol=1e-6)


def test_a_deep_expression_has_a_derivative():
    @tp.program
    def total(x: f32[Tensor, "n"]) -> Tensor:
        return tp.sum(shifted(x, times=DEPTH))

    bound = tp.grad(total, wrt=["x"]).bind(n=2)
    assert evaluate(bound, {"x": np.ones(2, np.float32)})["grad.x"].tolist() == [0.0, 0.0]


def test_thousands_of_tensors_are_stacked():
    assert stacked.bind(n=4).tensor("out").shape == (DEPTH,)


@pytest.mark.parametrize(
    "text",
    ["(" * DEPTH + "x[n]" + ")" * DEPTH, "exp(" * DEPTH + "x[n]" + ")" * DEPTH, "-" * DEPTH + "x[n]",
     "2 ** " * DEPTH + "x[n]"],
    ids=["parentheses", "calls", "signs", "powers"],
)  # fmt: skip
def test_deep_text_is_read(text):
    expr = parse_expr(text)
    assert parse_expr(format_expr(expr)) == expr


def test_python_s_own_questions_are_answered_at_any_depth():
    def nested() -> Cast:
        expr = Read("x", (Affine.dim("n"),))
        for _ in range(DEPTH):
            expr = Call("add", (Cast("f32", expr), Const(1)))
        return Cast("f64", expr)

    one, other = nested(), nested()
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other)
    assert one != Cast("f64", Call("add", (one, Const(2))))
    assert str(one).count("add(") == DEPTH


def test_what_occurs_twice_is_asked_for_once():
    expr, asked = Read("x", ()), []
    for _ in range(60):
        expr = Call("add", (expr, expr))
    fold(expr, lambda node, _: asked.append(node))
    assert len(asked) == 61


def calls_while(run):
    """How many Python functions are called meanwhile."""
    count = 0

    def profile(_frame, event, _arg):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def test_binding_and_verifying_grow_with_the_operations():
    chain.bind(n=4, steps=10)
    few, many = (calls_while(lambda steps=steps: chain.bind(n=4, steps=steps)) for steps in (100, 400))
    assert many < 4.2 * few


def test_thousands_of_operations_are_one_program():
    bound = chain.bind(n=4)
    assert len(bound.operations) == DEPTH
