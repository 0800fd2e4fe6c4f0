"""Row programs, run on the host, against the reference; and what is no row program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tapestry as tp
from tapestry.dsl.declare import input as declare
from tapestry.dsl.program import program as declared_program
from tapestry.dsl.reducer import Reducer
from tapestry.dtypes import numpy_dtype
from tapestry.expr import MONOIDS, Component, Monoid, Read, add_monoid
from tapestry.expr.derivatives import call
from tapestry.expr.monoids import VALUE as X
from tapestry.kernels.elementwise.types import Layout
from tapestry.kernels.errors import WrongDevice
from tapestry.kernels.normalization.kernel import RowKernel, compile_rows
from tapestry.kernels.normalization.plan import STATIC_BYTES, make_row_plan
from tapestry.kernels.normalization.program import NotRows, recognise
from tapestry.program import Program
from tapestry.reference.evaluation import evaluate_all
from tapestry.testing import program_of
from tapestry.testing.choices import Choices

from ..elementwise.host import SENTINEL, HostTensor, Unit, build, needs_compiler, run

Array = NDArray[Any]
Job = tuple[RowKernel, Program, dict[str, Array]]
_ROUNDOFF = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53}


def layouts_of(program: Program, pitch: int = 0) -> dict[str, Layout]:
    """Row-major; tensors of rank 2 and more with ``pitch`` unused elements after each row."""
    found = {}
    for t in program.tensors:
        shape = (*t.shape[:-1], t.shape[-1] + pitch) if t.shape and len(t.shape) > 1 else t.shape
        found[t.name] = Layout(t.dtype, t.shape, Layout.contiguous(t.dtype, shape).strides)
    return found


def row_unit(kernel: RowKernel) -> Unit:
    assert kernel.plan is not None
    plan, pointers = kernel.plan, len(kernel.operands) + len(kernel.outputs)
    return Unit(kernel.source, kernel.entry, plan.blocks, plan.threads, pointers, plan.cluster, plan.shared)


def assert_jobs(jobs: list[Job]) -> None:
    """Compile all kernels together, run each, and compare every output with the reference."""
    units = [row_unit(kernel) for kernel, *_ in jobs]
    library = build(units)
    for unit, (kernel, program, inputs) in zip(units, jobs, strict=True):
        outputs = [HostTensor(output.layout) for output in kernel.program.outputs]
        operands = [HostTensor(layout, inputs[name]) for name, layout in kernel.program.operands]
        run(library, unit, [*operands, *outputs])
        want = evaluate_all(program, inputs)
        for name, tensor in zip(kernel.outputs, outputs, strict=True):
            assert_close(name, tensor, want[name], kernel.program.width)
            assert (tensor.untouched() == SENTINEL).all(), f"{name}: written beside its elements"


def assert_close(name: str, got: HostTensor, want: Array, folded: int) -> None:
    dtype = got.layout.dtype
    if dtype not in _ROUNDOFF:
        assert np.array_equal(got.view, want), name
        return
    allowed = 8 * _ROUNDOFF[dtype] + 4 * np.sqrt(folded) * 2.0**-24
    a, b = got.view.astype(np.float64), want.astype(np.float64)
    scale = max(1.0, float(np.abs(b).max(initial=0.0)))
    assert (np.abs(a - b) <= allowed * scale).all(), f"{name}: off by {np.abs(a - b).max()}, allowed {allowed * scale}"


def values(seed: int, dtype: str, *shape: int) -> Array:
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(numpy_dtype(dtype))


def _softmax(ch: Choices, x: Any, w: Any, b: Any, r: Any) -> Any:
    return tp.softmax(x)


def _layer_norm(ch: Choices, x: Any, w: Any, b: Any, r: Any) -> Any:
    return tp.layer_norm(x, *ch.pick(((), (w,), (w, b))), eps=0.5)


def _rms_norm(ch: Choices, x: Any, w: Any, b: Any, r: Any) -> Any:
    return tp.rms_norm(x, w, eps=0.5)


def _after_residual(ch: Choices, x: Any, w: Any, b: Any, r: Any) -> Any:
    h = x + r
    return {"h": h, "y": ch.pick((lambda: tp.layer_norm(h, w, b, eps=0.5), lambda: tp.rms_norm(h, w, eps=0.5)))()}


def _scaled_softmax(ch: Choices, x: Any, w: Any, b: Any, r: Any) -> Any:
    return tp.softmax(x * 0.125 + r)


def _largest(ch: Choices, x: Any, w: Any, b: Any, r: Any) -> Any:
    """No normalisation at all: each row divided by its span, and the span itself."""
    span = tp.max(x, axis=-1) - tp.min(x, axis=-1)
    return {"y": (x - tp.min(x, axis=-1)[..., None]) / (span[..., None] + 1.0), "span": span}


KINDS: tuple[Callable[..., Any], ...] = (_softmax, _layer_norm, _rms_norm, _after_residual, _scaled_softmax, _largest)


def some_job(ch: Choices, seed: int) -> Job:
    """A program, shapes from one element to several warps a row, and sometimes another plan than the usual."""
    dtype, width = ch.pick(("f16", "f32", "bf16", "f64")), ch.pick((8, 64, 768, 1, 7, 33, 250, 1024, 2048, 4096, 5000))
    lead = ch.pick(((5,), (2, 3), (1,), (2, 1, 3)))
    kind, other = ch.pick(KINDS), ch.pick((dtype, "f32"))
    x, r = values(seed, dtype, *lead, width), values(seed + 1, dtype, *lead, width)
    w, b = values(seed + 2, other, width), values(seed + 3, other, width)
    program = program_of(lambda x, w, b, r: kind(ch, x, w, b, r), x=x, w=w, b=b, r=r)
    lanes = ch.pick((None, None, None, 4, 32, 96, 128))
    layouts, rows = layouts_of(program, ch.pick((0, 0, 3, 8))), ch.pick((None, 2))
    kernel = compile_rows(program.operations, layouts, outputs=program.outputs, lanes=lanes, rows=rows)
    return kernel, program, {"x": x, "w": w, "b": b, "r": r}


@needs_compiler
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_row_programs_agree_with_the_reference(data: st.DataObject) -> None:
    ch = Choices(data.draw)
    assert_jobs([some_job(ch, ch.integer(0, 2**20)) for _ in range(4)])


def long_job(ch: Choices, seed: int) -> Job:
    """Rows of several blocks: any length, alignment and pitch; the row in registers, shared memory, neither, or all."""
    dtype, cluster, lanes = ch.pick(("f16", "f32", "bf16", "f64")), ch.pick((2, 4, 8, 16)), ch.pick((64, 96, 128))
    width = ch.pick((1, cluster * lanes, ch.integer(1, 4 * cluster * lanes), 8 * ch.integer(1, 2 * cluster * lanes)))
    kind, other, rows = ch.pick(KINDS), ch.pick((dtype, "f32")), ch.pick((1, 3, 7))
    x, r = values(seed, dtype, rows, width), values(seed + 1, dtype, rows, width)
    w, b = values(seed + 2, other, width), values(seed + 3, other, width)
    program = program_of(lambda x, w, b, r: kind(ch, x, w, b, r), x=x, w=w, b=b, r=r)
    layouts = layouts_of(program, ch.pick((0, 0, 3, 8)))
    if ch.chance(30):
        narrow = {n: replace(layout, alignment=layout.type.bytes) for n, layout in layouts.items()}
        layouts = layouts | narrow
    chosen = recognise(program.operations, layouts, program.outputs)
    plan = make_row_plan(chosen, cluster=cluster, lanes=lanes)
    parked = ch.integer(0, plan.chunks)
    kept = ch.pick((plan.chunks - parked, ch.integer(0, plan.chunks - parked)))
    late, turns = ch.chance(50), ch.pick((1, 2, 3, 5)) if kept + parked == plan.chunks else 1
    plan = replace(plan, parked=parked, kept=kept, late=late, turns=turns)
    return RowKernel(f"rows_{seed}_{ch.integer(0, 2**60)}", chosen, plan), program, {"x": x, "w": w, "b": b, "r": r}


@needs_compiler
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_rows_of_several_blocks_agree_with_the_reference(data: st.DataObject) -> None:
    ch = Choices(data.draw)
    assert_jobs([long_job(ch, ch.integer(0, 2**20)) for _ in range(3)])


@needs_compiler
def test_a_value_of_the_row_may_come_before_the_first_fold() -> None:
    x, scale = values(5, "f32", 5, 2000), values(6, "f32", 5)

    def scaled(x: Any, scale: Any) -> Any:
        return tp.softmax(x * (scale * 2.0)[:, None])

    program = program_of(scaled, x=x, scale=scale)
    chosen = recognise(program.operations, layouts_of(program), program.outputs)
    plan = make_row_plan(chosen, cluster=4, lanes=64)
    assert chosen.stages[0].whole_row
    for parked, turns in ((0, 1), (plan.chunks, 1), (plan.chunks, 2)):
        changed = replace(plan, parked=parked, kept=plan.chunks - parked, turns=turns)
        kernel = RowKernel(f"rows_scaled_{parked}_{turns}", chosen, changed)
        assert_jobs([(kernel, program, {"x": x, "scale": scale})])


@needs_compiler
@pytest.mark.parametrize("cluster", [None, 1])
def test_rows_too_long_for_registers_of_one_block(cluster: int | None) -> None:
    x = values(1, "f32", 2, 40_000)
    program = program_of(lambda x: tp.softmax(x), x=x)
    kernel = compile_rows(program.operations, layouts_of(program), cluster=cluster)
    assert kernel.plan is not None
    assert kernel.plan.held == (cluster is None)
    assert_jobs([(kernel, program, {"x": x})])


@needs_compiler
def test_the_same_row_gives_the_same_bits_wherever_it_stays() -> None:
    """For the same threads, in the same order; and in every row of a tensor."""
    x = np.tile(values(3, "f32", 1, 8 * 64 * 4 * 5), (3, 1))
    program = program_of(lambda x: tp.softmax(x), x=x)
    layouts = layouts_of(program)
    chosen = recognise(program.operations, layouts, program.outputs)
    plan = make_row_plan(chosen, cluster=8, lanes=64)
    kernels = [
        RowKernel(f"rows_bits_{kept}_{parked}_{turns}", chosen, replace(plan, kept=kept, parked=parked, turns=turns))
        for kept, parked, turns in ((0, 0, 1), (5, 0, 1), (0, 5, 1), (2, 2, 1), (2, 3, 2), (5, 0, 3))
    ]
    units = [row_unit(kernel) for kernel in kernels]
    library, found = build(units), []
    for unit, kernel in zip(units, kernels, strict=True):
        output = HostTensor(kernel.program.outputs[0].layout)
        run(library, unit, [HostTensor(layouts["x"], x), output])
        found += list(output.view.copy())
    assert all(np.array_equal(row, found[0]) for row in found)


def test_gpus_without_clusters_are_refused_with_the_way_out() -> None:
    x = np.zeros((4, 1 << 17), np.float32)
    program = program_of(lambda x: tp.softmax(x), x=x)
    with pytest.raises(WrongDevice, match="compile with cluster=1"):
        compile_rows(program.operations, layouts_of(program)).compiled("sm_89")
    assert compile_rows(program.operations, layouts_of(program), cluster=1).compiled("sm_89").spill_stores == 0


@needs_compiler
def test_integers_and_truths_fold_exactly() -> None:
    x = np.random.default_rng(0).integers(-100, 100, (7, 50)).astype(np.int8)
    x[3] = np.minimum(x[3], -3)  # the largest of these is below zero

    def spread(x: Any) -> Any:
        total = tp.sum(x, axis=-1)
        return {"y": x * 3 - total[:, None], "any": tp.any(x > 98, axis=-1), "top": tp.max(x, axis=-1)}

    program = program_of(spread, x=x)
    kernel = compile_rows(program.operations, layouts_of(program), outputs=program.outputs)
    assert_jobs([(kernel, program, {"x": x})])


@pytest.fixture
def squares() -> Iterator[None]:
    """A monoid of one's own: a sum of squares, whose record is a number that one function adds up."""
    record = Component(
        "value", "partial", 0, call("add", Read("a.value", ()), Read("b.value", ())), call("multiply", X, X)
    )
    add_monoid(Monoid("squares", (record,), Read("r.value", ())))
    yield
    del MONOIDS["squares"]


