"""How rows are spread over threads, what that costs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tapestry as tp
from tapestry.dsl.declare import input as declare
from tapestry.dsl.program import program as declared_program
from tapestry.kernels.elementwise.types import Layout
from tapestry.kernels.errors import KernelError
from tapestry.kernels.normalization.kernel import compile_rows
from tapestry.kernels.normalization.plan import HELD_BYTES, HELD_WORDS, PARKED_BYTES, make_row_plan
from tapestry.kernels.normalization.program import RowProgram, recognise
from tapestry.kernels.normalization.spread import rows_at_a_time
from tapestry.testing import program_of


def softmax(rows: int, width: int, dtype: str = "f16") -> RowProgram:
    program = declared_program(lambda: tp.softmax(declare("x", dtype, (rows, width)))).bind()
    return recognise(program.operations, {t.name: Layout.contiguous(t.dtype, t.shape) for t in program.tensors})


@given(rows=st.integers(1, 5000), width=st.integers(1, 9_000_000), single=st.booleans())
def test_threads_cover_each_row_once(rows: int, width: int, single: bool) -> None:
    plan = make_row_plan(softmax(rows, width, "f32" if single else "f16"))
    assert plan.spread * plan.chunks * plan.vector >= width
    assert plan.spread * (plan.chunks - 1) * plan.vector < width
    assert width % plan.vector == 0
    blocks, each = plan.blocks // plan.cluster, plan.rows_a_block * plan.turns
    assert plan.blocks == blocks * plan.cluster
    assert blocks * each >= rows > (blocks - 1) * each
    assert plan.threads % 32 == 0
    assert plan.threads <= 1024


@given(width=st.integers(1, 9_000_000), cluster=st.sampled_from((None, 1, 2, 4, 8, 16)))
def test_a_row_stays_only_where_there_is_room(width: int, cluster: int | None) -> None:
    plan = make_row_plan(softmax(64, width), cluster=cluster)
    words = -(-plan.vector * 2 // 4)
    assert plan.kept * words <= HELD_WORDS
    assert plan.kept * words * 4 * plan.lanes <= HELD_BYTES
    assert plan.parked * words * 4 * plan.lanes <= plan.shared <= PARKED_BYTES + 16
    assert plan.cluster > 1 or not plan.parked
    assert plan.kept + plan.parked <= plan.chunks
    assert plan.resident * plan.threads * (words * plan.kept + 1) <= 65536


@given(width=st.integers(1, 9_000_000), cluster=st.sampled_from((None, 1, 2, 4, 8, 16)))
def test_parts_are_the_row_in_order(width: int, cluster: int | None) -> None:
    plan = make_row_plan(softmax(64, width), cluster=cluster)
    for parts in (plan.parts, plan.arriving):
        assert [part.first for part in parts] == [0, *np.cumsum([part.vectors for part in parts])[:-1]]
        assert sum(part.vectors for part in parts) == plan.chunks
        assert all(part.vectors for part in parts)
    assert plan.held == all(part.storage != "again" for part in plan.parts)


def test_rows_of_long_tensors_are_read_once() -> None:
    for kib in (256, 512, 1024, 2048, 4096):
        plan = make_row_plan(softmax(1024, kib * 512))
        assert plan.held
        assert plan.cluster > 1
    assert not make_row_plan(softmax(1024, 16 << 20)).held


def test_few_long_rows_are_spread_over_more_multiprocessors_than_many() -> None:
    few, many = make_row_plan(softmax(8, 128 << 10)), make_row_plan(softmax(8192, 128 << 10))
    assert few.cluster > many.cluster > 1


def test_rows_are_taken_in_turns_only_where_many_wait() -> None:
    assert make_row_plan(softmax(64, 128 << 10)).turns == 1
    plan = make_row_plan(softmax(8192, 128 << 10))
    assert plan.turns > 1
    assert plan.held
    assert plan.blocks // plan.cluster >= 4 * rows_at_a_time(plan)


def test_a_single_row_is_read_once_too() -> None:
    for width in (64, 4096, 32 << 10, 512 << 10):
        plan = make_row_plan(softmax(1, width))
        assert (plan.vector, plan.held) == (8, True)
        assert plan.streamed == 16


def test_short_rows_are_no_clusters() -> None:
    for rows in (1, 8, 100_000):
        assert make_row_plan(softmax(rows, 4096)).cluster == 1


def test_each_element_counts_once() -> None:
    program = softmax(128, 1000)
    assert program.bytes_moved == 2 * 2 * 128 * 1000


def test_bad_plans_are_refused() -> None:
    for lanes, rows in ((3, None), (2048, None), (None, 9), (None, 0)):
        with pytest.raises(KernelError, match=r"lanes|rows"):
            make_row_plan(softmax(8, 64), lanes=lanes, rows=rows)
    for cluster, lanes, rows in ((3, None, None), (32, None, None), (2, 32, None), (2, None, 2)):
        with pytest.raises(KernelError, match="cluster"):
            make_row_plan(softmax(8, 64), cluster=cluster, lanes=lanes, rows=rows)
    program = program_of(lambda x: tp.softmax(x), x=np.zeros((3, 4), np.float32))
    layouts = {t.name: Layout.contiguous(t.dtype, t.shape) for t in program.tensors}
    with pytest.raises(KernelError, match="an output that no operation writes"):
        compile_rows(program.operations, layouts, outputs=["x"])
