"""A layered layout of a directed graph: layers from the top, few crossings, straight edges.

After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", IEEE SMC 11
(1981): longest-path layers, places kept for edges that pass through a layer, order by barycentres, then for every layer
the least-squares positions that keep order and distance (isotonic regression by pooling neighbours).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Edge = tuple[str, str]
SWEEPS = 12
GAP, ROW_GAP, BEND = 22.0, 34.0, 14.0
PASSING = 0.15  # how much a passing edge pulls, of what a node does


@dataclass(frozen=True)
class Size:
    """Of a node; nodes of one ``group`` stay side by side. ``late``: drawn right above what it leads to."""

    width: float
    height: float
    group: str = ""
    late: bool = False


@dataclass(frozen=True)
class Placed:
    """Centres of nodes, the points that every edge passes on its way, and the size of it all."""

    centres: Mapping[str, tuple[float, float]]
    bends: Mapping[Edge, Sequence[tuple[float, float]]]
    width: float
    height: float


@dataclass
class _Graph:
    """Nodes and the places of passing edges in layers, joined to their neighbours above and below."""

    sizes: dict[str, Size]
    layer: dict[str, int]
    chains: dict[Edge, list[str]]
    above: dict[str, list[str]] = field(default_factory=dict)
    below: dict[str, list[str]] = field(default_factory=dict)

    def passes(self, name: str) -> bool:
        """A place on the way of an edge, not a node."""
        return name.startswith("\0")


def place(sizes: Mapping[str, Size], edges: Sequence[Edge]) -> Placed:
    """Lay out an acyclic graph, nodes given in an order in which every edge leads forward."""
    graph = _chained(dict(sizes), edges, _layers(sizes, edges))
    rows = _ordered(graph)
    xs = _straightened(graph, rows, _columns(graph, rows))
    heights = [max((graph.sizes[name].height for name in row), default=0.0) for row in rows]
    tops = [sum(heights[:k]) + ROW_GAP * k for k in range(len(rows))]
    left = min((x - graph.sizes[name].width / 2 for name, x in xs.items()), default=0.0)
    centres = {name: (x - left, tops[graph.layer[name]] + heights[graph.layer[name]] / 2) for name, x in xs.items()}
    width = max((centres[name][0] + size.width / 2 for name, size in graph.sizes.items()), default=0.0)
    bends = {
        edge: [point for name in chain for point in _through(centres[name], heights[graph.layer[name]])]
        for edge, chain in graph.chains.items()
    }
    return Placed({name: centres[name] for name in sizes}, bends, width, sum(heights) + ROW_GAP * (len(rows) - 1))


def _through(centre: tuple[float, float], height: float) -> list[tuple[float, float]]:
    """An edge passes a row straight down, clear of the corners of its neighbours."""
    x, y = centre
    return [(x, y - height / 2), (x, y + height / 2)]


def _layers(sizes: Mapping[str, Size], edges: Sequence[Edge]) -> dict[str, int]:
    """Longest path from the top; late nodes as low as they may be."""
    layer = dict.fromkeys(sizes, 0)
    outgoing: dict[str, list[str]] = {name: [] for name in sizes}
    for source, target in edges:
        outgoing[source].append(target)
    for name in sizes:
        for target in outgoing[name]:
            layer[target] = max(layer[target], layer[name] + 1)
    for name in reversed(list(sizes)):
        if sizes[name].late and outgoing[name]:
            layer[name] = max(layer[name], min(layer[target] for target in outgoing[name]) - 1)
    return layer


def _chained(sizes: dict[str, Size], edges: Sequence[Edge], layer: dict[str, int]) -> _Graph:
    graph = _Graph(sizes, layer, {})
    for source, target in edges:
        chain = [f"\0{source}\0{target}\0{k}" for k in range(layer[source] + 1, layer[target])]
        for k, name in enumerate(chain, layer[source] + 1):
            graph.sizes[name], graph.layer[name] = Size(BEND, 0, graph.sizes[source].group), k
        graph.chains[source, target] = chain
        for upper, lower in zip([source, *chain], [*chain, target], strict=True):
            graph.below.setdefault(upper, []).append(lower)
            graph.above.setdefault(lower, []).append(upper)
    return graph


def _ordered(graph: _Graph) -> list[list[str]]:
    """Rows in the best order that the sweeps came by."""
    rows: list[list[str]] = [[] for _ in range(max(graph.layer.values(), default=-1) + 1)]
    for name, layer in graph.layer.items():
        rows[layer].append(name)
    best, fewest = [list(row) for row in rows], _crossings(graph, rows)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            _sort(row, graph.above if down else graph.below, _places(rows), graph.sizes)
        found = _crossings(graph, rows)
        if found < fewest:
            best, fewest = [list(row) for row in rows], found
    return best


def _places(rows: Sequence[Sequence[str]]) -> dict[str, float]:
    return {name: (k + 0.5) / len(row) for row in rows for k, name in enumerate(row)}


def _sort(
    row: list[str], neighbours: Mapping[str, list[str]], place: Mapping[str, float], sizes: Mapping[str, Size]
) -> None:
    """By the mean place of the neighbours; groups by the mean of their members."""
    means = {name: _mean([place[n] for n in neighbours.get(name, [])] or [place[name]]) for name in row}
    members: dict[str, list[float]] = {}
    for name in row:
        members.setdefault(sizes[name].group or name, []).append(means[name])
    middle = {group: _mean(values) for group, values in members.items()}
    row.sort(key=lambda name: (middle[sizes[name].group or name], sizes[name].group, means[name]))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _crossings(graph: _Graph, rows: Sequence[Sequence[str]]) -> int:
    """Pairs of edges between neighbouring rows that cross."""
    total = 0
    for upper, lower in pairwise(rows):
        place = {name: k for k, name in enumerate(lower)}
        ends: list[int] = []
        for name in upper:
            targets = sorted(place[target] for target in graph.below.get(name, []))
            total += sum(end > target for target in targets for end in ends)
            ends += targets
    return total


def _columns(graph: _Graph, rows: Sequence[Sequence[str]]) -> dict[str, float]:
    """Centres: each row in turn moves to the means of its neighbours as far as order and distance allow."""
    xs: dict[str, float] = {}
    for row in rows:
        xs |= zip(row, _separated([0.0] * len(row), [1.0] * len(row), _distances(graph, row)), strict=True)
    for sweep in range(3 * SWEEPS):
        sides = [graph.above, graph.below] if sweep >= SWEEPS else [graph.above if sweep % 2 == 0 else graph.below]
        for row in rows if sweep % 2 == 0 else reversed(rows):
            near = {name: [n for side in sides for n in side.get(name, [])] for name in row}
            wanted = [_pull(graph, near[name], xs, xs[name]) for name in row]
            weights = [PASSING if graph.passes(name) else len(near[name]) + 0.1 for name in row]
            xs |= zip(row, _separated(wanted, weights, _distances(graph, row)), strict=True)
    return xs


def _pull(graph: _Graph, near: Sequence[str], xs: Mapping[str, float], here: float) -> float:
    """The mean of the neighbours, where passing edges count for less than nodes."""
    weights = [PASSING if graph.passes(name) else 1.0 for name in near]
    return sum(w * xs[name] for w, name in zip(weights, near, strict=True)) / sum(weights) if near else here


def _straightened(graph: _Graph, rows: Sequence[Sequence[str]], xs: dict[str, float]) -> dict[str, float]:
    """Passing edges moved where their rows have room, so that each runs straight for as many rows as it can."""
    beside = {
        name: (before, after)
        for row in rows
        for before, name, after in zip(["", *row], row, [*row[1:], ""], strict=False)
    }
    for chain in graph.chains.values():
        stretch: list[str] = []
        low, high = float("-inf"), float("inf")
        for name in chain:
            left, right = _room(graph, name, beside[name], xs)
            if max(low, left) > min(high, right):
                xs |= dict.fromkeys(stretch, _clamped(_mean([xs[n] for n in stretch]), low, high))
                stretch, low, high = [], float("-inf"), float("inf")
            stretch, low, high = [*stretch, name], max(low, left), min(high, right)
        if stretch:
            xs |= dict.fromkeys(stretch, _clamped(_mean([xs[n] for n in stretch]), low, high))
    return xs


def _room(graph: _Graph, name: str, beside: tuple[str, str], xs: Mapping[str, float]) -> tuple[float, float]:
    """How far left and right a node may go before it comes too close to its neighbours in the row."""
    before, after = beside
    own = graph.sizes[name].width / 2 + GAP
    left = xs[before] + graph.sizes[before].width / 2 + own if before else float("-inf")
    right = xs[after] - graph.sizes[after].width / 2 - own if after else float("inf")
    return left, max(left, right)


def _clamped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _distances(graph: _Graph, row: Sequence[str]) -> list[float]:
    """Least distance of each centre from the one before."""
    widths = [graph.sizes[name].width for name in row]
    return [0.0, *((a + b) / 2 + GAP for a, b in pairwise(widths))]


def _separated(wanted: Sequence[float], weights: Sequence[float], distances: Sequence[float]) -> list[float]:
    """The positions nearest to the wanted ones (weighted squares) whose steps are at least the distances.

    >>> _separated([0, 0], [1, 1], [0, 10])
    [-5.0, 5.0]
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    offset, offsets = 0.0, []
    for want, weight, distance in zip(wanted, weights, distances, strict=True):
        offset += distance
        offsets.append(offset)
        pool = (want - offset, weight, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, heavy, count = pools.pop()
            total = heavy + pool[1]
            pool = ((mean * heavy + pool[0] * pool[1]) / total, total, count + pool[2])
        pools.append(pool)
    levels = [mean for mean, _, count in pools for _ in range(count)]
    return [level + shift for level, shift in zip(levels, offsets, strict=True)]
