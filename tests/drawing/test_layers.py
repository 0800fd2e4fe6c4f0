"""The layered layout: edges lead down, nodes of a row keep apart, nothing depends on anything but the graph."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tapestry.drawing.layers import GAP, Size, _separated, place

Graph = tuple[dict[str, Size], list[tuple[str, str]]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 12))
    sizes = {
        f"n{k}": Size(
            draw(st.integers(10, 90)), draw(st.integers(10, 40)), draw(st.sampled_from(("", "g"))), draw(st.booleans())
        )
        for k in range(count)
    }
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=24)) if pairs else []
    return sizes, [(f"n{a}", f"n{b}") for a, b in chosen]


@settings(deadline=None, max_examples=60)
@given(graphs())
def test_edges_lead_down_and_nodes_keep_apart(graph: Graph) -> None:
    sizes, edges = graph
    placed = place(sizes, edges)
    for source, target in edges:
        way = [placed.centres[source], *placed.bends[source, target], placed.centres[target]]
        assert all(upper[1] <= lower[1] for upper, lower in pairwise(way))
        assert placed.centres[source][1] < placed.centres[target][1]
    rows: dict[float, list[str]] = {}
    for name, (_, y) in placed.centres.items():
        rows.setdefault(y, []).append(name)
    for row in rows.values():
        for a, b in pairwise(sorted(row, key=lambda name: placed.centres[name][0])):
            distance = placed.centres[b][0] - placed.centres[a][0]
            assert distance >= (sizes[a].width + sizes[b].width) / 2 + GAP - 1e-6
    for name, (x, y) in placed.centres.items():
        assert x - sizes[name].width / 2 >= -1e-6
        assert x + sizes[name].width / 2 <= placed.width + 1e-6
        assert sizes[name].height / 2 - 1e-6 <= y <= placed.height - sizes[name].height / 2 + 1e-6


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 5), st.integers(0, 20)), min_size=1, max_size=6))
def test_positions_are_the_least_squares_ones(rows: list[tuple[int, int, int]]) -> None:
    """Against a general solver, which knows nothing of pooling."""
    wanted, weights, distances = (np.array(column, float) for column in zip(*rows, strict=True))
    found = np.array(_separated(list(wanted), list(weights), [0.0, *distances[1:]]))
    assert all(b - a >= d - 1e-9 for a, b, d in zip(found, found[1:], distances[1:], strict=False))

    def cost(x: np.ndarray) -> float:
        return float((weights * (x - wanted) ** 2).sum())

    bounds = [{"type": "ineq", "fun": lambda x, k=k: x[k + 1] - x[k] - distances[k + 1]} for k in range(len(rows) - 1)]
    best = minimize(
        cost, np.cumsum([wanted[0], *distances[1:]]), constraints=bounds, method="SLSQP", options={"ftol": 1e-10}
    )
    assert cost(found) <= best.fun + 1e-4 * (1 + abs(best.fun))


def test_two_crossing_edges_are_uncrossed() -> None:
    sizes = {name: Size(40, 20) for name in "abcd"}
    placed = place(sizes, [("a", "d"), ("b", "c")])
    order = [placed.centres["a"][0] < placed.centres["b"][0], placed.centres["d"][0] < placed.centres["c"][0]]
    assert order[0] == order[1]