@needs_compiler
@pytest.mark.usefixtures("squares")
def test_a_monoid_of_ones_own_folds_rows_by_its_entry() -> None:
    x = values(3, "f32", 5, 96)
    program = program_of(lambda x: x / Reducer("squares")(x, axis=-1)[:, None], x=x)
    kernel = compile_rows(program.operations, layouts_of(program), outputs=program.outputs)
    assert_jobs([(kernel, program, {"x": x})])


def assert_nothing_spilled(kernel: RowKernel) -> None:
    compiled = kernel.compiled()
    assert (compiled.spill_stores, compiled.spill_loads, compiled.stack) == (0, 0, 0), kernel.plan
    assert kernel.plan is not None
    assert compiled.shared <= STATIC_BYTES


@pytest.mark.parametrize("width", [64, 768, 1024, 4096, 8192, 50_257])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_no_register_is_spilled(dtype: str, width: int) -> None:
    x, w = values(0, dtype, 4, width), values(1, dtype, width)
    for function in (lambda x, w: tp.softmax(x + w), lambda x, w: tp.layer_norm(x, w, w)):
        program = program_of(function, x=x, w=w)
        assert_nothing_spilled(compile_rows(program.operations, layouts_of(program), outputs=program.outputs))


@pytest.mark.parametrize(("kib", "rows"), [(128, 8), (256, 4096), (1000, 64), (1024, 8), (4096, 8), (16384, 4096)])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_no_register_is_spilled_in_long_rows(dtype: str, kib: int, rows: int) -> None:
    width = kib * 1024 // (4 if dtype == "f32" else 2)

    def applied(function: Callable[..., Any]) -> Program:
        return declared_program(
            lambda: function(declare("x", dtype, (rows, width)), declare("w", dtype, (width,)))
        ).bind()

    functions: tuple[Callable[..., Any], ...] = (
        lambda x, w: tp.softmax(x + w), lambda x, w: tp.layer_norm(x, w, w), lambda x, w: tp.rms_norm(x * 2.0 + w, w),
    )  # fmt: skip
    for function in functions:
        program = applied(function)
        assert_nothing_spilled(compile_rows(program.operations, layouts_of(program), outputs=program.outputs))


def refused(function: Callable[..., Any], **arrays: Array) -> str:
    program = program_of(function, **arrays)
    with pytest.raises(NotRows) as error:
        compile_rows(program.operations, layouts_of(program))
    return str(error.value)


def test_what_is_no_row_program_is_refused_with_the_reason() -> None:
    x, w = values(0, "f32", 4, 6), values(0, "f32", 6, 5)
    assert "nothing is folded" in refused(lambda x: x + 1.0, x=x)
    assert "other dimensions" in refused(lambda x: tp.sum(x, axis=0) + tp.sum(x, axis=1)[:1], x=x[:, :4])
    assert "no relation" in refused(lambda x: tp.sum(tp.reverse(x * 2.0, 1), axis=1), x=x)

    def turned(x: Any) -> Any:
        y = x * 2.0
        return tp.sum(y, axis=1)[:, None] * x + tp.reverse(y, 1)

    assert "another point" in refused(turned, x=x)
    assert refused(lambda x, w: tp.softmax(x @ w), x=x, w=w)
