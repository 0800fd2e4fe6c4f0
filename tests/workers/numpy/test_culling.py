"""Folds within conditions on the NumPy device: as many points as hold, about, and what NumPy's masks give."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.expr import Affine, Bound, IndexValue, Table
from tapestry.expr.conditions import any_of
from tapestry.planner import load_machine, plan
from tapestry.workers.numpy.culling import EDGE, held
from tapestry.workers.numpy.pieces import Piece

Q, K = Affine.dim("q"), Affine.dim("k")
N, WIDTH = 1024, 100
CHOSEN = np.arange(256).reshape(16, 16) % 5 == 0
BLOCKS = 16 * (Q // 64) + K // 64
DOMAINS: dict[str, tuple[Bound, ...]] = {
    "causal": (Bound(K - Q, None, 1),),
    "band": (Bound(Q - K, 0, WIDTH),),
    "band and sinks": (Bound(Q - K, 0), *any_of([[Bound(Q - K, None, WIDTH)], [Bound(K, None, 4)]])),
    "blocks": (Bound(Table(BLOCKS, tuple(CHOSEN.ravel().astype(int).tolist())).over(BLOCKS), 1),),
    "up to lengths": (Bound(K - Table(Q // 256, (90, 1000, 0, 300)).over(Q // 256), None, 0),),
}


def box(where: tuple[Bound, ...], n: int, third: int = 1) -> Piece:
    dims = (("q", n), ("k", n), ("e", third))
    return Piece(dims, frozenset(("k",)), (Q, Affine.dim("e")), IndexValue(K), where, {})


def mask(where: tuple[Bound, ...], n: int) -> np.ndarray[Any, Any]:
    q, k = np.mgrid[:n, :n]
    found = np.ones((n, n), dtype=bool)
    for bound in where:
        value = bound.expr.evaluate({"q": q, "k": k})
        found &= (value >= (bound.lo if bound.lo is not None else -n)) & (
            value < (bound.hi if bound.hi is not None else 2 * n)
        )
    return found


@pytest.mark.parametrize("where", DOMAINS.values(), ids=DOMAINS)
def test_boxes_hold_each_point_once_and_few_others(where: tuple[Bound, ...]) -> None:
    """Where a box lies is told by the indices that it writes and by its body, the index that is folded."""
    parts = held(box(where, N, third=64))
    there = mask(where, N)
    total = np.zeros((N, N), dtype=int)
    for part in parts:
        assert isinstance(part.body, IndexValue)
        row, column = part.write[0].const, part.body.index.const
        total[row : row + part.ranges["q"][1], column : column + part.ranges["k"][1]] += 1
    assert total.max() == 1
    assert (total[there] == 1).all()
    assert total.sum() <= there.sum() + 6 * N * EDGE


def test_what_a_band_costs_grows_with_its_length_alone() -> None:
    sizes = [sum(part.size for part in held(box((Bound(Q - K, 0, 256),), n))) for n in (1 << 11, 1 << 12, 1 << 13)]
    assert all(after <= 2.3 * before for before, after in pairwise(sizes))


@pytest.mark.parametrize("where", [(), (Bound(K - Q, None, N - 1),), (Bound(Q + K, 3),)])
def test_a_box_that_nearly_all_points_of_hold_stays_whole(where: tuple[Bound, ...]) -> None:
    whole = box(where, N)
    assert held(whole) == [whole]


def test_nothing_is_left_of_a_box_in_which_nothing_holds() -> None:
    assert held(box((Bound(K - Q, N + 1),), N)) == []


FORMS: dict[str, Callable[[Any, Any], Tensor]] = {
    "causal": lambda q, k: k <= q,
    "band": lambda q, k: (k <= q) & (q - k < WIDTH),
    "band and sinks": lambda q, k: (k <= q) & ((q - k < WIDTH) | (k < 4)),
    "blocks": lambda q, k: tp.table(CHOSEN)[q // 64, k // 64],
    "up to lengths": lambda q, k: k < tp.table([90, 1000, 0, 300])[q // 256],
}


@pytest.mark.parametrize("name", FORMS)
def test_folds_are_what_masks_give(name: str) -> None:
    @tp.op
    def product(x: f32[Tensor, "q k"], w: f32[Tensor, "k e"]) -> f32[Tensor, "q e"]:
        """A product within a condition."""
        q, k, e = tp.indices("q k e")
        return tp.sum[k](x[q, k] * w[k, e], where=FORMS[name](q, k))

    @tp.op
    def largest(x: f32[Tensor, "q k"]) -> f32[Tensor, "q"]:
        """The largest within a condition."""
        q, k = tp.indices("q k")
        return tp.max[k](x[q, k], where=FORMS[name](q, k))

    @tp.program
    def net(x: f32[Tensor, "q k"], w: f32[Tensor, "k e"]) -> tuple[Tensor, Tensor]:
        return product(x, w), largest(x)

    rng = np.random.default_rng(0)
    given = {"x": rng.integers(-8, 8, (N, N)).astype("f4"), "w": rng.integers(-8, 8, (N, 3)).astype("f4")}
    made = plan(net.bind(q=N, k=N, e=3), load_machine("cpu-4"), mesh=(1,))
    found = made.run(given).outputs
    there = mask(DOMAINS[name], N)
    assert np.array_equal(found["out0"], (given["x"] * there) @ given["w"])
    assert np.array_equal(found["out1"], np.where(there, given["x"], -np.inf).max(1))
