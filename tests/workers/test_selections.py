"""Folds that select by data, of any form, under random partitions: the workers go to what counts, the oracle to all."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapestry.expr import Affine, Bound, Call, Const, Expr, IndexValue, Inside, Read
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Dim, Operation, Program, Tensor
from tapestry.reference import evaluate
from tapestry.testing import partitions
from tapestry.verify import verify

from .unchecked import run_unchecked

MACHINE = load_machine("cpu-4")
NEUTRAL = {"sum": 0, "prod": 1, "max": -float("inf"), "min": float("inf")}
NAMES = ("a", "b", "c", "v", "w")


@st.composite
def selecting(draw: st.DrawFn) -> Program:
    """One fold over a box whose body counts where indices equal values, or some of them."""
    extents = {name: draw(st.integers(1, 4)) for name in NAMES}
    monoid = draw(st.sampled_from(sorted(NEUTRAL)))
    chosen = draw(st.sampled_from([("v",), ("w",), ("v", "w")]))
    others = [name for name in NAMES if name not in chosen]
    folded = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    body: Expr = read(draw, "x", extents, NAMES)
    if draw(st.booleans()):
        body = Call("multiply", (body, read(draw, "y", extents, NAMES)))
    neutral = NEUTRAL[monoid]
    for name in chosen:
        value: Expr = read(draw, f"ids_{name}", extents, others)
        if draw(st.booleans()):
            value = Call("add", (value, IndexValue(Affine.dim(draw(st.sampled_from(others))) - 1)))
        index = Affine.dim(name) * draw(st.sampled_from([1, 1, -1])) + draw(st.integers(-1, 1))
        condition: Expr = Call("equal", tuple(draw(st.permutations([value, IndexValue(index)]))))
        if draw(st.booleans()):
            bound = Bound(Affine.dim(draw(st.sampled_from(NAMES))), 0, draw(st.integers(0, 3)))
            condition = Call("logical_and", (condition, Inside((bound,))))
        body = Call("where", (condition, body, Const(neutral)))
    where = ()
    if draw(st.integers(0, 3)) == 0:
        where = (Bound(Affine.dim("a") - Affine.dim("b"), None, draw(st.integers(0, 2))),)
    kept = [name for name in NAMES if name not in folded]
    dims = tuple(Dim(name, extents[name]) for name in draw(st.permutations(NAMES)))
    kept = [dim.name for dim in dims if dim.name in kept]
    op = Operation("fold", dims, "out", tuple(map(Affine.dim, kept)), body, tuple(folded), monoid, where)
    shapes = {node.tensor: tuple(extents[str(row.terms[0][0])] for row in node.index) for node in op.reads}
    tensors = [
        Tensor(name, "int32" if name.startswith("ids") else "f64", shape, "input") for name, shape in shapes.items()
    ]
    out = Tensor("out", "f64", tuple(extents[name] for name in kept))
    return Program("selecting", (*tensors, out), (op,), ("out",))


def read(draw: st.DrawFn, tensor: str, extents: dict[str, int], names: list[str] | tuple[str, ...]) -> Read:
    """A tensor read along some dimensions, each alone."""
    used = draw(st.lists(st.sampled_from(list(names)), unique=True, max_size=3))
    return Read(tensor, tuple(map(Affine.dim, used)))


def inputs_of(program: Program, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Indices inside and outside; powers of two, whose sums and products are exact."""
    rng = np.random.default_rng(seed)
    return {
        t.name: rng.integers(-2, 6, t.shape).astype(np.int32)
        if t.dtype == "int32"
        else rng.choice([-2.0, -1.0, 1.0, 2.0], t.shape)
        for t in program.of_role("input")
    }


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_counts_is_all_that_counts(data: st.DataObject) -> None:
    program = data.draw(selecting())
    verify(program)
    inputs = inputs_of(program, data.draw(st.integers(0, 99)))
    want = evaluate(program, inputs)["out"]
    with patch("tapestry.reference.chosen.LISTED", 0):
        np.testing.assert_array_equal(evaluate(program, inputs)["out"], want)
    shards = data.draw(partitions(program, data.draw(st.integers(1, 3))))
    document = plan_partitions(program, MACHINE, shards).document
    found = run_unchecked(Resolved(document, program), inputs, device="numpy", poison=True)
    np.testing.assert_array_equal(found.outputs["out"], want)
