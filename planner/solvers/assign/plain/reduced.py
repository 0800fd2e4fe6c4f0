"""The problem as the solvers see it: groups of nodes that move together, one matrix per pair, memory as load rows.

A `Reduced` is the problem after reduction. A group holds nodes whose strategies are functions of one label; labels are
numbered 0, 1, … per group. `Loads` is what its labels hold of every resource at every instant that can be violated at
all; the instants of all resources lie on one axis, so solvers see one limit per instant and no resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..problem import FORBIDDEN, AssignmentProblem, Ints

HALF = FORBIDDEN // 2


@dataclass(eq=False)
class Reduced:
    """`unary[g]` per label of group g, `edges[g, h]` (g < h) as [labels of g, labels of h].

    `group[v]` is the group of node v and `strategy[v][label]` its strategy under the group's label.
    """

    problem: AssignmentProblem
    group: Ints
    strategy: list[Ints]
    unary: list[Ints]
    edges: dict[tuple[int, int], Ints]

    @property
    def label_counts(self) -> Ints:
        return np.array([len(costs) for costs in self.unary], dtype=np.int64)

    @property
    def pair_entries(self) -> int:
        return sum(matrix.size for matrix in self.edges.values())

    def lift(self, labels: Ints) -> Ints:
        """The strategy of every node of the problem, from the label of every group."""
        return np.array([self.strategy[v][labels[g]] for v, g in enumerate(self.group)], dtype=np.int64)

    def lower(self, choice: Ints) -> Ints | None:
        """The labels that give this choice, or None where the reduction has ruled it out."""
        labels = np.full(len(self.unary), -1, dtype=np.int64)
        for v, g in enumerate(self.group):
            fits = self.strategy[v] == choice[v]
            if labels[g] < 0:
                self._first_fit(labels, g, choice)
            if not fits[labels[g]]:
                return None
        return labels

    def _first_fit(self, labels: Ints, g: int, choice: Ints) -> None:
        members = np.flatnonzero(self.group == g)
        fits = np.all([self.strategy[v] == choice[v] for v in members], axis=0)
        labels[g] = int(fits.argmax())

    def cost(self, labels: Ints) -> int:
        """Exact; at least `HALF` where something forbidden is chosen."""
        total = sum(int(costs[label]) for costs, label in zip(self.unary, labels, strict=True))
        return total + sum(int(matrix[labels[g], labels[h]]) for (g, h), matrix in self.edges.items())


class Loads(NamedTuple):
    """Row q: over the places [start, stop) of the axis of instants, group[q] holds values[first[q] + label].

    What every label holds anyway is already taken off the limits: `slack[place]` is what remains. Places are instants
    of one resource each: `resource[place]`, `instant[place]`. Rows are sorted by group: rows_of[g]:rows_of[g + 1].
    Compiled loops take it as it is.
    """

    group: Ints
    start: Ints
    stop: Ints
    first: Ints
    values: Ints
    rows_of: Ints
    slack: Ints
    resource: Ints
    instant: Ints

    def profile(self, labels: Ints) -> Ints:
        """What the labels hold above the minimum, at every place."""
        held = self.values[self.first + labels[self.group]] if len(self.group) else np.zeros(0, dtype=np.int64)
        change = np.zeros(len(self.slack) + 1, dtype=np.int64)
        np.add.at(change, self.start, held)
        np.add.at(change, self.stop, -held)
        return np.cumsum(change)[:-1]

    def excess(self, labels: Ints) -> Ints:
        """How far above its limit each place is; positive means violated."""
        return self.profile(labels) - self.slack

    def row(self, place: int, label_counts: Ints) -> dict[int, Ints]:
        """What each group's labels hold at one place: group -> amounts per label."""
        held: dict[int, Ints] = {}
        for q in np.flatnonzero((self.start <= place) & (place < self.stop)):
            g = int(self.group[q])
            amounts = self.values[self.first[q] : self.first[q] + label_counts[g]]
            held[g] = held[g] + amounts if g in held else amounts
        return held


