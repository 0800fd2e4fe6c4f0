"""Reads and writes at places that the data say, beside NumPy and torch, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tapestry as tp
from tapestry import Tensor
from tapestry.errors import IndexOutside, UsageError
from tapestry.planner import plan
from tapestry.testing import outputs_of, program_of

TABLE = np.arange(60, dtype=np.int32).reshape(5, 4, 3) - 30
IDS = np.array([[4, 0], [1, 1], [2, 4]], np.int32)
OUTSIDE = np.array([-2, 0, 7], np.int32)


def result(function: Callable[..., Any], **arrays: np.ndarray) -> np.ndarray:
    """The output, of the reference and of a run on two ranks alike."""
    [want] = outputs_of(function, **arrays)
    [got] = plan(program_of(function, **arrays), "cpu-4", mesh=(2,)).run(arrays, device="numpy").outputs.values()
    np.testing.assert_array_equal(got, want)
    return want


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_is_numpys(axis: int) -> None:
    ids = np.minimum(IDS, TABLE.shape[axis] - 1)
    found = result(lambda x, ids: tp.take(x, ids, axis), x=TABLE, ids=ids)
    np.testing.assert_array_equal(found, np.take(TABLE, ids, axis))


def test_what_is_taken_outside_is_said() -> None:
    clamped = result(lambda x, ids: tp.take(x, ids, outside="clamp"), x=TABLE, ids=OUTSIDE)
    np.testing.assert_array_equal(clamped, np.take(TABLE, OUTSIDE, 0, mode="clip"))
    filled = outputs_of(lambda x, ids: tp.take(x, ids, outside=9), x=TABLE, ids=OUTSIDE)[0]
    np.testing.assert_array_equal(filled, np.stack([np.full((4, 3), 9), TABLE[0], np.full((4, 3), 9)]))
    with pytest.raises(IndexOutside):
        outputs_of(tp.take, x=TABLE, ids=OUTSIDE)


def test_an_embedding_is_torchs() -> None:
    table = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    found = result(lambda ids, table: tp.embedding(ids, table), ids=IDS, table=table)
    want = torch.nn.functional.embedding(torch.tensor(IDS), torch.tensor(table))
    np.testing.assert_array_equal(found, want.numpy())


def test_take_along_axis_is_numpys() -> None:
    ids = np.random.default_rng(1).integers(0, 4, (5, 6, 3))
    found = result(lambda x, ids: tp.take_along_axis(x, ids, 1), x=TABLE, ids=ids)
    np.testing.assert_array_equal(found, np.take_along_axis(TABLE, ids, 1))
    best = result(lambda x: tp.take_along_axis(x, tp.argmax(x, 1, keepdims=True), 1), x=TABLE)
    np.testing.assert_array_equal(best, TABLE.max(1, keepdims=True))


@pytest.mark.parametrize("start", [-3, 0, 1, 9])
def test_a_window_that_moves_stays_inside(start: int) -> None:
    at = np.array(start, np.int32)
    lo = min(max(start, 0), 2)
    cut = result(lambda x, at: tp.dynamic_slice(x, [at, 1, 0], [3, 2, 3]), x=TABLE, at=at)
    np.testing.assert_array_equal(cut, TABLE[lo : lo + 3, 1:3])
    update, want = np.full((3, 4, 2), 99, np.int32), TABLE.copy()
    want[lo : lo + 3, :, 1:] = 99
    found = result(lambda x, update, at: tp.dynamic_update_slice(x, update, [at, 0, 1]), x=TABLE, update=update, at=at)
    np.testing.assert_array_equal(found, want)


def test_one_hot_has_a_row_of_zeros_for_what_it_does_not_have() -> None:
    found = result(lambda ids: tp.one_hot(ids, 4, dtype="int8"), ids=IDS)
    np.testing.assert_array_equal(found, (IDS[..., None] == np.arange(4)).astype(np.int8))


@pytest.mark.parametrize("axis", [0, 1])
def test_scatter_add_adds_up_equal_ids(axis: int) -> None:
    ids = np.array([2, 0, 2, 1, 2], np.int32)
    updates = np.random.default_rng(2).integers(-9, 9, (5, 4, 3) if axis == 0 else (5, 5, 3)).astype(np.int32)
    want = TABLE.copy()
    np.add.at(want, (slice(None),) * axis + (ids,), updates)
    found = result(lambda x, ids, u: tp.scatter_add(x, ids, u, axis), x=TABLE, ids=ids, u=updates)
    np.testing.assert_array_equal(found, want)


def test_segments_are_summed_and_the_rest_is_dropped() -> None:
    x, segments = TABLE.reshape(5, 12), np.array([1, 3, 1, -1, 8], np.int32)
    found = result(lambda x, segments: tp.segment_sum(x, segments, 4), x=x, segments=segments)
    want = np.zeros((4, 12), np.int32)
    want[1], want[3] = x[0] + x[2], x[1]
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_is_torchs(reduction: str) -> None:
    logits = np.random.default_rng(3).normal(size=(3, 2, 7))
    [found] = outputs_of(lambda x, y: tp.cross_entropy(x, y, reduction=reduction), x=logits, y=IDS)
    want = torch.nn.functional.cross_entropy(
        torch.tensor(logits).reshape(6, 7), torch.tensor(IDS.reshape(6), dtype=torch.int64), reduction=reduction
    )
    np.testing.assert_allclose(found.reshape(want.shape), want.numpy(), rtol=1e-12)


def refused(function: Callable[..., Any], **arrays: np.ndarray) -> str:
    with pytest.raises(UsageError) as raised:
        program_of(function, **arrays)
    assert "test_gathering.py:" in str(raised.value)
    return str(raised.value)


def test_what_does_not_fit_is_refused() -> None:
    floats = np.zeros(3)
    assert "no integer" in refused(lambda x, ids: tp.take(x, ids), x=TABLE, ids=floats)
    assert "none longer" in refused(lambda x, ids: tp.take_along_axis(x, ids, 1), x=TABLE, ids=np.zeros((6, 4, 3), int))
    assert "no larger" in refused(lambda x: tp.dynamic_slice(x, [0, 0, 0], [6, 1, 1]), x=TABLE)
    assert "one integer" in refused(lambda x, at: tp.dynamic_slice(x, [at, 0, 0], [1, 1, 1]), x=TABLE, at=IDS[0])
    assert "labels" in refused(lambda x, y: tp.cross_entropy(x, y), x=TABLE, y=IDS)
    assert "each id belongs" in refused(lambda x, s: tp.segment_sum(x, s, 3), x=TABLE, s=np.zeros(4, int))


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f64"])
def test_a_sharded_embedding_is_exact(dtype: str) -> None:
    table = np.random.default_rng(4).normal(size=(9, 4)).astype(tp.dtypes.numpy_dtype(dtype))

    def looked_up(table: Tensor, ids: Tensor) -> Tensor:
        return tp.embedding(ids, tp.shard(table, mesh0="d0"))

    program = program_of(looked_up, table=table, ids=IDS)
    [found] = plan(program, "cpu-4", mesh=(3,)).run({"table": table, "ids": IDS}, device="numpy").outputs.values()
    np.testing.assert_array_equal(found.astype(float), table[IDS].astype(float))
