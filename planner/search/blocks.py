"""Decisions moved together: one is changed, and those around it follow, by the model, before anything is simulated.

Where one decision is changed at a time, a search ends at plans that two changes at once would make shorter: a product
cut along its reduction pays only once its operands lie that way, and they pay only once it is cut. Pins do that by
hand: what is not pinned follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from ..sharding.model import Costs, Model, combine

STEPS = 60  # decisions that are looked at after one is changed
CHANGES = 20_000  # prices of changed choices that are asked for in all: a fraction of a second


class Moved(NamedTuple):
    """A choice that follows from a change of one decision, with its objective by the model."""

    cost: int
    choice: dict[int, int]


class Blocks:
    """What follows from changes of single decisions."""

    def __init__(self, model: Model, costs: Costs) -> None:
        self.model, self.costs = model, costs

    def around(self, choice: Mapping[int, int]) -> list[Moved]:
        """What follows from every change of one decision that others follow, the cheapest by the model first."""
        found: dict[tuple[int, ...], Moved] = {}
        parts = self.costs.parts(choice)
        left = CHANGES
        for node, option in self._starts(choice, parts):
            moved, asked = self._following(choice, parts, node, option)
            if sum(moved.choice[k] != choice[k] for k in choice) > 1:
                found.setdefault(tuple(moved.choice[k] for k in sorted(choice)), moved)
            left -= asked
            if left < 0:
                break
        return sorted(found.values(), key=lambda moved: moved.cost)

    def _starts(self, choice: Mapping[int, int], parts: Mapping[str, int]) -> list[tuple[int, int]]:
        """Single changes (decision, option), the cheapest first: not all may be followed."""
        priced = []
        for node in sorted(choice):
            for option in range(len(self.model.nodes[node].labels)):
                if option != choice[node]:
                    changed = self.costs.changed(dict(choice), parts, node, option)
                    priced.append((combine(self.model.objective, changed), node, option))
        return [(node, option) for _, node, option in sorted(priced)]

    def _following(
        self, before: Mapping[int, int], parts: Mapping[str, int], node: int, option: int
    ) -> tuple[Moved, int]:
        """What follows from one change, and how many prices that took."""
        choice = dict(before)
        parts = self.costs.changed(choice, parts, node, option)
        cost, queue, asked = combine(self.model.objective, parts), deque(self.costs.beside(node)), 0
        for _ in range(STEPS):
            if not queue:
                break
            other, better = queue.popleft(), False
            asked += len(self.model.nodes[other].labels)
            for way in range(len(self.model.nodes[other].labels)):
                was = choice[other]
                changed = self.costs.changed(choice, parts, other, way)
                if (price := combine(self.model.objective, changed)) < cost:
                    cost, parts, better = price, changed, True
                else:
                    choice[other] = was
            fresh = [each for each in self.costs.beside(other) if each != node and each not in queue]
            queue += fresh if better else ()
        return Moved(cost, choice), asked
