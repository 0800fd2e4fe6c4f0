"""A problem as factors, tables of costs over a few variables each: what elimination adds up.

Variables are the nodes, and stand-ins where a node with many strategies means only few different things to a supply:
factors then grow with meanings and not with strategies. Under multipliers on places the same factors also count
what is held there, rounded down, so that a least sum of them stays a bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from .places import Places
from .problem import FORBIDDEN, AssignmentProblem, Ints
from .supply import Supply, supplied

PRICE_UNIT = 2**44
"""Multipliers are counted in units of 1 / PRICE_UNIT."""

_LEAST_FLOAT = 1 - 2.0**-50  # more than what rounding two factors and their product can add
MOST_COMBINATIONS = 2_000_000


class TooWide(Exception):
    """Elimination would need larger arrays than it may build."""


@dataclass(frozen=True, eq=False)
class Factor:
    """Costs over the strategies (or meanings) of a few variables: one axis each."""

    variables: tuple[int, ...]
    costs: Ints


@dataclass(frozen=True, eq=False)
class SupplyFactor:
    """How the factor of a supply comes about: [forms of the source, sets of items] spread over its variables."""

    variables: tuple[int, ...]
    form_of: Ints  # per value of the source's variable its form
    first_of_form: Ints  # a strategy of the source for each form
    set_of: Ints  # per value of all variables the number of the set of items asked for
    members: Ints  # [sets, items]

    def spread(self, costs: Ints) -> Ints:
        """The factor, from costs [strategies of the source, items]."""
        per_set = np.minimum(costs[self.first_of_form] @ self.members.T, FORBIDDEN)
        forms = self.form_of.reshape(-1, *(1,) * (self.set_of.ndim - 1))
        spread: Ints = per_set[forms, self.set_of]
        return spread


class Factors:
    """The factors of a problem under any multipliers. Raises TooWide."""

    def __init__(self, places: Places) -> None:
        self.places, self.problem = places, places.problem
        self.sizes = dict(enumerate(self.problem.strategy_counts.tolist()))
        self.origin = {v: (v, -1) for v in self.sizes}  # (node, supply) of a stand-in, (node, -1) of a node
        self.fixed = [Factor(*_oriented(self.problem, e)) for e in range(len(self.problem.edges))]
        self.supplies = [self._of_supply(k) for k in range(len(self.problem.supplies))]

    def _of_supply(self, k: int) -> SupplyFactor:
        supply = self.problem.supplies[k]
        forms = _forms(supply)
        nodes, faces = supply.nodes, []
        for node in nodes:
            asks = [a.tolist() for v, a in zip(supply.readers, supply.asks, strict=True) if v == node]
            own = forms if node == supply.source else [0] * self.sizes[node]
            faces.append(list(zip(own, *asks, strict=True)))
        meanings = [list(dict.fromkeys(face)) for face in faces]
        if prod(map(len, meanings)) > MOST_COMBINATIONS:
            raise TooWide
        variables = list(nodes)
        for axis, (node, face) in enumerate(zip(nodes, faces, strict=True)):
            if len(nodes) > 2 and len(meanings[axis]) < len(face):
                variables[axis] = self._stand_in(node, k, face, meanings[axis])
            else:
                meanings[axis] = face
        set_of, members = _sets_asked_for(supply, meanings)
        form_of = np.array([meaning[0] for meaning in meanings[0]], dtype=np.int64)
        first = np.array([forms.index(f) for f in range(max(forms) + 1)], dtype=np.int64)
        return SupplyFactor(tuple(variables), form_of, first, set_of, members)

    def _stand_in(self, node: int, k: int, face: list[tuple[int, ...]], meanings: list[tuple[int, ...]]) -> int:
        """A variable for what a node means to a supply, bound to the node by a factor of forbidden pairs."""
        number = len(self.sizes)
        self.sizes[number], self.origin[number] = len(meanings), (node, k)
        link = np.full((len(face), len(meanings)), FORBIDDEN, dtype=np.int64)
        at = {meaning: i for i, meaning in enumerate(meanings)}
        link[np.arange(len(face)), [at[meaning] for meaning in face]] = 0
        self.fixed.append(Factor((node, number), link))
        return number

    def scopes(self) -> list[tuple[int, ...]]:
        """The variables of every factor, in the order of `under`."""
        nodes = [(v,) for v in range(self.problem.node_count)]
        return nodes + [t.variables for t in self.fixed] + [t.variables for t in self.supplies]

    def under(self, multipliers: Mapping[int, int]) -> list[Ints]:
        """All factors, what is held at each place charged at its multiplier."""
        problem = self.problem
        unary = [problem.costs[v] for v in range(problem.node_count)]
        supplied_at = [supply.costs for supply in problem.supplies]
        rates = self.places.rates(multipliers) if multipliers else []
        for row, rate in zip(self.places.rows, rates, strict=bool(rates)):
            if not rate:
                continue
            if row.supply < 0:
                unary[row.node] = unary[row.node] + charged(row.amounts, rate)
            else:
                supplied_at[row.supply] = supplied_at[row.supply] + charged(row.amounts, rate)
        spread = [factor.spread(costs) for factor, costs in zip(self.supplies, supplied_at, strict=True)]
        return [np.minimum(costs, FORBIDDEN) for costs in unary] + [t.costs for t in self.fixed] + spread


def charged(amounts: Ints, rate: int) -> Ints:
    """amounts · rate / PRICE_UNIT, never more."""
    if rate % PRICE_UNIT == 0:
        return amounts * (rate // PRICE_UNIT)
    below: Ints = np.floor(amounts * (rate / PRICE_UNIT) * _LEAST_FLOAT).astype(np.int64)
    return below


def _oriented(problem: AssignmentProblem, e: int) -> tuple[tuple[int, ...], Ints]:
    u, v = problem.edges[e].tolist()
    matrix = np.minimum(problem.matrix(e), FORBIDDEN)
    return ((u,), np.ascontiguousarray(matrix.diagonal())) if u == v else ((u, v), matrix)


def _forms(supply: Supply) -> list[int]:
    """Per strategy of the source a number, equal where its costs and amounts are."""
    seen: dict[bytes, int] = {}
    whole = np.concatenate([supply.costs, *(use.amounts for use in supply.uses)], axis=1)
    return [seen.setdefault(row.tobytes(), len(seen)) for row in whole]


def _sets_asked_for(supply: Supply, meanings: list[list[tuple[int, ...]]]) -> tuple[Ints, Ints]:
    """Per combination of meanings the number of the set of items to supply, and the sets as rows of 0 and 1.

    Sets are joined one node after another: there are far fewer of them than combinations.
    """
    sets: dict[tuple[int, ...], int] = {(): 0}
    number_of: Ints = np.zeros((), dtype=np.int64)
    for values in meanings:
        joined: dict[tuple[int, ...], int] = {}
        step = np.empty((len(sets), len(values)), dtype=np.int64)
        for before, number in sets.items():
            for j, (_, *asks) in enumerate(values):
                after = tuple(supplied(supply, [*before, *asks])) if asks else before
                step[number, j] = joined.setdefault(after, len(joined))
        number_of, sets = step[number_of], joined
    members = np.zeros((len(sets), supply.item_count), dtype=np.int64)
    for items, number in sets.items():
        members[number, list(items)] = 1
    return number_of, members
