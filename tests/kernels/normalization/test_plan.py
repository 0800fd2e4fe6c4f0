"""How rows are spread over threads, what that costs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tapestry as tp
from tapestry.kernels.elementwise.cost import Ceilings, row_seconds, row_work
from tapestry.kernels.elementwise.types import Layout
from tapestry.kernels.errors import KernelError
from tapestry.kernels.normalization.kernel import compile_rows
from tapestry.kernels.normalization.plan import HELD_BYTES, HELD_WORDS, RowPlan, make_row_plan
from tapestry.kernels.normalization.program import RowProgram, recognise
from tapestry.testing import program_of


def softmax(rows: int, width: int, dtype: type = np.float16) -> RowProgram:
    program = program_of(lambda x: tp.softmax(x), x=np.zeros((rows, width), dtype))
    return recognise(program.operations, {t.name: Layout.contiguous(t.dtype, t.shape) for t in program.tensors})


@given(rows=st.integers(1, 5000), width=st.integers(1, 200_000), single=st.booleans())
def test_threads_cover_each_row_once(rows: int, width: int, single: bool) -> None:
    plan = make_row_plan(softmax(rows, width, np.float32 if single else np.float16))
    assert plan.lanes * plan.chunks * plan.vector >= width
    assert plan.lanes * (plan.chunks - 1) * plan.vector < width
    assert width % plan.vector == 0
    assert plan.blocks * plan.rows_a_block >= rows > (plan.blocks - 1) * plan.rows_a_block
    assert plan.threads % 32 == 0
    assert plan.threads <= 1024


@given(width=st.integers(1, 300_000))
def test_rows_are_held_only_while_registers_last(width: int) -> None:
    plan = make_row_plan(softmax(64, width))
    words = -(-plan.vector * 2 // 4) * plan.chunks
    assert plan.held == (words <= HELD_WORDS and 4 * words * plan.lanes <= HELD_BYTES)


def test_each_element_counts_once() -> None:
    program = softmax(128, 1000)
    assert program.bytes_moved == row_work(program).bytes == 2 * 2 * 128 * 1000


def test_rows_read_again_cost_more() -> None:
    ceilings = Ceilings(bytes_per_s=4e12, operations_per_s=3e13)

    def each(plan: RowPlan) -> float:
        return row_seconds(plan, ceilings) / plan.program.bytes_moved

    held, again = make_row_plan(softmax(4096, 32768)), make_row_plan(softmax(4096, 131072))
    assert held.held
    assert not again.held
    assert each(again) > each(held)


def test_bad_plans_are_refused() -> None:
    for lanes, rows in ((3, None), (2048, None), (None, 9), (None, 0)):
        with pytest.raises(KernelError, match=r"lanes|rows"):
            make_row_plan(softmax(8, 64), lanes=lanes, rows=rows)
    program = program_of(lambda x: tp.softmax(x), x=np.zeros((3, 4), np.float32))
    layouts = {t.name: Layout.contiguous(t.dtype, t.shape) for t in program.tensors}
    with pytest.raises(KernelError, match="an output that no operation writes"):
        compile_rows(program.operations, layouts, outputs=["x"])
