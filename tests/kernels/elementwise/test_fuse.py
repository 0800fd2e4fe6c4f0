"""Maps written into the maps that read them compute what they computed one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry.kernels.elementwise.fuse import fuse
from tapestry.kernels.elementwise.kernel import compile_map
from tapestry.kernels.elementwise.types import Layout
from tapestry.kernels.errors import KernelError
from tapestry.program import Operation, Program
from tapestry.reference.evaluation import evaluate_all
from tapestry.testing import inputs_for, program_of, programs

from .host import HostTensor, build, needs_compiler, run, unit_of
from .test_generated import assert_same, maps


def chain(program: Program, last: Operation) -> list[Operation]:
    """The operation and the maps that it reads, directly or not, in order."""
    able = {op.output: op for op in maps(program) if not op.where}
    wanted, found = {last.output}, [last]
    for op in reversed(program.operations[: program.operations.index(last)]):
        reads = {name for known in found for name in known.operands}
        if op.output in able and op.output in reads and op.output not in wanted:
            wanted.add(op.output)
            found.append(op)
    return found[::-1]


@needs_compiler
@settings(deadline=None, max_examples=8, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_fused_maps_agree_with_the_reference(data: st.DataObject) -> None:
    program = data.draw(programs(max_ops=12, largest=12))
    chains = [found for op in maps(program) if len(found := chain(program, op)) > 1]
    assume(chains)
    values = evaluate_all(program, data.draw(inputs_for(program)))
    layouts = {t.name: Layout.contiguous(t.dtype, t.shape) for t in program.tensors}
    dtypes = {t.name: t.dtype for t in program.tensors}
    kernels = []
    for found in chains:
        if all(plain(op) for op in found[:-1]):
            kernels.append(compile_map(fuse(found, dtypes), layouts))
    assume(kernels)
    library = build([unit_of(kernel) for kernel in kernels if kernel.plan])
    for kernel in kernels:
        output = HostTensor(kernel.loop.output)
        if kernel.plan:
            run(library, unit_of(kernel), [*(HostTensor(v, values[n]) for n, v in kernel.loop.operands), output])
        inner = [layout.dtype for _, layout in kernel.loop.operands]
        want = values[last_output(program, kernel.name)]
        assert_same(kernel.name, kernel.loop.output.dtype, output.view, want, inner)


def plain(op: Operation) -> bool:
    """Whether every axis of the output is one dimension."""
    extents = {dim.name for dim in op.dims if dim.extent > 1}
    own = [row.terms[0][0] for row in op.write if len(row.terms) == 1 and row.terms[0][1] == 1 and not row.const]
    return extents <= set(own) and len(own) == sum(bool(row.terms) for row in op.write)


def last_output(program: Program, name: str) -> str:
    return program.op_by_name[name].output


def test_a_fused_kernel_reads_no_intermediate() -> None:
    x = np.zeros((4, 8), np.float16)
    program = program_of(lambda a, b: tp.silu(a) * b + a, a=x, b=x)
    kernel = compile_map(
        fuse(program.operations, {t.name: t.dtype for t in program.tensors}),
        {t.name: Layout.contiguous(t.dtype, t.shape) for t in program.tensors},
    )
    assert kernel.operands == ("a", "b")
    assert kernel.bytes_moved == 3 * x.nbytes


def test_what_cannot_be_fused_is_refused() -> None:
    x = np.zeros((4, 8), np.float32)
    program = program_of(lambda a: tp.sum(a, axis=0) * 2.0, a=x)
    with pytest.raises(KernelError, match="only whole maps"):
        fuse(program.operations, {t.name: t.dtype for t in program.tensors})
    with pytest.raises(KernelError, match="nothing to fuse"):
        fuse([], {})
