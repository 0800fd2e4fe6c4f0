"""A problem as pairs of nodes: every supply with each of its readers alone, and every edge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from .factors import charging, forms_of
from .places import Places
from .problem import AssignmentProblem, Ints
from .supply import Supply

Floats = NDArray[np.float64]

# Entries of a table by call: where calls that go along whole rows would see no more, one goes through all runs of rows.
# It takes 2 ns an entry; they take a microsecond or two each, and 0.5 ns an entry.
SHORT = 1200


@dataclass(frozen=True, eq=False)
class Faces:
    """What every strategy of a node is to a pair (`of`), numbers from 0 on."""

    of: Ints

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints | None]:
        """The strategies face by face, and where each face begins; None where it is one strategy each."""
        order = np.argsort(self.of, kind="stable")
        starts = np.flatnonzero(np.diff(self.of[order], prepend=-1))
        return order, starts if len(starts) < len(order) else None

    def least(self, values: Floats) -> Floats:
        """By face the least of the strategies that are that."""
        order, starts = self._sorted
        found: Floats = values.take(order)
        return found if starts is None else np.minimum.reduceat(found, starts)


@dataclass(frozen=True, eq=False)
class Some:
    """To each of the rows `of` some others, those that have most of them first: `layers[k]` has the k-th of each that
    has as many, so that all rows are gone through at once. `others` has those of one row after another, which begin at
    `starts`.
    """

    of: Ints
    layers: tuple[Ints, ...]
    others: Ints
    starts: Ints

    @staticmethod
    def by_first(pairs: Iterable[tuple[int, int]]) -> Some:
        """From (row, other)."""
        found: dict[int, list[int]] = {}
        for row, other in pairs:
            found.setdefault(row, []).append(other)
        of = sorted(found, key=lambda row: -len(found[row]))
        most = [found[row] for row in of]
        layers = ([mine[k] for mine in most if len(mine) > k] for k in range(len(most[0]) if most else 0))
        starts = [0, *accumulate(map(len, most))][: len(most)]
        others = [other for mine in most for other in mine]
        return Some(_ints(of), tuple(map(_ints, layers)), _ints(others), _ints(starts))

    def least(self, values: Floats) -> Floats:
        """The least of the others of each row; `values` [other, ...]."""
        return self._joined(np.minimum, values)

    def most(self, values: Floats) -> Floats:
        return self._joined(np.maximum, values)

    def _joined(self, join: np.ufunc, values: Floats) -> Floats:
        if len(self.others) * values.shape[1] <= SHORT * len(self.layers):
            at_once: Floats = join.reduceat(values.take(self.others, 0), self.starts)
            return at_once
        found: Floats = values.take(self.layers[0], 0)
        for layer in self.layers[1:]:
            some = found[: len(layer)]
            join(some, values.take(layer, 0), out=some)
        return found


def _ints(numbers: Sequence[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Group:
    """A source in a pair with each of its `readers`; an edge is a group of one pair.

    Its table is [row, face of the source], where the faces of all readers follow one another in rows: those of pair j
    begin at `starts[j]`. `pair`: by row. `barred`: entries of faces that no strategy has at once, where both are one
    node. `number`: of the supply, with so many `items`, or of the edge (`shared`: which of the two). `first`: of every
    face of the source a strategy. `serving`: by row the shares, numbered [pair, item], of the items that serve it;
    `served`: by share the rows.
    """

    source: int
    readers: tuple[int, ...]
    ends: Faces
    faces: tuple[Faces, ...]
    number: int
    shared: bool
    items: int
    first: Ints
    starts: Ints
    pair: Ints
    barred: NDArray[np.bool_] | None
    serving: Some
    served: Some

    @cached_property
    def rows(self) -> list[slice]:
        """Of every pair."""
        return [slice(a, b) for a, b in zip(self.starts.tolist(), [*self.starts.tolist()[1:], None], strict=True)]

    @property
    def width(self) -> int:
        """Faces of the source."""
        return len(self.first)

    def least(self, table: Floats) -> Floats:
        """[pair, face of the source] the least of its rows in a table."""
        if table.size <= SHORT * len(self.starts):
            found: Floats = np.minimum.reduceat(table, self.starts)
            return found
        return np.array([np.minimum.reduce(table[rows], 0) for rows in self.rows])


def groups_of(places: Places) -> list[Group]:
    """Those of the supplies that cost or hold something, then those of the edges between different nodes."""
    problem = places.problem
    found = [_of_supply(problem, k) for k in charging(places) if problem.supplies[k].readers]
    return found + [_of_edge(problem, e) for e, (u, v) in enumerate(problem.edges.tolist()) if u != v]


def _of_supply(problem: AssignmentProblem, k: int) -> Group:
    supply = problem.supplies[k]
    own = [asks for v, asks in zip(supply.readers, supply.asks, strict=True) if v == supply.source]
    forms = np.array(forms_of(supply, own), dtype=np.int64)
    asked = [np.unique(asks, return_inverse=True) for asks in supply.asks]
    faces = tuple(Faces(face.reshape(-1).astype(np.int64)) for _, face in asked)
    starts, pair = _rows(len(items) for items, _ in asked)
    first = np.unique(forms, return_index=True)[1]
    serving = list(_serving(supply, [items.tolist() for items, _ in asked]))
    barred = None
    if supply.source in supply.readers:
        barred = np.zeros((len(pair), len(first)), dtype=bool)
        for reader, face, start in zip(supply.readers, faces, starts.tolist(), strict=True):
            if reader == supply.source:
                barred[start : start + int(face.of.max()) + 1] = True
                barred[start + face.of, forms] = False
    return Group(
        supply.source, supply.readers, Faces(forms), faces, k, True, supply.item_count, first, starts, pair, barred,
        Some.by_first(serving), Some.by_first((share, row) for row, share in serving),
    )  # fmt: skip


def _serving(supply: Supply, asked: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """(row, share): a reader may be served by what lies around what it asks for, if another one asks for that."""
    row = 0
    for j, mine in enumerate(asked):
        others = set().union(*asked[:j], *asked[j + 1 :])
        for item in mine:
            around = [k for k in np.flatnonzero(supply.within[item]).tolist() if k in others] if item >= 0 else []
            yield from ((row, j * supply.item_count + k) for k in ([item] if item >= 0 else []) + around)
            row += 1


def _of_edge(problem: AssignmentProblem, e: int) -> Group:
    u, v = problem.edges[e].tolist()
    mine, theirs = (np.arange(int(problem.strategy_counts[node])) for node in (u, v))
    starts, pair = _rows([len(theirs)])
    none = Some.by_first(())
    return Group(u, (v,), Faces(mine), (Faces(theirs),), e, False, 0, mine, starts, pair, None, none, none)


def _rows(lengths: Iterable[int]) -> tuple[Ints, Ints]:
    """Where the rows of every pair begin, and of every row its pair."""
    counts = list(lengths)
    starts = np.array([0, *accumulate(counts[:-1])], dtype=np.int64)
    return starts, np.repeat(np.arange(len(counts)), counts)
