"""Decisions moved together: one is changed, and those around it follow, by the model, before anything is simulated.

Where one decision is changed at a time, a search ends at plans that two changes at once would make shorter: a product
cut along its reduction pays only once its operands lie that way, and they pay only once it is cut. Pins do that by
hand: what is not pinned follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..clock import Clock
from ..sharding.model import Costs, Model, combine
from ..sharding.nodes import OperationNode
from .near import cheapest

STEPS = 60  # decisions that are looked at after one is changed
CHANGES = 20_000  # prices of changed choices that are asked for in all: a fraction of a second


class Moved(NamedTuple):
    """A choice that follows from a change of one decision, with its objective by the model."""

    cost: int
    choice: dict[int, int]


class Blocks:
    """What follows from changes of single decisions, by what choices cost, or cost at least."""

    def __init__(self, model: Model, costs: Costs, clock: Clock) -> None:
        self.model, self.costs, self.clock = model, costs, clock

    def around(
        self, choice: Mapping[int, int], cost: Callable[[Mapping[int, int]], int], count: int, *, readers: bool = False
    ) -> list[dict[int, int]]:
        """What follows from every change of one decision that others follow: so many choices at most, the cheapest by
        the model first; fewer where the time is up. ``cost``: what one costs. ``readers``: and what follows where all
        that reads what the decision is about takes it as it then lies.
        """
        found: dict[tuple[int, ...], Moved] = {}
        parts = self.costs.parts(choice)
        left = CHANGES
        ways = (self._following, self._taken) if readers else (self._following,)
        for node, option in self._starts(choice, parts):
            for follow in ways:
                moved, asked = follow(choice, parts, node, option)
                if sum(moved.choice[k] != choice[k] for k in choice) > 1:
                    found.setdefault(tuple(moved.choice[k] for k in sorted(choice)), moved)
                left -= asked
            if left < 0 or self.clock.up:
                break
        return cheapest(found.values(), cost, count)

    def _starts(self, choice: Mapping[int, int], parts: Mapping[str, int]) -> list[tuple[int, int]]:
        """Single changes (decision, option), the cheapest first: not all may be followed. None where there is no time
        for all.
        """
        priced = []
        for node in sorted(choice):
            for option in range(len(self.model.nodes[node].labels)):
                if self.clock.up:
                    return []
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
        return self._settled(choice, parts, {node}, self.costs.beside(node), spreading=True)

    def _taken(self, before: Mapping[int, int], parts: Mapping[str, int], node: int, option: int) -> tuple[Moved, int]:
        """What follows from one change where all that reads it takes it as it lies, which one reader alone may not be
        worth: what the readers have to do with follows, but no other operation.
        """
        choice, asked = dict(before), 0
        parts, moved = self.costs.changed(choice, parts, node, option), {node}
        for reader, ways in self._as_it_lies(node, option):
            if choice[reader] not in ways:
                tried = [(self.costs.changed(dict(choice), parts, reader, way), way) for way in ways]
                _, best = min((combine(self.model.objective, price), way) for price, way in tried)
                parts = self.costs.changed(choice, parts, reader, best)
                asked += len(ways)
                moved.add(reader)
        if len(moved) == 1:
            return Moved(0, dict(before)), asked
        beside = dict.fromkeys(other for each in sorted(moved) for other in self.costs.beside(each))
        ends = [k for k in beside if k not in moved and not isinstance(self.model.nodes[k], OperationNode)]
        found, more = self._settled(choice, parts, moved, ends, spreading=False)
        return found, asked + more

    def _settled(
        self,
        choice: dict[int, int],
        parts: Mapping[str, int],
        fixed: set[int],
        first: Sequence[int],
        *,
        spreading: bool,
    ) -> tuple[Moved, int]:
        """Decisions taken anew, one after another, while that costs less; ``spreading``: those beside them, too."""
        cost, queue, asked = combine(self.model.objective, parts), deque(first), 0
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
            fresh = [each for each in self.costs.beside(other) if each not in fixed and each not in queue]
            queue += fresh if better and spreading else ()
        return Moved(cost, choice), asked

    def _as_it_lies(self, node: int, option: int) -> Iterator[tuple[int, list[int]]]:
        """What reads the tensors of a node, with its options that need no more of them than is there."""
        ways: dict[int, list[int]] = {}
        for flow in self.model.flows:
            if flow.home == node:
                home = self.model.home(flow, option)
                for reader, operand in flow.readers:
                    every = range(len(self.model.nodes[reader].labels))
                    fine = [k for k in every if home.satisfies(self.model.need((reader, operand), k))]
                    ways[reader] = [k for k in ways.get(reader, fine) if k in fine]
        yield from ((reader, fine) for reader, fine in ways.items() if fine and reader != node)
