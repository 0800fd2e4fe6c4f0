"""A problem as factors, tables of costs over a few variables each: what elimination adds up.

Variables are the nodes, and stand-ins where a node with many strategies means only few different things to a supply:
factors then grow with meanings and not with strategies. Under multipliers on places the same factors also count
what is held there, rounded down, so that a least sum of them stays a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import prod

import numpy as np
from numpy.typing import NDArray

from .places import Places
from .problem import FORBIDDEN, AssignmentProblem, Ints
from .supply import Supply

PRICE_UNIT = 2**44
"""Multipliers are counted in units of 1 / PRICE_UNIT."""

_LEAST_FLOAT = 1 - 2.0**-50  # more than what rounding two factors and their product can add
MOST_COMBINATIONS = 2_000_000
MOST_AXES = 16  # of the factor of a supply over all of its nodes at once; NumPy's own limit is 64


Asked = int  # items, a bit each


class TooWide(Exception):
    """Elimination would need larger arrays than it may build."""


@dataclass(frozen=True, eq=False)
class Factor:
    """Costs over the strategies (or meanings) of a few variables: one axis each."""

    variables: tuple[int, ...]
    costs: Ints


@dataclass(frozen=True, eq=False)
class SupplyFactor:
    """How the factor of a supply comes about: [forms of the source, sets of items] spread over its variables.

    `asked` counts the sets, which takes time: where a problem turns out to be too wide for its factors, nobody asks.
    """

    variables: tuple[int, ...]
    form_of: Ints  # per value of the source's variable its form
    first_of_form: Ints  # a strategy of the source for each form
    asked: Callable[[], tuple[Ints, Ints]]  # per value of all variables the number of the set of items; [sets, items]

    @cached_property
    def _sets(self) -> tuple[Ints, Ints]:
        return self.asked()

    def spread(self, costs: Ints) -> Ints:
        """The factor, from costs [strategies of the source, items]."""
        (set_of, members), of_form = self._sets, costs[self.first_of_form]
        ruled_out = of_form >= FORBIDDEN // 2
        per_set = np.where(ruled_out, 0, of_form) @ members.T  # forbidden ones apart: many of them overflow
        per_set[ruled_out.astype(np.int64) @ members.T > 0] = FORBIDDEN
        forms = self.form_of.reshape(-1, *(1,) * (set_of.ndim - 1))
        spread: Ints = per_set[forms, set_of]
        return spread


class Factors:
    """The factors of a problem under any multipliers. Raises TooWide."""

    def __init__(self, places: Places) -> None:
        self.places, self.problem = places, places.problem
        self.sizes = dict(enumerate(self.problem.strategy_counts.tolist()))
        # (node, -1): a node. (node, supply): its stand-in. (-1 - j, supply): the items that the first j nodes ask for.
        self.origin = {v: (v, -1) for v in self.sizes}
        self.place = {v: v for v in self.sizes}  # the node at which a variable comes up
        self.fixed = [Factor(*_oriented(self.problem, e)) for e in range(len(self.problem.edges))]
        self.charging = charging(places)
        self.supplies = [self._of_supply(k) for k in self.charging]

    def _of_supply(self, k: int) -> SupplyFactor:
        supply = self.problem.supplies[k]
        forms = forms_of(supply)
        nodes, faces = supply.nodes, []
        for node in nodes:
            asks = [a.tolist() for v, a in zip(supply.readers, supply.asks, strict=True) if v == node]
            own = forms if node == supply.source else [0] * self.sizes[node]
            faces.append(list(zip(own, *asks, strict=True)))
        meanings = [list(dict.fromkeys(face)) for face in faces]
        # What two nodes cost together is not larger than what the supply says of them.
        at_once = len(nodes) <= 2 or (len(nodes) <= MOST_AXES and prod(map(len, meanings)) <= MOST_COMBINATIONS)
        variables = list(nodes)
        for axis, (node, face) in enumerate(zip(nodes, faces, strict=True)):
            if len(nodes) > 2 and len(meanings[axis]) < len(face):
                variables[axis] = self._stand_in(node, k, face, meanings[axis])
            else:
                meanings[axis] = face
        form_of = np.array([meaning[0] for meaning in meanings[0]], dtype=np.int64)
        first = np.array([forms.index(f) for f in range(max(forms) + 1)], dtype=np.int64)
        if at_once:
            return SupplyFactor(tuple(variables), form_of, first, partial(_sets_asked_for, supply, meanings))
        last, members = self._in_turn(k, variables, meanings)
        set_of = np.broadcast_to(np.arange(len(members)), (len(meanings[0]), len(members)))
        return SupplyFactor((variables[0], last), form_of, first, lambda: (set_of, members))

    def _in_turn(self, k: int, variables: list[int], meanings: list[list[tuple[int, ...]]]) -> tuple[int, Ints]:
        """A variable for the set of items asked for so far after each node, bound to the one before it.

        There are few such sets however many nodes ask. Returns the last variable, and its sets as rows of 0 and 1.
        """
        supply = self.problem.supplies[k]
        sets: list[Asked] = [0]
        before: tuple[int, ...] = ()
        asking = [(v, own) for v, own in zip(variables, meanings, strict=True) if len(own[0]) > 1]
        for position, (variable, own) in enumerate(asking, 1):
            step, joined = _after(supply, sets, own)
            if step.size * len(joined) > MOST_COMBINATIONS:
                raise TooWide
            number = self._variable(len(joined), (-1 - position, k), self.place[variable])
            link = np.where(step[..., None] == np.arange(len(joined)), 0, FORBIDDEN)
            self.fixed.append(Factor((*before, variable, number), link if before else link[0]))
            sets, before = joined, (number,)
        return before[0], _rows(sets, supply.item_count)

    def _variable(self, size: int, origin: tuple[int, int], place: int) -> int:
        number = len(self.sizes)
        self.sizes[number], self.origin[number], self.place[number] = size, origin, place
        return number

    def _stand_in(self, node: int, k: int, face: list[tuple[int, ...]], meanings: list[tuple[int, ...]]) -> int:
        """A variable for what a node means to a supply, bound to the node by a factor of forbidden pairs."""
        number = self._variable(len(meanings), (node, k), node)
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
        unary, supplied_at = charged_costs(self.places, multipliers)
        spread = [factor.spread(supplied_at[k]) for k, factor in zip(self.charging, self.supplies, strict=True)]
        return [np.minimum(costs, FORBIDDEN) for costs in unary] + [t.costs for t in self.fixed] + spread


def charged_costs(places: Places, multipliers: Mapping[int, int]) -> tuple[list[Ints], list[Ints]]:
    """The costs of nodes and of supplies, what is held at each place charged at its multiplier."""
    problem = places.problem
    unary = [problem.costs[v] for v in range(problem.node_count)]
    supplied_at = [supply.costs for supply in problem.supplies]
    rates = places.rates(multipliers) if multipliers else []
    for row, rate in zip(places.rows, rates, strict=bool(rates)):
        if not rate:
            continue
        if row.supply < 0:
            unary[row.node] = unary[row.node] + charged(row.amounts, rate)
        else:
            supplied_at[row.supply] = supplied_at[row.supply] + charged(row.amounts, rate)
    return unary, supplied_at


def charging(places: Places) -> list[int]:
    """The supplies that cost or hold something at all."""
    held = {row.supply for row in places.rows}
    return [k for k, supply in enumerate(places.problem.supplies) if k in held or supply.costs.any()]


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


def forms_of(supply: Supply, also: Sequence[Ints] = ()) -> list[int]:
    """Per strategy of the source a number, equal where its costs and amounts are, and all that is `also` told of it."""
    seen: dict[bytes, int] = {}
    told = [each[:, None] for each in also]
    whole = np.concatenate([supply.costs, *(use.amounts for use in supply.uses), *told], axis=1)
    return [seen.setdefault(row.tobytes(), len(seen)) for row in whole]


def _sets_asked_for(supply: Supply, meanings: list[list[tuple[int, ...]]]) -> tuple[Ints, Ints]:
    """Per combination of meanings the number of the set of items to supply, and the sets as rows of 0 and 1.

    Sets are joined one node after another: there are far fewer of them than combinations.
    """
    sets: list[Asked] = [0]
    number_of: Ints = np.zeros((), dtype=np.int64)
    for values in meanings:
        step, sets = _after(supply, sets, values)
        number_of = step[number_of]
    return number_of, _rows(sets, supply.item_count)


def _after(supply: Supply, sets: list[Asked], meanings: list[tuple[int, ...]]) -> tuple[Ints, list[Asked]]:
    """[sets, meanings] the number of the set of items once a node has asked too, and those sets: none of the items of a
    set lies within another, as in `supplied`.
    """
    larger, smaller = _bits(supply.within), _bits(supply.within.T)
    asks = [[(larger[item], ~smaller[item], 1 << item) for item in asked if item >= 0] for _, *asked in meanings]
    joined: dict[Asked, int] = {}
    step = []
    for before in sets:
        for items in asks:
            after = before
            for above, others, own in items:
                if not above & after:
                    after = after & others | own
            step.append(joined.setdefault(after, len(joined)))
    return np.array(step, dtype=np.int64).reshape(len(sets), len(meanings)), list(joined)


def _bits(rows: NDArray[np.bool_]) -> list[int]:
    """Of every row the places of what holds, a bit each."""
    return [int.from_bytes(row.tobytes(), "little") for row in np.packbits(rows, axis=1, bitorder="little")]


def _rows(sets: list[Asked], items: int) -> Ints:
    width = -(-items // 8)
    packed = np.frombuffer(b"".join(asked.to_bytes(width, "little") for asked in sets), dtype=np.uint8)
    bits = np.unpackbits(packed.reshape(len(sets), width), axis=1, count=items, bitorder="little")
    return bits.astype(np.int64)
