"""Parts of a body that are the same along a dimension: found, computed once by a thread that goes along it."""

from __future__ import annotations

import numpy as np
import pytest

from tapestry.expr import Affine, Bound, Call, Cast, Const, Expr, IndexValue, Read
from tapestry.kernels.elementwise.kernel import ElementwiseKernel, compile_expression
from tapestry.kernels.elementwise.steady import taken_apart
from tapestry.kernels.elementwise.types import Layout

from .host import needs_compiler, results

T, H, E = (Affine.dim(name) for name in "the")
SHAPE = (1024, 4, 512)
X = Read("x", (T, H, E))
ANGLE = Call("multiply", (Cast("f32", IndexValue(T)), Call("power", (Const(0.5), Cast("f32", IndexValue(E % 256))))))


def product(*factors: Expr) -> Expr:
    found, *others = factors
    for other in others:
        found = Call("multiply", (found, other))
    return found


def turned(dtype: str = "f32") -> ElementwiseKernel:
    """Halves of rows turned against each other, by angles that are the same for all h."""
    other = Call(
        "subtract",
        (
            Read("x", (T, H, E - 256), (Bound(E - 256, 0, None),)),
            Read("x", (T, H, E + 256), (Bound(E + 256, None, 512),)),
        ),
    )
    body = Call("add", (product(X, Call("cos", (ANGLE,))), product(other, Call("sin", (ANGLE,)))))
    layout = Layout.contiguous(dtype, SHAPE)
    return compile_expression(tuple(zip("the", SHAPE, strict=True)), body, layout, {"x": layout})


def test_the_largest_steady_parts_are_taken() -> None:
    found = taken_apart(product(X, Call("cos", (ANGLE,))), "h")
    assert [str(part) for part in found.parts] == [str(Call("cos", (ANGLE,)))]
    assert found.flops == 8 + 1 + 16
    assert str(found.body) == str(product(X, Read("steady.0", ())))


@pytest.mark.parametrize("body", [product(X, X), product(X, Cast("f32", IndexValue(E))), Const(1.0)])
def test_cheap_parts_stay_where_they_are(body: Expr) -> None:
    assert taken_apart(body, "h").parts == ()


def test_what_varies_along_the_dimension_is_not_steady() -> None:
    for varying in (IndexValue(T + H), Read("y", (T,))):
        assert taken_apart(product(X, Call("cos", (Cast("f32", varying),))), "h").parts == ()


def test_a_thread_goes_along_the_dimension_that_saves_most() -> None:
    plan = turned("f16").plan
    assert plan is not None
    assert plan.along is not None
    extents = dict(plan.loop.dims)
    assert plan.along.times > 1
    assert extents[plan.along.dim] % plan.along.times == 0
    assert [load.kind for load in plan.loads] == ["vector"] * 3, (
        "neighbours are read as vectors: halves are never mixed"
    )
    assert plan.blocks * plan.threads * plan.along.times * plan.vector == 1024 * 4 * 512


@needs_compiler
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_values_are_the_same(dtype: str) -> None:
    x = np.random.default_rng(0).random(SHAPE).astype(np.dtype(dtype.replace("f", "float")))
    kernel = turned(dtype)
    assert kernel.plan is not None
    assert kernel.plan.along is not None
    [found] = results([kernel], {"x": x})
    t, e = np.arange(1024.0)[:, None, None], np.arange(512.0)
    angle = t * 0.5 ** (e % 256)
    other = np.concatenate([-x[..., 256:], x[..., :256]], axis=-1).astype(np.float64)
    wanted = x * np.cos(angle) + other * np.sin(angle)
    assert np.abs(found.view.astype(np.float64) - wanted).max() <= {"f16": 2.0**-10, "f32": 2e-4, "f64": 2e-4}[dtype]
