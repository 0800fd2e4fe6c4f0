"""Generated elementwise kernels, run on the host, against the reference: programs, layouts and shards by hypothesis."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry.dtypes import DTYPES, numpy_dtype
from tapestry.kernels.elementwise.fuse import fuse
from tapestry.kernels.elementwise.kernel import compile_map
from tapestry.kernels.elementwise.types import Layout, dense
from tapestry.program import Block, Operation, Program
from tapestry.reference.evaluation import evaluate_all
from tapestry.testing import inputs_for, program_of, programs
from tapestry.testing.choices import Choices

from .host import SENTINEL, HostTensor, build, needs_compiler, run, unit_of

pytestmark = needs_compiler

_ROUNDOFF = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53}
SLOW = settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))


def maps(program: Program) -> list[Operation]:
    """Operations that are maps of scalar expressions."""
    return [op for op in program.operations if op.monoid is None and not isinstance(op.body, Block)]


def some_layout(ch: Choices, dtype: str, shape: tuple[int, ...]) -> Layout:
    """Row-major, or axes in another order with gaps, sometimes aligned to an element only."""
    alignment = ch.pick((16, 16, DTYPES[dtype].bytes))
    if ch.chance(60):
        return Layout(dtype, shape, dense(shape), alignment)
    order, step, strides = ch.shuffled(range(len(shape))), ch.pick((1, 1, 2)), [0] * len(shape)
    for axis in order:
        strides[axis] = step * ch.pick((1, 1, -1))
        step = step * shape[axis] + ch.pick((0, 0, 3, 8))
    return Layout(dtype, shape, tuple(strides), alignment)


def assert_same(name: str, dtype: str, got: Any, want: Any, operands: Iterable[str] = ()) -> None:
    """Equal for integers; floats within 8 roundings of values of the order of the largest.

    Roundings of the result's dtype, or of f32 where operands of that width or less are computed with on the way: a GPU
    contracts a product and a sum into one rounding.
    """
    if DTYPES[dtype].kind != "float":
        assert np.array_equal(got, want), name
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    with np.errstate(invalid="ignore"):
        inner = any(d != "f64" for d in operands)
        unit = max(_ROUNDOFF[dtype], _ROUNDOFF["f32"] if inner else 0.0)
        fine = (np.abs(a - b) <= 8 * unit * scale) | (a == b) | (np.isnan(a) & np.isnan(b))
    assert fine.all(), f"{name}: {a[~fine][:4]} instead of {b[~fine][:4]}"


@SLOW
@given(st.data())
def test_programs_agree_with_the_reference(data: st.DataObject) -> None:
    program = data.draw(programs(max_ops=10, largest=20))
    operations = maps(program)
    assume(operations)
    values = evaluate_all(program, data.draw(inputs_for(program)))
    ch = Choices(data.draw)
    jobs = []
    for op in operations:
        names = [*op.operands, op.output]
        layouts = {n: some_layout(ch, program.tensor(n).dtype, program.tensor(n).shape) for n in names}
        vector = ch.pick((None, None, 1, 2, 4))
        jobs.append((op, compile_map(op, layouts, vector=vector, unroll=ch.pick((None, 2)))))
    library = build([unit_of(kernel) for _, kernel in jobs if kernel.plan])
    for op, kernel in jobs:
        output = HostTensor(kernel.loop.output)
        operands = [HostTensor(layout, values[name]) for name, layout in kernel.loop.operands]
        if kernel.plan:
            run(library, unit_of(kernel), [*operands, output])
        inner = [layout.dtype for _, layout in kernel.loop.operands]
        assert_same(str(op.body), kernel.loop.output.dtype, output.view, values[op.output], inner)
        assert (output.untouched() == SENTINEL).all(), f"{op.name} wrote beside its elements"


@SLOW
@given(st.data())
def test_shards_write_their_points_alone(data: st.DataObject) -> None:
    program = data.draw(programs(max_ops=8, largest=20))
    operations = [op for op in maps(program) if op.dims and all(dim.extent > 1 for dim in op.dims)]
    assume(operations)
    values = evaluate_all(program, data.draw(inputs_for(program)))
    ch = Choices(data.draw)
    jobs = []
    for op in operations:
        layouts = {
            n: Layout.contiguous(program.tensor(n).dtype, program.tensor(n).shape) for n in (*op.operands, op.output)
        }
        cut = ch.pick(op.dims)
        start = ch.integer(0, cut.extent - 1)
        points = {cut.name: range(start, ch.integer(start + 1, cut.extent), ch.pick((1, 1, 2)))}
        jobs.append((op, points, compile_map(op, layouts, points=points)))
    library = build([unit_of(kernel) for *_, kernel in jobs if kernel.plan])
    for op, points, kernel in jobs:
        output = HostTensor(kernel.loop.output)
        operands = [HostTensor(layout, values[name]) for name, layout in kernel.loop.operands]
        if kernel.plan:
            run(library, unit_of(kernel), [*operands, output])
        mine = written(op, points, output.view.shape)
        inner = [layout.dtype for _, layout in kernel.loop.operands]
        assert_same(op.name, kernel.loop.output.dtype, output.view[mine], values[op.output][mine], inner)
        left = output.view[~mine].copy().view(np.uint8)
        assert (left == SENTINEL).all(), f"{op.name} wrote outside {points}"


@needs_compiler
def test_turned_operands_go_through_tiles() -> None:
    jobs = []
    for dtype in ("int8", "f16", "f32", "f64"):
        for shape in ((64, 64), (100, 333), (130, 3, 70), (20, 65, 129)):
            x = np.random.default_rng(0).integers(-100, 100, shape).astype(numpy_dtype(dtype))
            row = x.reshape(-1)[: shape[0]].copy()
            program = program_of(lambda x, row: tp.transpose(x, list(range(x.ndim))[::-1]) - row, x=x, row=row)
            (op,) = fused(program)
            layouts = {t.name: Layout.contiguous(t.dtype, t.shape) for t in program.tensors}
            kernel = compile_map(op, layouts)
            assert kernel.plan is not None
            assert kernel.plan.tile is not None
            jobs.append((kernel, {"x": x, "row": row}, evaluate_all(program, {"x": x, "row": row})[op.output]))
    library = build([unit_of(kernel) for kernel, *_ in jobs])
    for kernel, inputs, want in jobs:
        output = HostTensor(kernel.loop.output)
        run(library, unit_of(kernel), [*(HostTensor(v, inputs[n]) for n, v in kernel.loop.operands), output])
        assert_same("turned", kernel.loop.output.dtype, output.view, want)


def turned_sum(cut: int) -> Callable[..., Any]:
    """The sum of the transposes, after some columns of zeros."""

    def applied(*arrays: Any) -> Any:
        padded = [tp.pad(tp.transpose(x, [1, 0]), d1=(cut, 0)) for x in arrays]
        return functools.reduce(operator.add, padded)

    return applied


@SLOW
@given(st.data())
def test_turned_operands_of_any_layout(data: st.DataObject) -> None:
    """Several types turned in one kernel, whose columns are taken together; shapes and alignments as they come."""
    ch = Choices(data.draw)
    jobs = []
    for _ in range(3):
        shape = (ch.integer(33, 150), ch.integer(8, 300))
        dtypes = [ch.pick(("int8", "f16", "f32", "f64")) for _ in range(ch.integer(1, 3))]
        arrays = {
            f"x{k}": np.random.default_rng(k).integers(-9, 9, shape).astype(numpy_dtype(dtype))
            for k, dtype in enumerate(dtypes)
        }
        program = program_of(turned_sum(ch.pick((0, 0, 1, 5))), **arrays)
        (op,) = fused(program)
        layouts = {t.name: Layout.contiguous(t.dtype, t.shape) for t in program.tensors}
        for name in arrays:
            if ch.chance(30):
                layouts[name] = replace(layouts[name], alignment=layouts[name].type.bytes)
        jobs.append((compile_map(op, layouts), arrays, evaluate_all(program, arrays)[op.output]))
    library = build([unit_of(kernel) for kernel, *_ in jobs])
    for kernel, inputs, want in jobs:
        output = HostTensor(kernel.loop.output)
        run(library, unit_of(kernel), [*(HostTensor(v, inputs[n]) for n, v in kernel.loop.operands), output])
        assert_same("turned", kernel.loop.output.dtype, output.view, want)


def fused(program: Program) -> list[Any]:
    return [fuse(program.operations, {t.name: t.dtype for t in program.tensors})]


@needs_compiler
def test_arrays_that_hold_parts_of_tensors_count_from_their_origins() -> None:
    x = np.arange(60, dtype=np.float32).reshape(10, 6)
    program = program_of(lambda x: tp.pad(x, d1=(1, 1), value=-1.0), x=x)
    (op,) = program.operations
    want = evaluate_all(program, {"x": x})[op.output][4:8]
    layouts = {"x": Layout.contiguous("f32", (5, 6)), op.output: Layout.contiguous("f32", (4, 8))}
    origins = {"x": (3, 0), op.output: (4, 0)}
    kernel = compile_map(op, layouts, points={op.dims[0].name: range(4, 8)}, origins=origins)
    output = HostTensor(kernel.loop.output)
    run(build([unit_of(kernel)]), unit_of(kernel), [HostTensor(layouts["x"], x[3:8]), output])
    assert np.array_equal(output.view, want)


def written(op: Operation, points: dict[str, range], shape: tuple[int, ...]) -> Any:
    """Which elements the points of a shard write."""
    axes = [np.array(points.get(dim.name, range(dim.extent)), dtype=np.int64) for dim in op.dims]
    grids = dict(zip((dim.name for dim in op.dims), np.meshgrid(*axes, indexing="ij"), strict=True))
    mask = np.zeros(shape, np.bool_)
    mask[tuple(np.broadcast_to(row.evaluate(grids), [len(a) for a in axes]) for row in op.write)] = True
    return mask
