"""One meaning of arithmetic: what the reference says and what a run computes are the same bits, where nothing is folded
and no function of the table is inexact; integers wrap alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tapestry.dtypes import DTYPES, numpy_dtype
from tapestry.errors import TapestryError
from tapestry.expr import FUNCTIONS, Affine, Bound, Call, Cast, Const, Expr, IndexValue, Read
from tapestry.planner import load_machine, plan
from tapestry.program import Dim, Operation, Program, Tensor
from tapestry.reference import evaluate
from tapestry.result_type import may_store, result_dtype
from tapestry.serialize import program_from_json, program_to_json
from tapestry.space import parse_region
from tapestry.workers.device import Evaluation, Stored
from tapestry.workers.faults import Place
from tapestry.workers.numpy.binding import bind_compute
from tapestry.workers.numpy.scratch import Scratch

Array = NDArray[Any]
POINT = Affine.dim("i")
N = 12
INPUTS = {dtype: f"x_{dtype}" for dtype in DTYPES}
EXACT = [f for f in FUNCTIONS.values() if f.exact and not f.strict]  # a strict one is an error of most arguments


def inputs(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    found = {}
    for dtype, name in INPUTS.items():
        kind = DTYPES[dtype].kind
        if kind == "bool":
            found[name] = rng.random(N) < 0.5
        elif kind == "int":
            found[name] = rng.integers(-120, 120, N).astype(numpy_dtype(dtype))
        else:
            found[name] = (rng.normal(size=N) * 10.0 ** rng.integers(-3, 3, N)).astype(numpy_dtype(dtype))
    return found


LEAVES = st.one_of(
    st.sampled_from([Read(name, (POINT,)) for name in INPUTS.values()]),
    st.sampled_from([Const(2), Const(0.1), Const(-3), Const(1e-9), Const(True), Const(7.5)]),
    st.just(IndexValue(2 * POINT + 1)),
    st.builds(
        lambda dtype: Read(INPUTS[dtype], (POINT - 2,), (Bound(POINT, 2, None),), 1), st.sampled_from(list(INPUTS))
    ),
)


def calls(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    function = st.sampled_from(EXACT).flatmap(
        lambda f: st.tuples(*[inner] * f.arity).map(lambda args: Call(f.name, args))
    )
    return st.one_of(function, st.builds(Cast, st.sampled_from(["f32", "f64", "f16", "bf16", "int8", "int64"]), inner))


EXPRESSIONS = st.recursive(LEAVES, calls, max_leaves=8)


def program_of(body: Expr, dtype: str) -> Program:
    tensors = [Tensor(name, kind, (N,), "input") for kind, name in INPUTS.items()]
    op = Operation("op", (Dim("i", N),), "y", (POINT,), body)
    return Program("generated", (*tensors, Tensor("y", dtype, (N,))), (op,), ("y",))


def meaningful(body: Expr) -> str | None:
    try:
        return result_dtype(body, {name: dtype for dtype, name in INPUTS.items()})
    except TapestryError:
        return None


def run(program: Program, given: dict[str, Array]) -> dict[str, Array]:
    made = plan(program, load_machine("cpu-4"), mesh=(2,), time_limit=5)
    assert made.check().ok
    return dict(made.run(given).outputs)


def same_bits(got: Array, want: Array) -> bool:
    if got.dtype.kind in "bi":
        return np.array_equal(got, want)
    a, b = got.astype(np.float64), want.astype(np.float64)
    return bool(np.all((a == b) | (np.isnan(a) & np.isnan(b))))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(EXPRESSIONS.filter(lambda body: meaningful(body) is not None), st.sampled_from(list(DTYPES)), st.integers(0, 99))
def test_scalar_programs_compute_the_same_bits(body: Expr, dtype: str, seed: int) -> None:
    value = meaningful(body)
    assert value is not None
    stored = dtype if may_store(value, dtype) else value
    program = program_of(body, stored)
    given_ = inputs(seed)
    want = evaluate(program, given_)["y"]
    assert same_bits(bound(program, given_), want), str(body)


def bound(program: Program, given_: dict[str, Array]) -> Array:
    """The operation on the NumPy device alone, in two shards."""
    [op] = program.operations
    whole = parse_region(f"0:{N}").grids[0]
    reads = {name: Stored(given_[name], whole) for name in op.operands}
    out = Stored(np.zeros(N, numpy_dtype(program.tensor("y").dtype)), whole)
    with np.errstate(all="ignore"):
        for shard in (f"0:{N // 2}", f"{N // 2}:{N}"):
            bind_compute(
                Evaluation(program, op, parse_region(shard), reads, out, "compute", Place(0, 0, op.name, op.output)),
                Scratch(),
            )()
    return out.array


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_what_is_too_small_to_add_is_not_added(dtype: str) -> None:
    """1 + 1e-9 is 1 in f32, in which 16-bit floats compute too, and more than 1 in f64."""
    x = Read(INPUTS[dtype], (POINT,))
    program = program_of(
        Call("where", (Call("greater", (Call("add", (x, Const(1e-9))), x)), Const(1), Const(0))), "int32"
    )
    given_ = inputs(0) | {INPUTS[dtype]: np.ones(N, numpy_dtype(dtype))}
    want = [int(dtype == "f64")] * N
    assert evaluate(program, given_)["y"].tolist() == want
    assert run(program, given_)["y"].tolist() == want


def test_a_program_survives_its_text_with_its_types() -> None:
    program = program_of(Call("add", (Read("x_f32", (POINT,)), Const(0.1))), "f32")
    assert program_from_json(program_to_json(program)) == program
