"""Decisions moved together: one is changed, and those around it follow, by the model, before anything is simulated.

Where one decision is changed at a time, a search ends at plans that two changes at once would make shorter: a product
cut along its reduction pays only once its operands lie that way, and they pay only once it is cut. Pins do that by
hand: what is not pinned follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..sharding.model import Model, combine, maximal

STEPS = 60  # decisions that are looked at after one is changed


class Moved(NamedTuple):
    """A choice that follows from a change of one decision, with its objective by the model."""

    cost: int
    choice: dict[int, int]


class Blocks:
    """The model's objective, of choices that differ in a few decisions, without adding up all of it again."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.kinds = model.alike()
        self.members = [tuple(dict.fromkeys((k[0].home, *(node for node, _ in k[0].readers)))) for k in self.kinds]
        self.touching: dict[int, list[int]] = {node: [] for node in set(model.tied_to)}
        for kind, nodes in enumerate(self.members):
            for node in nodes:
                self.touching[node].append(kind)
        self._moves: dict[tuple[int, tuple[int, ...]], int] = {}

    def around(self, choice: Mapping[int, int]) -> list[Moved]:
        """What follows from every change of one decision that others follow, the cheapest by the model first."""
        found: dict[tuple[int, ...], Moved] = {}
        parts = self._parts(choice)
        for node in sorted(choice):
            for option in range(len(self.model.nodes[node].labels)):
                if option != choice[node]:
                    moved = self._following(choice, parts, node, option)
                    if sum(moved.choice[k] != choice[k] for k in choice) > 1:
                        found.setdefault(tuple(moved.choice[k] for k in sorted(choice)), moved)
        return sorted(found.values(), key=lambda moved: moved.cost)

    def _following(self, before: Mapping[int, int], parts: Mapping[str, int], node: int, option: int) -> Moved:
        choice = dict(before)
        parts = self._changed(choice, parts, node, option)
        cost, queue = combine(self.model.objective, parts), deque(self._beside(node))
        for _ in range(STEPS):
            if not queue:
                break
            other = queue.popleft()
            better = False
            for way in range(len(self.model.nodes[other].labels)) if other != node else ():
                was = choice[other]
                if way != was:
                    changed = self._changed(choice, parts, other, way)
                    if (price := combine(self.model.objective, changed)) < cost:
                        cost, parts, better = price, changed, True
                    else:
                        choice[other] = was
            queue += [each for each in self._beside(other) if each not in queue] if better else ()
        return Moved(cost, choice)

    def _beside(self, node: int) -> Iterator[int]:
        """The decisions that move the same tensors."""
        yield from dict.fromkeys(other for kind in self.touching[node] for other in self.members[kind] if other != node)

    def _parts(self, choice: Mapping[int, int]) -> dict[str, int]:
        found = {"compute": 0, "values": 0, "resident": 0}
        for node, option in choice.items():
            found["compute"] += self.model.weight[node] * self.model.work(node, option)
        for kind, flows in enumerate(self.kinds):
            found["resident" if flows[0].source else "values"] += self._moving(kind, choice)
        return found

    def _changed(self, choice: dict[int, int], parts: Mapping[str, int], node: int, option: int) -> dict[str, int]:
        """The parts of the objective with one decision changed; it is changed in the choice."""
        model, found = self.model, dict(parts)
        found["compute"] += model.weight[node] * (model.work(node, option) - model.work(node, choice[node]))
        before = {kind: self._moving(kind, choice) for kind in self.touching[node]}
        choice[node] = option
        for kind, price in before.items():
            found["resident" if self.kinds[kind][0].source else "values"] += self._moving(kind, choice) - price
        return found

    def _moving(self, kind: int, choice: Mapping[int, int]) -> int:
        key = kind, tuple(choice[node] for node in self.members[kind])
        if key not in self._moves:
            flows, model = self.kinds[kind], self.model
            have = model.home(flows[0], choice[flows[0].home])
            wanted = [model.need(reader, choice[reader[0]]) for reader in flows[0].readers]
            needs = maximal([need for need in wanted if not have.satisfies(need)])
            self._moves[key] = len(flows) * sum(model.price(have, need, flows[0].width) for need in needs)
        return self._moves[key]
