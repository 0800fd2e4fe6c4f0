"""Exact solution by eliminating one node after another; certified bounds where memory or overlap keeps it from exact.

A program's graph is nearly a chain, so the cost of everything behind a few nodes fits in one array over their options
(bucket elimination: Dechter, Artificial Intelligence 113, 1999). What is eliminated is linear: for weights m in [0, 1]
and a price p of resident bytes,

    1024 (m (A + B) + (1 - m) (B + C)) + A + B + C + p (resident bytes - capacity)

is below the objective of every choice that fits (see `planner.model`), so its least value is a bound, and the choices
that attain it are good ones. With m = 1 and p = 0 the bound is often attained: then nothing is left to solve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layouts import Spread
from .model import TIE, Flow, Model, evaluate, maximal, memory_at, satisfied

Costs = NDArray[np.float64]
# The largest array that elimination may build, and the most combinations of layouts priced one by one.
MOST_ENTRIES = 12_000_000
MOST_COMBINATIONS = 120_000


class TooWide(Exception):
    """The graph is too dense to eliminate; the solver goes on alone."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A cost for every combination of options of a few nodes: one array axis a node.

    ``part`` is compute, values, resident, or link (0 where two nodes agree, else infinite).
    """

    nodes: tuple[int, ...]
    costs: Costs
    part: str


@dataclass(frozen=True)
class Answer:
    """A choice that fits, if one was found, its objective, and a bound on that of every choice.

    ``unbounded`` is the best choice were there memory without end.
    """

    choice: dict[int, int] | None
    objective: int
    bound: int
    unbounded: dict[int, int]


class Elimination:
    """The factors of a model, and its solution under any weights."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.sizes = {node: len(model.nodes[node].labels) for node in sorted(set(model.tied_to))}
        self.decided = list(self.sizes)
        self.factors = self._unary()
        for flows in model.alike():
            self.factors += self._of_flow(flows[0], len(flows))
        self.resident = {node: self._resident(node) for node in self.decided if self._keeps(node)}
        self.order = self._order()

    def _unary(self) -> list[Factor]:
        model = self.model
        return [
            Factor((n,), np.array([float(model.weight[n] * model.work(n, k)) for k in range(size)]), "compute")
            for n, size in self.sizes.items()
            if model.nodes[n].kind == "op"
        ]

    def _keeps(self, node: int) -> bool:
        return (
            self.model.nodes[node].tensor.role in ("param", "state", "const")
            and self.model.nodes[node].kind == "source"
        )

    def _resident(self, node: int) -> Costs:
        """Bytes that each option of a resident tensor (and its tied copies) takes before, during and after the run."""
        model, itemsize = self.model, self.model.nodes[node].tensor.itemsize
        homes = [home for home in model.nodes[node].homes if home is not None]
        return np.array([float(model.weight[node] * model.stored(home, itemsize)) for home in homes])

    def _of_flow(self, flow: Flow, copies: int) -> list[Factor]:
        """The price of a flow by what its nodes mean for it, and the links from the nodes' options to those meanings.

        A node with many options has few meanings for one tensor; where several nodes read it, a node of its own stands
        for the meaning, so that arrays grow with meanings and not with options.
        """
        nodes = tuple(dict.fromkeys((flow.home, *(reader for reader, _ in flow.readers))))
        faces = [self._faces(flow, node) for node in nodes]
        distinct = [list(dict.fromkeys(face)) for face in faces]
        shape = tuple(map(len, distinct))
        if np.prod(shape, dtype=float) > MOST_COMBINATIONS:
            raise TooWide
        costs = np.empty(shape)
        prices: dict[tuple[Spread, frozenset[Spread]], int] = {}
        for index in np.ndindex(*shape):
            costs[index] = copies * self._price(flow, [d[k] for d, k in zip(distinct, index, strict=True)], prices)
        places, links = list(nodes), []
        for axis, (node, face, values) in enumerate(zip(nodes, faces, distinct, strict=True)):
            meaning = [values.index(value) for value in face]
            if len(nodes) > 2 and len(values) < len(face):
                places[axis] = self._stand_in(len(values))
                link = np.full((len(face), len(values)), np.inf)
                link[np.arange(len(face)), meaning] = 0.0
                links.append(Factor((node, places[axis]), link, "link"))
            else:
                costs = np.take(costs, meaning, axis=axis)
        return [Factor(tuple(places), costs, "resident" if flow.source else "values"), *links]

    def _stand_in(self, size: int) -> int:
        """A new node, numbered below zero, for what an option means to one tensor."""
        number = -1 - sum(node < 0 for node in self.sizes)
        self.sizes[number] = size
        return number

    def _faces(self, flow: Flow, node: int) -> list[tuple[Spread | None, ...]]:
        """What each option of a node means for a flow: the home layout if it has it, and the layouts it needs."""
        found = []
        for option in range(self.sizes[node]):
            home = self.model.home(flow, option) if node == flow.home else None
            found.append((home, *(self.model.need(r, option) for r in flow.readers if r[0] == node)))
        return found

    def _price(
        self, flow: Flow, faces: Sequence[tuple[Spread | None, ...]], known: dict[tuple[Spread, frozenset[Spread]], int]
    ) -> int:
        have = faces[0][0]
        assert have is not None
        needs = frozenset(need for face in faces for need in face[1:] if need is not None and not satisfied(have, need))
        if (have, needs) not in known:
            moved = maximal(list(needs))
            known[have, needs] = sum(self.model.price(have, need, flow.itemsize) for need in moved)
        return known[have, needs]

    def _order(self) -> list[int]:
        """Nodes by least work first. Raises TooWide."""
        near: dict[int, set[int]] = {node: set() for node in self.sizes}
        for factor in self.factors:
            for node in factor.nodes:
                near[node] |= set(factor.nodes) - {node}
        order = []
        while near:
            work = {
                n: self.sizes[n] * float(np.prod([self.sizes[m] for m in others], dtype=float))
                for n, others in near.items()
            }
            node = min(work, key=lambda n: (work[n], n))
            if work[node] > MOST_ENTRIES:
                raise TooWide
            others = near.pop(node)
            for other in others:
                near[other] = (near[other] | others) - {other, node}
            order.append(node)
        return order

    def minimise(self, mix: float, price: float, exposed: int = 2) -> tuple[dict[int, int], float]:
        """The choice of least weighted cost, and that cost: memory's price included, not the capacity's share.

        exposed: in halves, how much of the values' transfers adds to compute.
        """
        values = TIE * (mix * exposed / 2 + 1.0 - mix) + 1.0
        weights = {"compute": TIE * mix + 1.0, "values": values, "resident": TIE * (1.0 - mix) + 1.0, "link": 1.0}
        if self.model.objective == "bytes":
            weights = dict.fromkeys(weights, 1.0)
        tables = [(f.nodes, f.costs * weights[f.part]) for f in self.factors]
        tables += [((node,), costs * price) for node, costs in self.resident.items() if price]
        total, steps = 0.0, []
        for node in self.order:
            mine = [table for table in tables if node in table[0]]
            tables = [table for table in tables if node not in table[0]]
            nodes = (node, *dict.fromkeys(n for table in mine for n in table[0] if n != node))
            joint = _sum(mine, nodes, [self.sizes[n] for n in nodes])
            steps.append((nodes, joint.argmin(axis=0)))
            rest = joint.min(axis=0)
            if len(nodes) == 1:
                total += float(rest)
            else:
                tables.append((nodes[1:], rest))
        choice: dict[int, int] = {}
        for nodes, best in reversed(steps):
            choice[nodes[0]] = int(best[tuple(choice[n] for n in nodes[1:])])
        return {node: choice[node] for node in self.decided}, total

    def solve(self, exposed: int = 2) -> Answer:
        """The best choice that fits over a few weights, and the best bound."""
        found: list[dict[int, int]] = []
        bound = 0.0
        for mix in (1.0,) if self.model.objective == "bytes" else (1.0, 0.75, 0.5):
            bound = max(bound, self._along(mix, exposed, found))
            best = self._best(found, exposed)
            if best is not None and best[0] <= bound * (1 + 1e-9):
                break
        best = self._best(found, exposed)
        # Sums of 64-bit floats: what rounding may have added is taken off the bound.
        certified = int(bound * (1 - 1e-9))
        if best is None:
            return Answer(None, 0, certified, found[0])
        exact = best[0] if best[0] <= bound * (1 + 1e-9) else certified
        return Answer(best[1], best[0], exact, found[0])

    def _along(self, mix: float, exposed: int, found: list[dict[int, int]]) -> float:
        """Raise the price of resident bytes until the choice fits; returns the best bound on the way."""
        capacity = float(self.model.capacity)
        choice, cost = self.minimise(mix, 0.0, exposed)
        found.append(choice)
        bound = cost
        if self._fits(choice) or not self.resident:
            return bound
        low, high = 0.0, 0.0
        step = max(cost, 1.0) / max(capacity, 1.0) / 64
        for _ in range(12):
            price = (low + high) / 2 if high else max(step, low * 4)
            choice, cost = self.minimise(mix, price, exposed)
            found.append(choice)
            bound = max(bound, cost - price * capacity)
            low, high = (low, price) if self._fits(choice) else (price, high)
        return bound

    def _best(self, found: list[dict[int, int]], exposed: int) -> tuple[int, dict[int, int]] | None:
        values = [evaluate(self.model, choice, exposed)[0] for choice in found]
        fitting = [(value, k) for k, value in enumerate(values) if self._fits(found[k])]
        return (min(fitting)[0], found[min(fitting)[1]]) if fitting else None

    def _fits(self, choice: dict[int, int]) -> bool:
        model = self.model
        resident = sum(costs[choice[node]] for node, costs in self.resident.items())
        if resident > model.capacity:
            return False
        return all(sum(memory_at(model, choice, k).values()) <= model.capacity for k in model.instants)


def _sum(tables: list[tuple[tuple[int, ...], Costs]], nodes: tuple[int, ...], shape: list[int]) -> Costs:
    """Add tables over the union of their nodes."""
    joint = np.zeros(shape)
    for mine, costs in tables:
        present = sorted(range(len(mine)), key=lambda k: nodes.index(mine[k]))
        arranged = costs.transpose(present)
        places = [nodes.index(mine[k]) for k in present]
        index: list[Any] = [slice(None) if k in places else None for k in range(len(nodes))]
        joint += arranged[tuple(index)]
    return joint


def elimination(model: Model) -> Elimination | None:
    """The factors of a model, or None where its graph is too dense."""
    try:
        return Elimination(model)
    except TooWide:
        return None
