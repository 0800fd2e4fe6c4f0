"""A scalar function and a monoid, each added in one place, go through bind, plan, check and run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.closeness import assert_close
from tapestry.dsl.reducer import Reducer
from tapestry.expr import FUNCTIONS, MONOIDS, Component, Function, Monoid, Read, add_function, add_monoid
from tapestry.expr.derivatives import call
from tapestry.ops.elementwise import apply
from tapestry.planner import load_machine, plan
from tapestry.program import Pin
from tapestry.reference import evaluate


def doubled(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    return np.add(x, x, out=out)


@pytest.fixture
def entries() -> Iterator[None]:
    """A function ``twice`` and a monoid ``length``, the square root of a sum of squares."""
    x, a, b, r = Read("x", ()), Read("a.squares", ()), Read("b.squares", ()), Read("r.squares", ())
    add_function(Function("twice", 1, f"{__name__}:doubled", "add({0}, {0})"))
    squares = Component("squares", "accumulator", 0, call("add", a, b), call("multiply", x, x))
    add_monoid(Monoid("length", (squares,), call("sqrt", r), result="float"))
    yield
    del FUNCTIONS["twice"], MONOIDS["length"]


@pytest.fixture
def squares() -> Iterator[None]:
    """A monoid that adds up, as a sum does, what is not the value itself."""
    x, a, b = Read("x", ()), Read("a.value", ()), Read("b.value", ())
    record = Component("value", "partial", 0, call("add", a, b), call("multiply", x, x))
    add_monoid(Monoid("squares", (record,), Read("r.value", ())))
    yield
    del MONOIDS["squares"]


@pytest.mark.usefixtures("squares")
@pytest.mark.parametrize("cut", ["n", "c"])
def test_a_fold_of_products_is_a_product_of_matrices_only_where_they_are_summed_as_they_are(cut: str) -> None:
    @tp.op
    def product(x: f32[Tensor, "n c"], y: f32[Tensor, "c k"]) -> f32[Tensor, "n k"]:
        n, c, k = tp.indices("n c k")
        return Reducer("squares")[c](x[n, c] * y[c, k])

    @tp.program
    def net(x: f32[Tensor, "n c"], y: f32[Tensor, "c k"]) -> Tensor:
        return product(x, y)

    program = net.bind(n=8, c=16, k=8).with_pins(Pin("op", "product", (("mesh0", cut),)))
    made = plan(program, load_machine("cpu-4"), mesh=(4,), time_limit=10)
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in ((8, 16), (16, 8)))
    [name] = program.outputs
    expected = np.square(x[:, :, None].astype(np.float64) * y[None]).sum(axis=1)
    np.testing.assert_allclose(evaluate(program, {"x": x, "y": y})[name], expected, rtol=1e-5)
    np.testing.assert_allclose(made.run({"x": x, "y": y}).outputs[name], expected, rtol=1e-5)


@pytest.mark.usefixtures("entries")
@pytest.mark.parametrize("cut", ["n", "k"])
def test_a_function_and_a_monoid_of_ones_own(cut: str) -> None:
    @tp.program
    def net(x: f32[Tensor, "n k"]) -> Tensor:
        return Reducer("length")(apply("twice", x), "k", name="length")

    program = net.bind(n=6, k=32)
    made = plan(
        program.with_pins(Pin("op", "length", (("mesh0", cut),))), load_machine("cpu-4"), mesh=(4,), time_limit=10
    )
    assert made.check().ok
    x = np.random.default_rng(0).normal(size=(6, 32)).astype(np.float32)
    found = made.run({"x": x}).outputs
    [name] = program.outputs
    np.testing.assert_allclose(found[name], np.linalg.norm(2 * x.astype(np.float64), axis=1), rtol=1e-5)
    assert_close(program, {"x": x}, found, evaluate(program, {"x": x}))