def loads_of(model: Reduced) -> Loads:
    """The load rows of a model: constant parts folded into the limits, instants that cannot be violated dropped."""
    merged = _merged_rows(model)
    keys = np.array(list(merged), dtype=np.int64).reshape(-1, 4)  # group, resource, start, stop
    low = np.array([amounts.min() for amounts in merged.values()], dtype=np.int64)
    high = np.array([amounts.max() for amounts in merged.values()], dtype=np.int64)
    slacks, resources, instants = [], [], []
    spans = np.zeros((len(keys), 2), dtype=np.int64)
    offset = 0
    for r, limit in enumerate(model.problem.limits):
        mine = np.flatnonzero(keys[:, 1] == r)
        axis, slack, begin, end = _axis(keys[mine, 2], keys[mine, 3], low[mine], high[mine], int(limit))
        spans[mine] = np.stack([begin + offset, end + offset], axis=1)
        slacks.append(slack)
        instants.append(axis)
        resources.append(np.full(len(axis), r, dtype=np.int64))
        offset += len(axis)
    live = np.flatnonzero((spans[:, 0] < spans[:, 1]) & (high > low))
    live = live[np.argsort(keys[live, 0], kind="stable")]
    amounts = list(merged.values())
    values = [amounts[q] - low[q] for q in live]
    return Loads(
        group=keys[live, 0],
        start=spans[live, 0],
        stop=spans[live, 1],
        first=np.cumsum([0, *(len(vector) for vector in values)], dtype=np.int64)[:-1],
        values=_joined(values),
        rows_of=np.searchsorted(keys[live, 0], np.arange(len(model.unary) + 1)).astype(np.int64),
        slack=_joined(slacks),
        resource=_joined(resources),
        instant=_joined(instants),
    )


def _joined(vectors: list[Ints]) -> Ints:
    return np.concatenate(vectors) if vectors else np.zeros(0, dtype=np.int64)


def _merged_rows(model: Reduced) -> dict[tuple[int, int, int, int], Ints]:
    """(group, resource, start, stop) -> amounts per label, of every usage that lasts."""
    usages = model.problem.usages
    rows: dict[tuple[int, int, int, int], Ints] = {}
    columns = (usages.node.tolist(), usages.resource.tolist(), usages.start.tolist(), usages.stop.tolist())
    for q, (v, r, start, stop) in enumerate(zip(*columns, strict=True)):
        if start < stop:
            key = (int(model.group[v]), r, start, stop)
            amounts = usages.amounts[q][model.strategy[v]]
            rows[key] = rows[key] + amounts if key in rows else amounts
    return rows


def _axis(start: Ints, stop: Ints, low: Ints, high: Ints, limit: int) -> tuple[Ints, Ints, Ints, Ints]:
    """The instants of one resource that matter, their slack above the least load, and the places [begin, end) of rows.

    A load can only rise where a row starts, and an instant is implied by the next one where nothing stops between them.
    """
    instants = np.unique(start)
    begin, end = np.searchsorted(instants, start), np.searchsorted(instants, stop)
    slack = limit - _covered(begin, end, low, len(instants))
    possible = _covered(begin, end, high - low, len(instants)) > slack
    something_stops = np.zeros(len(instants) + 1, dtype=bool)
    something_stops[end] = True
    something_stops[len(instants)] = True
    kept = possible & something_stops[1:]
    place = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    return instants[kept], slack[kept], place[begin], place[end]


def _covered(begin: Ints, end: Ints, amounts: Ints, length: int) -> Ints:
    """At every place, the sum of the amounts whose [begin, end) holds it."""
    change = np.zeros(length + 1, dtype=np.int64)
    np.add.at(change, begin, amounts)
    np.add.at(change, end, -amounts)
    return np.cumsum(change)[:-1].astype(np.int64)
