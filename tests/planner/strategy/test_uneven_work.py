"""Index spaces that are no boxes: shards of equal work, priced by the points that hold, moving what they read alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.expr import Affine, Bound, Table
from tapestry.expr.conditions import any_of
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.check import check
from tapestry.planner.explain import Held
from tapestry.planner.strategy.mesh import Cut, Mesh, Shards
from tapestry.program import Pin, Program
from tapestry.space import Box
from tapestry.space.counting import count_grid

D = Affine.dim
Q, K, B = D("q"), D("k"), D("b")
LENGTHS = [1500, 40, 700, 3, 2000, 900, 12, 640, 311, 1200, 64, 777]
N, WIDTH, EDGE = 2048, 256, 64
MASK = [[int((q * q + 3 * k) % 7 < 2 and k <= q) for k in range(N // EDGE)] for q in range(N // EDGE)]


def at(values: list[int], inner: Affine) -> Affine:
    return Table(inner, tuple(values)).over(inner)


CAUSAL = Bound(K - Q, None, 1)
DOMAINS: dict[str, tuple[dict[str, int], str, tuple[Bound, ...]]] = {
    "causal": ({"q": N, "k": N}, "q", (CAUSAL,)),
    "keys of a causal": ({"q": N, "k": N}, "k", (CAUSAL,)),
    "window and sinks": (
        {"q": N, "k": N}, "q", (CAUSAL, *any_of([[Bound(Q - K, None, WIDTH)], [Bound(K, None, 4)]]))
    ),
    "blocks": (
        {"q": N, "k": N}, "q", (Bound(at([*chain(*MASK)], (N // EDGE) * (Q // EDGE) + K // EDGE), 1),)
    ),
    "tokens of ragged rows": ({"b": 12, "k": N}, "k", (Bound(K - at(LENGTHS, B), None, 0),)),
}  # fmt: skip


@pytest.mark.parametrize("parts", [2, 3, 4, 8])
@pytest.mark.parametrize(("extents", "dim", "where"), DOMAINS.values(), ids=DOMAINS)
def test_contiguous_parts_have_equal_work_within_a_hundredth(
    parts: int, extents: dict[str, int], dim: str, where: tuple[Bound, ...]
) -> None:
    mesh = Mesh((parts,), ("mesh0",))
    shards = Shards.of(mesh, extents, (Cut(dim, "balanced"),), where)
    shards.partition.prove()
    work = [sum(count_grid(tuple(extents), where, grid).value for grid in region.grids) for region in shards.regions]
    assert sum(work) == count_grid(tuple(extents), where, Box.of_shape(tuple(extents.values())).grid()).value
    assert max(work) * parts <= 1.01 * sum(work)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=20), st.integers(1, 6))
def test_no_part_has_more_than_an_equal_share_and_one_index(lengths: list[int], parts: int) -> None:
    extents, where = {"b": len(lengths), "k": 50}, (Bound(K - at(lengths, B), None, 0),)
    shards = Shards.of(Mesh((parts,), ("mesh0",)), extents, (Cut("b", "balanced"),), where)
    work = [sum(sum(lengths[b] for b in grid.axes[0]) for grid in region.grids) for region in shards.regions]
    assert sum(work) == sum(lengths)
    assert max(work) <= sum(lengths) / parts + max(lengths)


# -- whole plans -----------------------------------------------------------------------------------------------------


def folded(where: Callable[[Any, Any], Tensor], n: int) -> Program:
    @tp.op
    def chosen(x: f32[Tensor, "q"], w: f32[Tensor, "k e"]) -> f32[Tensor, "q e"]:
        """Rows that a condition chooses, added up."""
        q, k, e = tp.indices("q k e")
        return tp.sum[k](x[q] * w[k, e], where=where(q, k))

    @tp.program
    def net(x: f32[Tensor, "q"], w: f32[Tensor, "k e"]) -> Tensor:
        return chosen(x, tp.shard(w, mesh0="k"))

    return net.bind(q=n, k=n, e=4)


def cut(program: Program, dim: str, kind: Any, ranks: int = 4) -> Plan:
    return plan(program, load_machine("cpu-4"), mesh=(ranks,), pins=[Pin("op", "chosen", (("mesh0", dim),), kind)])


def seen_by(mask: np.ndarray[Any, Any], made: Plan) -> list[np.ndarray[Any, Any]]:
    """Per rank the rows of the mask that it computes."""
    [task] = [task for task in made.document.tasks if type(task).__name__ == "Compute"]
    rows = [region.grids[0].axes[0] for region in made.resolved.regions(task.shards)]  # type: ignore[union-attr]
    return [mask[[*axis]] for axis in rows]


ROWS, COLUMNS = np.mgrid[:64, :64]
MASKS: dict[str, tuple[Callable[[Any, Any], Tensor], np.ndarray[Any, Any]]] = {
    "causal": (lambda q, k: k <= q, COLUMNS <= ROWS),
    "window": (lambda q, k: (k <= q) & (q - k < 9), (COLUMNS <= ROWS) & (ROWS - COLUMNS < 9)),
    "window and sinks": (
        lambda q, k: (k <= q) & ((q - k < 9) | (k < 3)), (COLUMNS <= ROWS) & ((ROWS - COLUMNS < 9) | (COLUMNS < 3))
    ),
    "blocks": (
        lambda q, k: tp.table([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 1]])[q // 16, k // 16] >= 1,
        np.array([[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [1, 0, 0, 1]])[ROWS // 16, COLUMNS // 16] == 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["block", "balanced"])
@pytest.mark.parametrize(("where", "mask"), MASKS.values(), ids=MASKS)
def test_a_shard_receives_the_rows_that_some_point_of_it_reads(
    where: Callable[[Any, Any], Tensor], mask: np.ndarray[Any, Any], kind: str
) -> None:
    made = cut(folded(where, 64), "q", kind)
    assert check(made.document).ok
    own = np.arange(64) // 16  # the rank that has a row of w
    expected = sum(int((part.any(0) & (own != rank)).sum()) for rank, part in enumerate(seen_by(mask, made))) * 4 * 4
    moved = [t for t in made.document.tasks if getattr(t, "tensor", "") == "w"]
    assert made.document.traffic.bytes_total - _others(made) == expected
    assert bool(moved) == bool(expected)
    rng = np.random.default_rng(0)
    given = {"x": rng.integers(-5, 5, 64).astype("f4"), "w": rng.integers(-5, 5, (64, 4)).astype("f4")}
    found = made.run(given).outputs["out"]
    assert np.array_equal(found, given["x"][:, np.newaxis] * (mask.astype("f4") @ given["w"]))


def _others(made: Plan) -> int:
    """Bytes that move of x, of which every rank is to have its own rows."""
    found = made.explain("chosen").rows[0].incoming
    return sum(item.bytes_moved for item in found if item.tensor != "w")


@pytest.mark.parametrize(("where", "mask"), MASKS.values(), ids=MASKS)
def test_explain_says_how_many_points_hold_and_how_evenly_they_lie(
    where: Callable[[Any, Any], Tensor], mask: np.ndarray[Any, Any]
) -> None:
    made = cut(folded(where, 64), "q", "balanced")
    held = made.explain("chosen").rows[0].held
    work = [int(part.sum()) for part in seen_by(mask, made)]
    assert held == Held(int(mask.sum()) * 4, 64 * 64 * 4, True, pytest.approx(max(work) * 4 / sum(work)))
    assert f"{mask.sum() * 4:,} of 16,384 points" in str(made.explain("chosen"))


def test_the_planner_finds_the_cut_of_equal_work() -> None:
    """Most rows are short, so that as many tokens for each rank, or pairs of chunks, are unequal work."""
    lengths = [1 << 16, *[1 << 12] * 255]

    @tp.op
    def chosen(x: f32[Tensor, "t"]) -> f32[Tensor, "t"]:
        """Sums over the rows that reach a token."""
        t, b = tp.indices("t", b=256)
        return tp.sum[b](tp.exp(x[t] * b), where=t < tp.table(lengths)[b])

    @tp.program
    def net(x: f32[Tensor, "t"]) -> Tensor:
        return chosen(x)

    made = plan(net.bind(t=1 << 16), load_machine("cpu-4"), mesh=(4,))
    row = made.explain("chosen").rows[0]
    assert row.strategy == "cut t balanced over mesh0"
    assert row.held is not None
    assert row.held.busiest < 1.01
    assert check(made.document).ok
    assert not made.document.traffic.bytes_total


SIDE = 160


@tp.op
def triangle_times(a: f32[Tensor, "n"], x: f32[Tensor, "s d"]) -> f32[Tensor, "t d"]:
    """A lower triangle, stored row behind row without what lies above it, times x."""
    t, s, d = tp.indices("t s d")
    starts = tp.table([k * (k + 1) // 2 for k in range(SIDE)])
    return tp.sum[s](a[starts[t] + s] * x[s, d], where=s <= t)


@tp.program
def packed(a: f32[Tensor, "n"], x: f32[Tensor, "s d"]) -> Tensor:
    return triangle_times(a, x)


def test_a_packed_triangle_lies_where_it_is_read_and_nothing_of_it_moves() -> None:
    program = packed.bind(n=SIDE * (SIDE + 1) // 2, s=SIDE, d=2)
    pin = Pin("op", "triangle_times", (("mesh0", "t"),), "balanced")
    made = plan(program, load_machine("cpu-4"), mesh=(4,), pins=[pin])
    assert check(made.document).ok
    row = made.explain("triangle_times").rows[0]
    assert [item.tensor for item in row.incoming] == ["x"]
    assert row.held is not None
    assert row.held.busiest <= 1 + 8 / SIDE  # an equal share and a row
    rng = np.random.default_rng(0)
    given = {t.name: rng.integers(-5, 5, t.shape).astype("f4") for t in program.of_role("input")}
    lower = np.zeros((SIDE, SIDE), "f4")
    lower[np.tril_indices(SIDE)] = given["a"]
    assert np.array_equal(made.run(given).outputs["out"], lower @ given["x"])


def test_a_cut_that_a_pin_asks_for_is_named() -> None:
    row = cut(folded(MASKS["causal"][0], 64), "q", "balanced").explain("chosen").rows[0]
    assert row.strategy == "cut q balanced over mesh0"
