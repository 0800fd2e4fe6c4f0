"""On a GPU, all ranks in one process, against the reference: every kind of operation, examples, generated programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tapestry.dtypes import DTYPES, numpy_dtype
from tapestry.expr import MONOIDS, Affine, Call, Read
from tapestry.inputs import random_inputs
from tapestry.program import Dim, Operation, Program, Tensor
from tapestry.result_type import reduced_dtype
from tapestry.testing import inputs_for, partitions, programs
from tapestry.workers.cupy.machine import Machine

from ....files import example
from .executed import EXAMPLES, cut, cut_along, executed, needs_gpu, whole

pytestmark = needs_gpu
CHUNKS = 40


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if DTYPES[dtype].kind == "int":
        return rng.integers(-100, 100, shape).astype(numpy_dtype(dtype))
    return (rng.random(shape) * 2 - 1).astype(numpy_dtype(dtype))


def folding(monoid: str, dtype: str, rows: int, folded: int) -> Program:
    dims = (Dim("n", rows), Dim("k", folded))
    op = Operation("fold", dims, "y", (Affine.dim("n"),), Read("x", (Affine.dim("n"), Affine.dim("k"))), ("k",), monoid)
    tensors = (Tensor("x", dtype, (rows, folded), "input"), Tensor("y", reduced_dtype(monoid, dtype), (rows,)))
    return Program("folding", tensors, (op,), ("y",))


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize(
    "monoid", sorted(name for name, monoid in MONOIDS.items() if not monoid.packed and not monoid.ordered)
)
def test_folds_of_every_dtype_whole_and_in_parts(monoid: str, dtype: str) -> None:
    if MONOIDS[monoid].result == "truth" and dtype != "bool":
        pytest.skip("truths are folded alone")
    for rows, folded in ((5, 7), (3, 5000)):
        program = folding(monoid, dtype, rows, folded)
        inputs = {"x": values(dtype, (rows, folded))}
        [op] = program.operations
        for name, parts in (("n", 1), ("k", 4)):
            executed(program, {"fold": cut(op, name, parts)}, inputs)


def contraction(spec: str, dtype: str) -> Program:
    """An einsum as one operation."""
    sizes = dict(zip("ijkbtdhes", (40, 24, 56, 3, 33, 48, 4, 16, 17), strict=True))
    operands, out = spec.split("->")
    names = [*out, *sorted(set(operands) - {",", *out})]
    reads = tuple(Read(x, tuple(map(Affine.dim, part))) for x, part in zip("xw", operands.split(","), strict=True))
    op = Operation(
        "product", tuple(Dim(name, sizes[name]) for name in names), "y", tuple(map(Affine.dim, out)),
        Call("multiply", reads), tuple(name for name in names if name not in out), "sum",
    )  # fmt: skip
    given = [
        Tensor(x, dtype, tuple(sizes[c] for c in p), "input") for x, p in zip("xw", operands.split(","), strict=True)
    ]
    result = Tensor("y", reduced_dtype("sum", dtype), tuple(sizes[c] for c in out))
    return Program("contraction", (*given, result), (op,), ("y",))


SPECS = [
    "ik,kj->ij",
    "ki,kj->ij",
    "ik,jk->ji",
    "bik,bkj->bij",
    "td,dhe->the",
    "the,hed->td",
    "bthe,bshe->bhts",
    "i,j->ij",
]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64", "int32"])
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("worth", [1, Machine.worth], ids=["by a library", "of so many"])
def test_sums_of_products(monkeypatch: pytest.MonkeyPatch, spec: str, dtype: str, worth: int) -> None:
    monkeypatch.setattr(Machine, "worth", worth)
    program = contraction(spec, dtype)
    [op] = program.operations
    inputs = {tensor.name: values(dtype, tensor.shape, k) for k, tensor in enumerate(program.of_role("input"))}
    for name, parts in ((op.dims[0].name, 1), (op.dims[0].name, 3), (op.dims[-1].name, 2)):
        executed(program, {"product": cut(op, name, parts)}, inputs)


SMALL: dict[str, dict[str, int]] = {
    "mlp": {"n": 32, "d": 24, "hidden": 40, "k": 8},
    "llama": {"layers": 2, "d": 64, "heads": 8, "kv_heads": 4, "ffn": 96, "tokens": 200},
    "llama, heads of 64": {"layers": 1, "d": 512, "heads": 8, "kv_heads": 2, "ffn": 640, "tokens": 256},
    "convnet": {"n": 2, "y": 32, "x": 32, "channels": 16, "blocks": 2},
    "corners": {"y": 48, "x": 64},
    "moe": {"t": 96, "d": 16, "x": 4, "f": 24},
}


def example_program(name: str) -> Program:
    module = example(name.partition(",")[0])
    found: Program = getattr(module, {"corners": "corners", "moe": "layer"}.get(name, "forward")).bind(**SMALL[name])
    return found


@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("name", SMALL)
def test_the_examples(name: str, ranks: int, last: bool) -> None:
    """Every operation cut along its first dimension, or along its last, which may be one that is folded."""
    program = example_program(name)
    executed(program, cut_along(program, ranks, last=last), random_inputs(program, 0))


def test_a_long_row_is_spread_over_a_large_cluster() -> None:
    """Sixteen blocks that reach each other's memory, which has to be asked for."""
    dims, at = (Dim("n", 1), Dim("k", 1 << 20)), (Affine.dim("n"), Affine.dim("k"))
    square = Operation("square", dims, "z", at, Call("multiply", (Read("x", at), Read("x", at))))
    total = Operation("total", dims, "y", at[:1], Read("z", at), ("k",), "sum")
    shape = (1, 1 << 20)
    tensors = (Tensor("x", "f32", shape, "input"), Tensor("z", "f32", shape), Tensor("y", "f32", (1,)))
    program = Program("rows", tensors, (square, total), ("y",))
    executed(program, whole(program), {"x": values("f32", shape)})


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_generated_programs(chunk: int) -> None:
    @settings(
        max_examples=EXAMPLES // CHUNKS, suppress_health_check=list(HealthCheck), database=None, phases=[Phase.generate]
    )
    @given(st.data())
    def execute(data: st.DataObject) -> None:
        program = data.draw(programs())
        shards = data.draw(partitions(program, data.draw(st.integers(1, 5))))
        inputs = data.draw(inputs_for(program))
        executed(program, shards, inputs, data.draw(st.none() | st.integers(0, 1 << 20)))

    seed(chunk)(execute)()
