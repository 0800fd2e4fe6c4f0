"""Plans written by hand: what they compute, what they move, in every order that they allow."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner.format import Document
from tapestry.program import Dim, Operation, Program, Tensor
from tapestry.workers import Deadlock, TaskError

from .sheets import Sheet, blur, call, dim, halo_blur, matmul, read, split_matmul, zeros_padded_blur
from .unchecked import run_unchecked

RNG = np.random.default_rng(5)
A, B = RNG.standard_normal((6, 8)).astype(np.float32), RNG.standard_normal((8, 5)).astype(np.float32)
X = RNG.standard_normal(8).astype(np.float32)

orders = st.none() | st.integers(0, 10_000)


@given(orders)
def test_split_matmul(order: int | None) -> None:
    result = run_unchecked(split_matmul(), {"a": A, "b": B}, order=order, poison=True)
    halves = A[:, :4] @ B[:4], A[:, 4:] @ B[4:]
    np.testing.assert_array_equal(result.outputs["c"], halves[0] + halves[1])
    assert result.bytes_moved == 6 * 5 * 4  # each rank gets the other's part of its 3 rows


def test_narrow_parts_are_stored_narrow_and_folded_wide() -> None:
    import ml_dtypes

    narrow = ml_dtypes.bfloat16
    a, b = A.astype(narrow), B.astype(narrow)
    result = run_unchecked(split_matmul("bf16"), {"a": a, "b": b}, poison=True)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    halves = [(wide_a[:, s] @ wide_b[s]).astype(narrow).astype(np.float32) for s in (slice(0, 4), slice(4, 8))]
    np.testing.assert_array_equal(result.outputs["c"], (halves[0] + halves[1]).astype(narrow))


def test_integers_wrap() -> None:
    a, b = np.full((6, 8), 100, np.int8), np.full((8, 5), 100, np.int8)
    assert (run_unchecked(split_matmul("int8", "int32"), {"a": a, "b": b}).outputs["c"] == 80_000).all()
    assert (
        run_unchecked(split_matmul("int8"), {"a": a, "b": b}).outputs["c"] == np.array(80_000).astype(np.int8)
    ).all()


@given(orders)
def test_halo_exchange_in_place(order: int | None) -> None:
    result = run_unchecked(halo_blur(), {"x": X}, order=order, poison=True)
    np.testing.assert_allclose(result.outputs["z"], zeros_padded_blur(zeros_padded_blur(X)), rtol=1e-6)
    assert result.bytes_moved == 2 * 2 * 4


@given(orders)
def test_all_gather_and_a_copy(order: int | None) -> None:
    sheet = Sheet(matmul(), 3)
    rows = ["0:2", "2:4", "4:6"]
    a = sheet.buffer("a", [f"{r},0:8" for r in rows], initial=True)
    b = sheet.buffer("b", "0:8,0:5", initial=True)
    near, c = sheet.buffer("b", "0:8,0:5"), sheet.buffer("c", [f"{r},0:5" for r in rows])
    every = sheet.buffer("c", "0:6,0:5")
    copied = sheet.copy("b", b, near, "0:8,0:5")
    product = sheet.compute("product", [f"{r},0:5,0:8" for r in rows], [a, near], c, [copied])
    sheet.transfer("c", c, every, [f"{r},0:5" for r in rows], "0:6,0:5", [product])
    result = run_unchecked(sheet.document({"c": every}), {"a": A, "b": B}, order=order, poison=True)
    np.testing.assert_allclose(result.outputs["c"], A @ B, rtol=1e-5)
    assert result.bytes_moved == 3 * 2 * 2 * 5 * 4


def test_strided_and_ragged_shards() -> None:
    sheet = Sheet(blur(), 3)
    mine = ["0:8:3", "1:8:3", "2:8:3"]
    x = sheet.buffer("x", "0:8", initial=mine)
    y, z = sheet.buffer("y", "0:8"), sheet.buffer("z", ["0:1|5:8", "empty", "1:5"])
    gathered = sheet.transfer("x", x, x, mine, "0:8")
    first = sheet.compute("first", mine, [x], y, [gathered])
    again = sheet.transfer("y", y, y, mine, "0:8", [first])
    sheet.compute("second", ["0:1|5:8", "empty", "1:5"], [y], z, [again])
    result = run_unchecked(sheet.document({"z": z}), {"x": X}, poison=True)
    np.testing.assert_allclose(result.outputs["z"], zeros_padded_blur(zeros_padded_blur(X)), rtol=1e-6)
    assert result.bytes_moved == 2 * 16 * 4


def test_states_come_out_under_their_own_name() -> None:
    tensors = (Tensor("count", "int32", (4,), "state"), Tensor("next", "int32", (4,)))
    op = Operation("step", (Dim("i", 4),), "next", (dim("i"),), call("add", read("count", "i"), read("count", 0)))
    sheet = Sheet(Program("counter", tensors, (op,), (), (("count", "next"),)), 2)
    count = sheet.buffer("count", "0:4", initial=True)
    after = sheet.buffer("next", "0:4")
    sheet.compute("step", "0:4", [count], after)
    result = run_unchecked(sheet.document({}, {"count": after}), {"count": np.arange(4, dtype=np.int32) + 1})
    np.testing.assert_array_equal(result.outputs["count"], [2, 3, 4, 5])


def without_waits(document: Document) -> Document:
    return msgspec.structs.replace(
        document, tasks=tuple(msgspec.structs.replace(task, waits=()) for task in document.tasks)
    )


def test_the_adversary_finds_a_missing_wait() -> None:
    """Without waits the transfer may run before the product: some order shows it."""
    found = [
        run_unchecked(without_waits(split_matmul()), {"a": A, "b": B}, order=seed, poison=True) for seed in range(20)
    ]
    assert any(np.isnan(result.outputs["c"]).any() for result in found)


def test_every_order_is_one_of_the_seed() -> None:
    first = run_unchecked(without_waits(halo_blur()), {"x": X}, order=3, poison=True)
    again = run_unchecked(without_waits(halo_blur()), {"x": X}, order=3, poison=True)
    assert [(e.rank, e.task) for e in first.events] == [(e.rank, e.task) for e in again.events]
    np.testing.assert_array_equal(first.outputs["z"], again.outputs["z"])


@pytest.mark.parametrize("order", [None, 1])
def test_a_cycle_of_waits_is_named(order: int | None) -> None:
    document = halo_blur()
    first = msgspec.structs.replace(document.tasks[0], waits=(3,))
    with pytest.raises(Deadlock, match="no task can start and 8 have not run") as caught:
        run_unchecked(msgspec.structs.replace(document, tasks=(first, *document.tasks[1:])), {"x": X}, order=order)
    assert "task 0 (send x) waits for 3" in str(caught.value)


@pytest.mark.parametrize("order", [None, 1])
def test_transfers_in_crossed_orders_are_named(order: int | None) -> None:
    """Two transfers on one lane, in another order on each rank: nobody can meet."""
    document = halo_blur()
    tasks = list(document.tasks)
    tasks[0] = msgspec.structs.replace(tasks[0], waits=(2,))
    tasks[2] = msgspec.structs.replace(tasks[2], lane="other", waits=(0,))
    with pytest.raises(Deadlock) as caught:
        run_unchecked(msgspec.structs.replace(document, tasks=tuple(tasks)), {"x": X}, order=order)
    assert "rank 1 other" in str(caught.value)


def test_a_failing_task_names_rank_task_and_tensor() -> None:
    """Rank 1 is told to compute an element whose operand it does not store."""
    document = halo_blur()
    shards = document.tasks[1].shards  # type: ignore[union-attr]
    wrong = msgspec.structs.replace(document.layouts[shards], regions=("0:4", "2:8"))
    with pytest.raises(TaskError, match="touches elements that its buffer does not store") as caught:
        run_unchecked(msgspec.structs.replace(document, layouts={**document.layouts, shards: wrong}), {"x": X})
    assert (caught.value.rank, caught.value.task, caught.value.tensor) == (1, 1, "y")


def test_events_cover_every_task() -> None:
    result = run_unchecked(halo_blur(), {"x": X})
    assert sorted((event.rank, event.task) for event in result.events) == [(r, t) for r in range(2) for t in range(4)]
    assert all(0 <= event.start_s <= event.end_s <= result.wall_s for event in result.events)
