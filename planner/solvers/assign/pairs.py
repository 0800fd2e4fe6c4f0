"""A problem as pairs of nodes: every supply with each of its readers alone, and every edge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np
from numpy.typing import NDArray

from .factors import charging
from .messages import Layout
from .places import Places
from .problem import AssignmentProblem, Ints
from .supply import Supply


@dataclass(frozen=True, eq=False)
class Pair:
    """A source and a reader (`nodes`), and by strategy of each what it is to the pair (`faces`), below `sizes`.

    `group`: of the supply among those that have pairs; -1 for an edge. `serving`: by face of the reader the items that
    serve it. `barred` [source, reader]: faces that no strategy has at once, where both are one node.
    """

    nodes: tuple[int, int]
    faces: tuple[Ints, Ints]
    sizes: tuple[int, int]
    group: int
    serving: tuple[tuple[int, ...], ...] = ()
    barred: NDArray[np.bool_] | None = None


@dataclass(frozen=True, eq=False)
class Pairs:
    """All pairs of a problem: those of its supplies, one supply after another, then those of its edges.

    `supplies`: of every group the supply, `firsts`: a strategy of its source for every face. `edges`: those between
    different nodes.
    """

    problem: AssignmentProblem
    pairs: tuple[Pair, ...]
    supplies: tuple[int, ...]
    firsts: tuple[Ints, ...]
    edges: tuple[int, ...]

    @staticmethod
    def of(places: Places) -> Pairs:
        """Of the supplies that cost or hold something."""
        problem = places.problem
        supplies = tuple(k for k in charging(places) if problem.supplies[k].readers)
        edges = tuple(e for e, (u, v) in enumerate(problem.edges.tolist()) if u != v)
        pairs: list[Pair] = []
        firsts: list[Ints] = []
        for number, k in enumerate(supplies):
            forms = _forms(problem.supplies[k])
            pairs += _of_supply(problem.supplies[k], number, forms)
            firsts.append(np.unique(forms, return_index=True)[1])
        pairs += [_of_edge(problem, e) for e in edges]
        return Pairs(problem, tuple(pairs), supplies, tuple(firsts), edges)

    @property
    def layout(self) -> Layout:
        """Where everything of them is in flat arrays."""
        groups = [[p for p in self.pairs if p.group == g] for g in range(len(self.supplies))]
        items = [self.problem.supplies[k].item_count for k in self.supplies]
        near = self._near()
        served = [items for p in self.pairs for items in p.serving]
        return Layout(
            _starts(self.problem.strategy_counts.tolist()),
            _starts(map(len, near)),
            _ints(p for mine in near for p, _ in mine),
            _ints(side for mine in near for _, side in mine),
            _by_side(p.nodes for p in self.pairs),
            _by_side(p.sizes for p in self.pairs),
            _starts(len(face) for p in self.pairs for face in p.faces)[:-1].reshape(-1, 2),
            _joined(face for p in self.pairs for face in p.faces),
            _starts(size for p in self.pairs for size in p.sizes)[:-1].reshape(-1, 2),
            _starts(prod(p.sizes) for p in self.pairs),
            _ints(p.group for p in self.pairs),
            _starts(len(p.serving) for p in self.pairs),
            _starts(map(len, served)),
            _ints(item for each in served for item in each),
            _starts(p.sizes[0] * items[p.group] if p.group >= 0 else 0 for p in self.pairs),
            _starts(map(len, groups)),
            _ints(items),
            _starts(len(first) * count for first, count in zip(self.firsts, items, strict=True)),
        )

    def _near(self) -> list[list[tuple[int, int]]]:
        """By node its pairs with the side that it is; once where it is both."""
        near: list[list[tuple[int, int]]] = [[] for _ in range(self.problem.node_count)]
        for number, pair in enumerate(self.pairs):
            for side, v in enumerate(dict.fromkeys(pair.nodes)):
                near[v].append((number, side))
        return near


def _forms(supply: Supply) -> Ints:
    """Per strategy of the source a number, equal where costs, amounts and what it asks for itself are."""
    own = [asks[:, None] for v, asks in zip(supply.readers, supply.asks, strict=True) if v == supply.source]
    whole = np.concatenate([supply.costs, *(use.amounts for use in supply.uses), *own], axis=1)
    forms: Ints = np.unique(whole, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return forms


def _of_supply(supply: Supply, group: int, forms: Ints) -> Iterator[Pair]:
    """A reader may be served by what lies around what it asks for, if another one asks for that."""
    asked = [set(asks.tolist()) for asks in supply.asks]
    for j, (v, asks) in enumerate(zip(supply.readers, supply.asks, strict=True)):
        others = set().union(*asked[:j], *asked[j + 1 :])
        items, face = np.unique(asks, return_inverse=True)
        face = face.reshape(-1).astype(np.int64)
        serving = tuple(
            () if i < 0 else (i, *(k for k in np.flatnonzero(supply.within[i]).tolist() if k in others))
            for i in items.tolist()
        )
        sizes = int(forms.max()) + 1, len(items)
        barred = None
        if v == supply.source:
            barred = np.ones(sizes, dtype=bool)
            barred[forms, face] = False
        yield Pair((supply.source, v), (forms, face), sizes, group, serving, barred)


def _of_edge(problem: AssignmentProblem, e: int) -> Pair:
    u, v = problem.edges[e].tolist()
    sizes = int(problem.strategy_counts[u]), int(problem.strategy_counts[v])
    return Pair((u, v), (np.arange(sizes[0]), np.arange(sizes[1])), sizes, -1)


def _starts(lengths: Iterable[int]) -> Ints:
    """Where stretches of these lengths begin, and where the last ends."""
    return np.array([0, *accumulate(lengths)], dtype=np.int64)


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


def _by_side(values: Iterable[Sequence[int]]) -> Ints:
    """[pair, side]"""
    return np.array(list(values), dtype=np.int64).reshape(-1, 2)


def _joined(arrays: Iterable[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])
