"""Unequal boxes: every point is on one rank, ranks have equal shares, and all together they move what is said."""

from __future__ import annotations

from math import isclose, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner.strategy.boxes import boxes
from tapestry.program import Operation
from tapestry.space import Region

from ..search.named import product


def multiply(m: int, n: int, k: int) -> Operation:
    (op,) = product.bind(m=m, n=n, k=k).operations
    return op


def widths(op: Operation) -> dict[str, int]:
    return dict.fromkeys((*op.operands, op.output), 1)


def touched(op: Operation, shard: Region) -> int:
    """Elements that one box of a product reads and writes, by its sides alone."""
    (grid,) = shard.grids
    m, n, k = (axis.size for axis in grid.axes)
    return m * k + k * n + m * n


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 20), st.tuples(*[st.integers(1, 70)] * 3))
def test_they_are_a_partition(ranks: int, sides: tuple[int, int, int]) -> None:
    op = multiply(*sides)
    for each in boxes(op, ranks, widths(op), 1.0):
        shards = each.shards(op.extents)
        if shards is not None:
            assert len(shards) == ranks
            assert all(shards)
            assert sum(shard.size for shard in shards) == prod(sides) == Region.union(shards).size


@pytest.mark.parametrize("ranks", [3, 5, 7, 9, 10, 11, 16])
def test_they_move_what_is_said_in_equal_shares(ranks: int) -> None:
    op = multiply(2520, 2520, 2520)
    found = boxes(op, ranks, widths(op), 0.995)
    assert found
    for each in found:
        shards = each.shards(op.extents)
        assert shards is not None
        assert isclose(sum(touched(op, shard) for shard in shards), each.moved, rel_tol=1e-3)
        assert max(shard.size for shard in shards) <= 1.01 * min(shard.size for shard in shards)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 12, 64])
def test_none_where_a_grid_is_as_good(ranks: int) -> None:
    op = multiply(64, 64, 64)
    assert not boxes(op, ranks, widths(op), 0.995)


def test_none_of_what_is_no_contraction() -> None:
    @tp.program
    def net(x: f32[Tensor, "n c y"]) -> Tensor:
        return tp.relu(x) + tp.sum(x, axis=2, keepdims=True)

    for op in net.bind(n=64, c=64, y=64).operations:
        assert not boxes(op, 5, widths(op), 1.0)
