"""Reads at indices that are values: what they mean, beside NumPy, whole and sharded, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, anytype, f32, int32, int64
from tapestry.errors import IndexOutside, ProgramError, UsageError
from tapestry.notation import format_expr, format_operation
from tapestry.parse import parse_expr
from tapestry.planner import plan
from tapestry.program import Pin, Program
from tapestry.reference import evaluate
from tapestry.selection import Selection
from tapestry.testing import outputs_of, program_of
from tapestry.workers.faults import TaskError


@tp.op
def rows(table: anytype[Tensor, "v d"], ids: int32[Tensor, "t"]) -> anytype[Tensor, "t d"]:
    t, d = tp.indices("t d")
    return table[ids[t], d]


@tp.op
def rows_or_seven(table: anytype[Tensor, "v d"], ids: int32[Tensor, "t"]) -> anytype[Tensor, "t d"]:
    t, d = tp.indices("t d")
    return table.get(ids[t], d, fill=7)


@tp.op
def rows_or_nothing(table: anytype[Tensor, "v d"], ids: int32[Tensor, "t"]) -> anytype[Tensor, "t d"]:
    t, d = tp.indices("t d")
    return table.get[ids[t], d]


@tp.op
def nearest_rows(table: anytype[Tensor, "v d"], ids: int32[Tensor, "t"]) -> anytype[Tensor, "t d"]:
    t, d = tp.indices("t d")
    return table.clamped[ids[t], d]


@tp.op
def added(x: anytype[Tensor, "t d"], ids: int32[Tensor, "t"], *, v: int) -> anytype[Tensor, "v d"]:
    t, d, v = tp.indices("t d v")
    return tp.sum[t](tp.where(ids[t] == v, x[t, d], 0))


def added_to(places: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, ids: added(x, ids, v=places)


def ints(*shape: int, low: int = -9, high: int = 10, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(np.int32)


TABLE, IDS = ints(7, 3), np.array([3, 6, 0, 1, 1], np.int32)
OUTSIDE = np.array([3, -1, 0, 7, 1], np.int32)


def run(program: Program, ranks: int, pins: list[Pin] | None = None, **inputs: np.ndarray) -> dict[str, Any]:
    planned = plan(program, "cpu-4", mesh=(ranks,), pins=pins or [])
    planned.check()
    return planned.run(inputs, device="numpy").outputs


# -- what they mean ----------------------------------------------------------------------------------------------------


def test_a_read_at_a_value_is_the_fold_that_selects_it() -> None:
    program = program_of(rows, table=TABLE, ids=IDS)
    [op] = program.operations
    assert format_operation(op).endswith("sum[at_d0] where(within(ids[t], 7) == index(at_d0), table[at_d0, d], 0)"), (
        format_operation(op)
    )
    assert [one.dim for one in op.selections] == ["at_d0"]
    assert (op.idle, op.data_dependent) == (7, {"table"})


def test_the_text_of_a_read_reads_back() -> None:
    for op in program_of(rows_or_seven, table=TABLE, ids=IDS).operations:
        assert parse_expr(format_expr(op.body)) == op.body


def test_inside_of_the_axis_every_way_of_reading_is_take() -> None:
    for op in (rows, rows_or_seven, rows_or_nothing, nearest_rows):
        np.testing.assert_array_equal(outputs_of(op, table=TABLE, ids=IDS)[0], TABLE[IDS])


def test_outside_of_the_axis_the_way_of_reading_says_what_is_read() -> None:
    wrong = (OUTSIDE < 0) | (OUTSIDE >= 7)
    found = TABLE[np.clip(OUTSIDE, 0, 6)]
    np.testing.assert_array_equal(outputs_of(nearest_rows, table=TABLE, ids=OUTSIDE)[0], found)
    np.testing.assert_array_equal(
        outputs_of(rows_or_nothing, table=TABLE, ids=OUTSIDE)[0], np.where(wrong[:, None], 0, found)
    )
    np.testing.assert_array_equal(
        outputs_of(rows_or_seven, table=TABLE, ids=OUTSIDE)[0], np.where(wrong[:, None], 7, found)
    )


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "bf16", "f16", "f64"])
def test_every_dtype_is_read_exactly(dtype: str) -> None:
    table = TABLE.astype(tp.dtypes.numpy_dtype(dtype))
    program = program_of(rows, table=table, ids=IDS)
    found = run(program, 2, table=table, ids=IDS)
    [out] = found.values()
    assert out.dtype == table.dtype
    np.testing.assert_array_equal(out.astype(float), table[IDS].astype(float))


def test_no_ids_read_nothing() -> None:
    none = np.zeros(0, np.int32)
    for op in (rows, rows_or_seven, nearest_rows):
        assert outputs_of(op, table=TABLE, ids=none)[0].shape == (0, 3)
    np.testing.assert_array_equal(outputs_of(added_to(4), x=np.zeros((0, 3), np.int32), ids=none)[0], np.zeros((4, 3)))


def test_a_fold_with_an_equality_is_a_fold_into_chosen_places() -> None:
    x, want = ints(5, 3), np.zeros((7, 3), np.int32)
    np.add.at(want, IDS, x)
    program = program_of(added_to(7), x=x, ids=IDS)
    assert [op.selections[0].dim for op in program.operations] == ["v"]
    for ranks in (1, 2, 3):
        np.testing.assert_array_equal(*run(program, ranks, x=x, ids=IDS).values(), want)


def test_ids_beyond_the_places_are_folded_nowhere() -> None:
    x = ints(5, 3)
    np.testing.assert_array_equal(outputs_of(added_to(7), x=x, ids=IDS + 100)[0], np.zeros((7, 3)))


def test_values_and_indices_mix_in_an_index() -> None:
    @tp.op
    def shifted(x: int32[Tensor, "n k"], start: int32[Tensor, "n"]) -> int32[Tensor, "n m"]:
        n, m = tp.indices("n", m=3)
        return x.clamped[n, 2 * m + start[n] - 1]

    x, start = ints(4, 9), np.array([0, 2, -5, 30], np.int32)
    at = np.clip(2 * np.arange(3) + start[:, None] - 1, 0, 8)
    want = np.take_along_axis(x, at, axis=1)
    np.testing.assert_array_equal(outputs_of(shifted, x=x, start=start)[0], want)
    program = program_of(shifted, x=x, start=start)
    np.testing.assert_array_equal(*run(program, 2, x=x, start=start).values(), want)


def test_two_axes_at_values() -> None:
    @tp.op
    def picked(x: int32[Tensor, "a b c"], i: int32[Tensor, "t"], j: int64[Tensor, "t"]) -> int32[Tensor, "c t"]:
        c, t = tp.indices("c t")
        return x[i[t], j[t], c] + 1

    x, i, j = ints(4, 5, 3), np.array([3, 0, 1], np.int32), np.array([4, 4, 0])
    want = x[i, j].T + 1
    program = program_of(picked, x=x, i=i, j=j)
    assert len(program.operations[0].selections) == 2
    np.testing.assert_array_equal(*run(program, 2, x=x, i=i, j=j).values(), want)


def test_a_slice_declares_the_range_of_the_ids() -> None:
    @tp.op
    def of_half(table: int32[Tensor, "v d"], ids: int32[Tensor, "t"]) -> int32[Tensor, "t d"]:
        t, d = tp.indices("t d")
        return table[2:6][ids[t] - 2, d]

    ids = np.array([2, 5, 3], np.int32)
    program = program_of(of_half, table=TABLE, ids=ids)
    assert program.operations[0].extents["at_d0"] == 4
    np.testing.assert_array_equal(*run(program, 2, table=TABLE, ids=ids).values(), TABLE[ids])


# -- sharded -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", ["t", "d", "at_d0", None])
@pytest.mark.parametrize("op", [rows_or_seven, nearest_rows])
def test_a_read_is_the_same_however_it_is_cut(op: Callable[..., Any], cut: str | None) -> None:
    program = program_of(op, table=TABLE, ids=OUTSIDE)
    name = next(one.name for one in program.operations if one.selections)
    want = outputs_of(op, table=TABLE, ids=OUTSIDE)[0]
    found = run(program, 3, [Pin("op", name, (("mesh0", cut),))], table=TABLE, ids=OUTSIDE)
    np.testing.assert_array_equal(*found.values(), want)


@pytest.mark.parametrize("cut", ["t", "d", "v"])
def test_a_fold_into_places_is_the_same_however_it_is_cut(cut: str) -> None:
    x, want = ints(5, 3), np.zeros((7, 3), np.int32)
    np.add.at(want, IDS, x)
    program = program_of(added_to(7), x=x, ids=IDS)
    pins = [Pin("op", program.operations[0].name, (("mesh0", cut),))]
    np.testing.assert_array_equal(*run(program, 3, pins, x=x, ids=IDS).values(), want)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_generated_reads_are_numpys(data: st.DataObject) -> None:
    v, d, t = (data.draw(st.integers(1, 5)) for _ in range(3))
    ids = np.array(data.draw(st.lists(st.integers(-2, v + 1), min_size=t, max_size=t)), np.int32)
    table = ints(v, d, seed=data.draw(st.integers(0, 99)))
    op, clip = data.draw(st.sampled_from([(rows_or_nothing, False), (nearest_rows, True)]))
    want = table[np.clip(ids, 0, v - 1)]
    want = want if clip else np.where(((ids < 0) | (ids >= v))[:, None], 0, want)
    program = program_of(op, table=table, ids=ids)
    [operation] = program.operations
    cut = data.draw(st.sampled_from([dim.name for dim in operation.dims]))
    pins = [Pin("op", operation.name, (("mesh0", cut),))]
    np.testing.assert_array_equal(*run(program, 2, pins, table=table, ids=ids).values(), want)


# -- the oracle --------------------------------------------------------------------------------------------------------


def test_the_reference_does_not_list_what_cannot_count() -> None:
    table, ids = ints(1 << 14, 16), ints(64, low=0, high=1 << 14)
    [found] = evaluate(program_of(rows, table=table, ids=ids), {"table": table, "ids": ids}).values()
    np.testing.assert_array_equal(found, table[ids])
    x, want = ints(64, 16), np.zeros((1 << 14, 16), np.int32)
    np.add.at(want, ids, x)
    program = program_of(added_to(1 << 14), x=x, ids=ids)
    [found] = evaluate(program, {"x": x, "ids": ids}).values()
    np.testing.assert_array_equal(found, want)


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_id_outside_is_an_error_of_the_run(ranks: int) -> None:
    program = program_of(rows, table=TABLE, ids=OUTSIDE)
    with pytest.raises(TaskError, match=r"ids\[[13]\] is (-1|7), outside of the axis") as raised:
        run(program, ranks, table=TABLE, ids=OUTSIDE)
    assert raised.value.task is not None
    assert "table" in str(raised.value)
    with pytest.raises(IndexOutside, match="ids"):
        evaluate(program, {"table": TABLE, "ids": OUTSIDE})


def refused(op: Callable[..., Any], **inputs: np.ndarray) -> UsageError:
    with pytest.raises(UsageError) as raised:
        program_of(op, **inputs)
    assert "test_data_dependent_reads.py:" in str(raised.value)
    return raised.value


def test_a_read_at_a_value_read_at_a_value_is_refused() -> None:
    @tp.op
    def deep(table: int32[Tensor, "v d"], ids: int32[Tensor, "t"], order: int32[Tensor, "t"]) -> int32[Tensor, "t d"]:
        t, d = tp.indices("t d")
        return table[ids[order[t]], d]

    error = refused(deep, table=TABLE, ids=IDS, order=IDS)
    assert "one level deep" in str(error.hint)


def test_a_value_that_is_no_integer_is_refused() -> None:
    @tp.op
    def halves(table: int32[Tensor, "v d"], x: f32[Tensor, "t"]) -> int32[Tensor, "t d"]:
        t, d = tp.indices("t d")
        return table[x[t], d]

    assert "no integer" in str(refused(halves, table=TABLE, x=np.zeros(3, np.float32)))


def test_an_axis_without_elements_has_no_nearest() -> None:
    assert "holds nothing along d0" in str(refused(nearest_rows, table=np.zeros((0, 3), np.int32), ids=IDS))
    np.testing.assert_array_equal(
        outputs_of(rows_or_seven, table=np.zeros((0, 3), np.int32), ids=IDS)[0], np.full((5, 3), 7)
    )


def test_the_other_indices_stay_inside() -> None:
    @tp.op
    def beyond(table: int32[Tensor, "v d"], ids: int32[Tensor, "t"]) -> int32[Tensor, "t k"]:
        t, k = tp.indices("t", k=4)
        return table[ids[t], k]

    with pytest.raises(ProgramError, match="outside its shape"):
        program_of(beyond, table=TABLE, ids=IDS)


def test_what_is_selected_says_the_value() -> None:
    [op] = program_of(nearest_rows, table=TABLE, ids=IDS).operations
    [chosen] = op.selections
    assert isinstance(chosen, Selection)
    assert str(chosen.value) == "minimum(maximum(ids[t], 0), 6)"
