"""Partial results are records with dtypes of their own: planned, priced, checked, and folded as the reference says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from tapestry.closeness import assert_close
from tapestry.dtypes import numpy_dtype
from tapestry.expr import MONOIDS, Affine, Call, Read
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.check import check
from tapestry.planner.check.report import Code
from tapestry.planner.format.document import Transfer
from tapestry.program import Dim, Operation, Pin, Program, Tensor
from tapestry.reference import evaluate
from tapestry.result_type import reduced_dtype

Array = NDArray[Any]
ROWS, FOLDED = 6, 64


def folding(monoid: str, dtype: str) -> Program:
    n, k = Affine.dim("n"), Affine.dim("k")
    dims = (Dim("n", ROWS), Dim("k", FOLDED))
    op = Operation("fold", dims, "y", (n,), Read("x", (n, k)), ("k",), monoid)
    tensors = (Tensor("x", dtype, (ROWS, FOLDED), "input"), Tensor("y", reduced_dtype(monoid, dtype), (ROWS,)))
    return Program("partial", tensors, (op,), ("y",))


def folding_to_several(monoid: str, dtype: str) -> Program:
    """The same by a monoid of several results."""
    n, r, k = map(Affine.dim, "nrk")
    count = len(MONOIDS[monoid].components)
    dims = (Dim("n", ROWS), Dim("r", count, cut=False), Dim("k", FOLDED))
    op = Operation("fold", dims, "y", (n, r), Read("x", (n, k)), ("k",), monoid)
    tensors = (Tensor("x", dtype, (ROWS, FOLDED), "input"), Tensor("y", dtype, (ROWS, count)))
    return Program("partial", tensors, (op,), ("y",))


def planned(program: Program, ranks: int = 4) -> Plan:
    """The reduction cut over all ranks."""
    pinned = program.with_pins(Pin("op", "fold", (("mesh0", "k"),)))
    return plan(pinned, load_machine("cpu-4"), mesh=(ranks,), time_limit=10)


def values(dtype: str, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random((ROWS, FOLDED)) < 0.1
    if dtype.startswith("int"):
        return rng.integers(-100, 100, (ROWS, FOLDED)).astype(numpy_dtype(dtype))
    return rng.normal(size=(ROWS, FOLDED)).astype(numpy_dtype(dtype))


def test_a_sum_that_leaves_f16_on_the_way_comes_back() -> None:
    """Two shards add up to +80,000 and -80,000: infinities in f16, which has nothing above 65,504."""
    program = folding("sum", "f16")
    x = np.full((ROWS, FOLDED), 2500, np.float16)
    x[:, FOLDED // 2 :] = -2500
    made = planned(program, 2)
    assert made.check().ok
    assert evaluate(program, {"x": x})["y"].tolist() == [0] * ROWS
    assert made.run({"x": x}).outputs["y"].tolist() == [0] * ROWS


@pytest.mark.parametrize("ranks", [2, 4])
def test_parts_in_bf16_round_once_each(ranks: int) -> None:
    """Every part adds up in f32 and is rounded to bf16; these are added up in f32 and rounded at the end."""
    narrow = numpy_dtype("bf16")
    program, x = folding("sum", "bf16"), values("bf16")
    made = planned(program, ranks)
    parts = x.astype(np.float64).reshape(ROWS, ranks, FOLDED // ranks).sum(axis=2).astype(narrow)
    want = parts.astype(np.float64).sum(axis=1).astype(narrow)
    found = made.run({"x": x}).outputs["y"]
    np.testing.assert_array_equal(found, want)
    exact, one = x.astype(np.float64).sum(axis=1), 2.0**-8
    allowed = one * np.abs(parts.astype(np.float64)).sum(axis=1) + one * np.abs(exact) * (1 + one)
    assert (np.abs(found.astype(np.float64) - exact) <= allowed * (1 + one)).all()


def test_a_part_of_bf16_overflows_only_where_the_accumulator_does() -> None:
    """Two parts of 2.6e38 and -2.6e38, near the end of the range of f32, and of bf16."""
    program = folding("sum", "bf16")
    x = np.full((ROWS, FOLDED), 2.0**123 - 2.0**120, numpy_dtype("bf16"))
    x[:, FOLDED // 2 :] *= -1
    assert planned(program, 2).run({"x": x}).outputs["y"].tolist() == [0] * ROWS


def test_products_of_f32_may_be_rounded_before_a_sum_in_f64() -> None:
    """Two executions of a sum of products agree to what f32 gives; an f64 sum of f64 has to agree to f64."""
    k = Affine.dim("k")
    body = Call("multiply", (Read("a", (k,)), Read("b", (k,))))
    op = Operation("fold", (Dim("k", 1),), "y", (), body, ("k",), "sum")

    def program(dtype: str) -> Program:
        reads = (Tensor("a", dtype, (1,), "input"), Tensor("b", dtype, (1,), "input"))
        return Program("products", (*reads, Tensor("y", "f64", ())), (op,), ("y",))

    a, b = np.float32(1 + 2**-20), np.float32(1 + 2**-19)
    exact, rounded = np.asarray(float(a) * float(b)), np.asarray(float(a * b))
    assert exact != rounded
    narrow, wide = ({"a": a.reshape(1).astype(d), "b": b.reshape(1).astype(d)} for d in (np.float32, np.float64))
    assert_close(program("f32"), narrow, {"y": rounded}, {"y": exact})
    with pytest.raises(AssertionError, match="y: element"):
        assert_close(program("f64"), wide, {"y": rounded}, {"y": exact})


CASES = [
    (monoid, dtype)
    for monoid in MONOIDS
    if not MONOIDS[monoid].packed and not MONOIDS[monoid].ordered
    for dtype in (("bool",) if MONOIDS[monoid].result == "truth" else ("int8", "int32", "f16", "bf16", "f32", "f64"))
]


@pytest.mark.parametrize(("monoid", "dtype"), CASES)
def test_every_monoid_that_may_be_folded_apart_is_folded_over_ranks(monoid: str, dtype: str) -> None:
    program, x = folding(monoid, dtype), values(dtype)
    if monoid == "prod" and not dtype.startswith("int"):
        x = (1 + x / 64).astype(x.dtype)
    made = planned(program)
    assert [task.monoid for task in made.document.tasks if isinstance(task, Transfer)] == [monoid]
    assert made.check().ok, made.check()
    found = made.run({"x": x})
    assert found.bytes_moved == made.document.traffic.bytes_total
    assert_close(program, {"x": x}, found.outputs, evaluate(program, {"x": x}))


@pytest.mark.parametrize(
    ("monoid", "dtype"),
    [("moments", "f32"), ("moments", "f64"), ("minmax", "int8"), ("minmax", "bf16"), ("top1", "int32"),
     ("top5", "f32"), ("top40", "int64")],
)  # fmt: skip
def test_folds_of_several_results_are_folded_over_ranks(monoid: str, dtype: str) -> None:
    """Whole records travel, in the dtype of the results; 40 places from parts of 16 elements, too."""
    program, x = folding_to_several(monoid, dtype), values(dtype)
    made = planned(program)
    [transfer] = [task for task in made.document.tasks if isinstance(task, Transfer)]
    [source] = [buffer for buffer in made.document.buffers if buffer.name == transfer.source]
    count = len(MONOIDS[monoid].components)
    assert (transfer.monoid, source.record) == (monoid, None)
    assert source.nbytes == ROWS * count * program.tensor("y").itemsize
    assert made.check().ok, made.check()
    found = made.run({"x": x})
    assert found.bytes_moved == made.document.traffic.bytes_total
    assert_close(program, {"x": x}, found.outputs, evaluate(program, {"x": x}))


@pytest.mark.parametrize(
    ("monoid", "dtype", "record", "nbytes"),
    [
        ("sum", "f16", ("f32",), 4),
        ("prod", "f16", ("f32",), 4),
        ("sum", "bf16", None, 2),
        ("sum", "f32", None, 4),
        ("sum", "int8", None, 4),
        ("max", "f16", None, 2),
        ("argmax", "f16", ("f16", "int64"), 16),
        ("variance", "f64", ("f64", "f64", "f64"), 24),
        ("logsumexp", "f16", ("f32", "f32"), 8),
    ],
)
def test_the_plan_says_and_prices_the_record(
    monoid: str, dtype: str, record: tuple[str, ...] | None, nbytes: int
) -> None:
    made = planned(folding(monoid, dtype))
    [transfer] = [task for task in made.document.tasks if isinstance(task, Transfer)]
    [source] = [buffer for buffer in made.document.buffers if buffer.name == transfer.source]
    assert source.record == record
    assert source.nbytes == ROWS * nbytes
    # Each of 4 ranks gives away three quarters, or all of them all, of its records; results are elements.
    assert made.document.traffic.bytes_total % nbytes == 0 or monoid == "sum"
    assert made.document.traffic.bytes_total >= 3 * ROWS * nbytes


def spoiled(made: Plan, **changes: Any) -> set[Code]:
    document = made.document
    [transfer] = [task for task in document.tasks if isinstance(task, Transfer)]
    buffers = tuple(
        msgspec.structs.replace(buffer, **changes) if buffer.name == transfer.source else buffer
        for buffer in document.buffers
    )
    report = check(msgspec.structs.replace(document, buffers=buffers))
    return set(report.codes)


@pytest.mark.parametrize("record", [None, ("f16",), ("f64",), ("f32", "f32")])
def test_another_record_is_refused(record: tuple[str, ...] | None) -> None:
    assert Code.RECORD in spoiled(planned(folding("sum", "f16")), record=record)


def test_a_buffer_too_small_for_its_records_is_refused() -> None:
    assert spoiled(planned(folding("sum", "f16")), nbytes=2 * ROWS) == {Code.STORAGE}


def test_records_are_no_results() -> None:
    """A whole fold left in records is not finished: nothing but a fold may read it, and no output ends there."""
    program = folding("sum", "f16")
    pinned = program.with_pins(Pin("op", "fold", (("mesh0", "n"),)))
    made = plan(pinned, load_machine("cpu-4"), mesh=(2,), time_limit=10)
    buffers = tuple(
        msgspec.structs.replace(b, record=("f32",), nbytes=2 * b.nbytes) if b.tensor == "y" else b
        for b in made.document.buffers
    )
    assert Code.OUTPUT in check(msgspec.structs.replace(made.document, buffers=buffers)).codes


def test_replaced_programs_keep_their_records_apart() -> None:
    program = folding("sum", "f16")
    wide = replace(program, tensors=(program.tensors[0], Tensor("y", "f32", (ROWS,))))
    assert (program.records, wide.records) == ({"y": ("f32",)}, {})
