"""Wide moves: all groups but a few are re-decided at once, exactly, where few of them meet.

A tree leaves out a group on every cycle, and what surrounds it stays as it is with it. Here a few groups keep their
labels, at random of those that meet where elimination would take too large an array, and all others are eliminated
(cutset conditioning: Dechter, Artificial Intelligence 41, 1990). Limits are prices, as in `search.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..eliminate import Elimination, order_of_most
from ..problem import FORBIDDEN, Ints
from .flat import Floats
from .moves import uniform
from .search import Search, drift
from .trws import excess, price

_MOST_ENTRIES = 200_000  # in the largest array
_MOST_KEPT = 0.25  # of the groups with a choice that may have to keep theirs: beyond that trees have as many
_ROUNDS = 6  # of a run
_RISE, _FALL = 1.1, 0.06  # of prices from round to round, larger than where a round takes a hundredth of the time


@dataclass(eq=False)
class WideMoves:
    """Runs from the best labels of a search, and from where the run before has ended, in turn."""

    search: Search
    multipliers: Floats
    sizes: dict[int, int]  # of the groups that have a choice
    last: Ints
    runs: int = 0

    @staticmethod
    def begin(search: Search, multipliers: Floats) -> WideMoves | None:
        """None where too many groups would have to keep their labels."""
        counts = search.incumbent.model.label_counts
        sizes = {g: int(counts[g]) for g in search.roots.tolist()}
        moves = WideMoves(search, multipliers.copy(), sizes, search.decoded.copy())
        return moves if len(sizes) - len(moves.open()) <= _MOST_KEPT * len(sizes) else None

    def open(self) -> list[int]:
        """Groups to decide anew, in the order in which to eliminate them."""
        pairs = [pair for pair in self.search.incumbent.model.edges if pair[0] in self.sizes and pair[1] in self.sizes]
        return order_of_most(self.sizes, pairs, _MOST_ENTRIES, lambda n: int(uniform(self.search.state) * n))

    def run(self) -> None:
        """Rounds at the border of the feasible, with the prices of the run before."""
        search, incumbent = self.search, self.search.incumbent
        if incumbent.labels is None:
            return
        labels = self.last if self.runs % 2 else incumbent.labels.copy()
        self.runs += 1
        for _ in range(_ROUNDS):
            if incumbent.left <= 0.0:
                break
            self.decide(labels, price(search.flat, search.loads, self.multipliers))
            over = excess(search.loads, labels)
            if not (over > 0).any():
                incumbent.offer(labels)
            elif incumbent.tally.cost(labels) < incumbent.cost:
                search.settle(labels.copy(), self.multipliers.copy())
            self.multipliers *= drift(over, search.loads.slack, _RISE, _FALL)
        self.last = labels

    def decide(self, labels: Ints, priced: Floats) -> None:
        """Changes the labels of all open groups to those that cost least together, at these costs of labels."""
        flat, order = self.search.flat, self.open()
        scopes: list[tuple[int, ...]] = [(g,) for g in order]
        factors = [_whole(priced[flat.label_first[g] : flat.label_first[g + 1]]) for g in order]
        opened = set(order)
        for (g, h), matrix in self.search.incumbent.model.edges.items():
            if g in opened or h in opened:
                scopes.append(tuple(v for v in (g, h) if v in opened))
                rows = slice(None) if g in opened else labels[g]
                factors.append(matrix[rows, slice(None) if h in opened else labels[h]])
        sizes = {g: self.sizes[g] for g in order}
        _, values, _ = Elimination(sizes, scopes, order=order).least(factors)
        labels[order] = [values[g] for g in order]


def _whole(costs: Floats) -> Ints:
    """Rounded; what would be more than forbidden is forbidden."""
    return np.rint(np.minimum(costs, float(FORBIDDEN))).astype(np.int64)
