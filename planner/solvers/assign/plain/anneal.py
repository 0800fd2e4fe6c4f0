"""Simulated annealing of single labels, for groups that have many neighbours.

Where many groups meet at random an induced tree has few of them, and moves of trees hardly move anything. One label
at a time does, because it is cheap: what every label of every group costs beside the labels of its neighbours is kept
up to date, so that a proposal reads two numbers, and only one that is taken touches its neighbours. No limit that is
kept is ever broken. (Kirkpatrick, Gelatt and Vecchi, Science 220, 1983.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...compiled import compiled
from ..problem import Ints
from .flat import Flat, Floats
from .moves import Scratch, broken, load_change, other_end, settle, uniform
from .reduced import Loads
from .search import Search
from .trws import excess

_STARTS = (0.3, 0.1, 1.0, 0.03)  # of the temperature, in shares of what a group's second label costs more
_COOLING = 20.0  # from first to last temperature
_SHORTEST = 2_000_000  # proposals of a run; twice as many once all starts have been tried
_LONGEST = 64  # times as many
_CHUNK = 500_000  # proposals between two looks at the clock, at one temperature
_FORBIDDEN = 2.0**40  # whole numbers of this size add up without rounding


@dataclass(eq=False)
class Annealing:
    """Runs from the best labels of a search. ``beside``: per label what it costs beside its group's neighbours."""

    search: Search
    matrix: Floats
    beside: Floats
    best: Ints
    runs: int = 0

    @staticmethod
    def begin(search: Search) -> Annealing:
        flat = search.flat
        matrix = np.where(np.isfinite(flat.matrix), flat.matrix, _FORBIDDEN)
        return Annealing(search, matrix, np.zeros(len(flat.unary)), np.zeros(len(flat.label_first) - 1, np.int64))

    def run(self) -> None:
        """One cooling down, from the best labels; what is better is offered."""
        search, incumbent = self.search, self.search.incumbent
        if incumbent.labels is None or not len(search.roots):
            return
        labels = incumbent.labels.copy()
        self.best[:] = labels
        over = excess(search.loads, labels)
        _fill(search.flat, self.matrix, labels, self.beside)
        lap, place = divmod(self.runs, len(_STARTS))
        self.runs += 1
        first = _STARTS[place] * _scale(search.flat, self.beside, search.roots)
        chunks = _SHORTEST // _CHUNK * min(2**lap, _LONGEST)
        now = least = 0.0
        for k in range(chunks):
            if incumbent.left <= 0.0:
                break
            heat = first * _COOLING ** (-k / max(1, chunks - 1))
            now, least = self._chunk(labels, over, heat, now, least)
        if least < 0.0:
            incumbent.offer(self.best)

    def _chunk(self, labels: Ints, over: Ints, heat: float, now: float, least: float) -> tuple[float, float]:
        s, pairs = self.search, (self.matrix, self.beside)
        found: tuple[float, float] = _anneal(
            s.flat, s.loads, s.scratch, *pairs, labels, over, s.roots, heat, now, least, self.best, s.state
        )
        return found


@compiled
def _fill(flat: Flat, matrix, labels, beside):  # type: ignore[no-untyped-def]
    """What every label costs beside the labels of its group's neighbours."""
    beside[:] = 0.0
    for e in range(len(flat.low)):
        g, h = flat.low[e], flat.high[e]
        rows = flat.label_first[g + 1] - flat.label_first[g]
        columns = flat.label_first[h + 1] - flat.label_first[h]
        for k in range(rows):
            beside[flat.label_first[g] + k] += matrix[flat.matrix_first[e] + k * columns + labels[h]]
        for k in range(columns):
            beside[flat.label_first[h] + k] += matrix[flat.matrix_first[e] + labels[g] * columns + k]


@compiled
def _scale(flat: Flat, beside, roots):  # type: ignore[no-untyped-def]
    """What the second label of a group costs more than its first, in the middle of all groups that have a choice."""
    gaps = np.zeros(len(roots))
    for i in range(len(roots)):
        least, second = np.inf, np.inf
        for k in range(flat.label_first[roots[i]], flat.label_first[roots[i] + 1]):
            cost = flat.unary[k] + beside[k]
            second = min(second, max(least, cost))
            least = min(least, cost)
        gaps[i] = second - least
    return np.median(gaps) + 1.0


@compiled
def _changed(flat: Flat, matrix, beside, g, old, new):  # type: ignore[no-untyped-def]
    """Brings what the neighbours of g have beside them up to date."""
    own = flat.label_first[g + 1] - flat.label_first[g]
    for j in range(flat.near_first[g], flat.near_first[g + 1]):
        e = flat.near_edge[j]
        h = other_end(flat, e, g)
        base, size = flat.label_first[h], flat.label_first[h + 1] - flat.label_first[h]
        step, across = (1, size) if flat.low[e] == g else (own, 1)
        a, b = flat.matrix_first[e] + new * across, flat.matrix_first[e] + old * across
        for k in range(size):
            beside[base + k] += matrix[a + k * step] - matrix[b + k * step]


@compiled
def _anneal(  # type: ignore[no-untyped-def]
    flat: Flat, loads: Loads, scratch: Scratch, matrix, beside, labels, over, roots, heat, now, least, best, state
):
    """Proposals at one temperature; what the labels cost more than at first, and the best of them."""
    for _ in range(_CHUNK):
        g = roots[int(uniform(state) * len(roots))]
        base = flat.label_first[g]
        old, new = labels[g], int(uniform(state) * (flat.label_first[g + 1] - base - 1))
        new += new >= old
        more = flat.unary[base + new] + beside[base + new] - flat.unary[base + old] - beside[base + old]
        if more > 0.0 and more > -heat * np.log(uniform(state) + 1e-300):
            continue
        scratch.tree[0], scratch.proposal[g] = g, new
        begin, end = load_change(loads, scratch, 1, labels)
        accepted = broken(scratch, over, begin, end) <= 0
        settle(scratch, 1, labels, over, begin, end, accepted)
        if accepted:
            _changed(flat, matrix, beside, g, old, new)
            now += more
            if now < least - 0.5:
                least = now
                best[:] = labels
    return now, least
