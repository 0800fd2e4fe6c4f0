"""Row programs, run on the host, against the reference; and what is no row program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tapestry as tp
from tapestry.dtypes import numpy_dtype
from tapestry.kernels.elementwise.types import Layout
from tapestry.kernels.normalization.kernel import RowKernel, compile_rows
from tapestry.kernels.normalization.program import NotRows
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
    pointers = len(kernel.operands) + len(kernel.outputs)
    return Unit(kernel.source, kernel.entry, kernel.plan.blocks, kernel.plan.threads, pointers)


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


@needs_compiler
def test_rows_too_long_for_registers_are_read_again() -> None:
    x = values(1, "f32", 2, 40_000)
    program = program_of(lambda x: tp.softmax(x), x=x)
    kernel = compile_rows(program.operations, layouts_of(program))
    assert kernel.plan is not None
    assert not kernel.plan.held
    assert_jobs([(kernel, program, {"x": x})])


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


@pytest.mark.parametrize("width", [64, 768, 1024, 4096, 8192, 50_257])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_no_register_is_spilled(dtype: str, width: int) -> None:
    x, w = values(0, dtype, 4, width), values(1, dtype, width)
    for function in (lambda x, w: tp.softmax(x + w), lambda x, w: tp.layer_norm(x, w, w)):
        program = program_of(function, x=x, w=w)
        compiled = compile_rows(program.operations, layouts_of(program)).compiled()
        assert (compiled.spill_stores, compiled.spill_loads, compiled.stack) == (0, 0, 0)


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
