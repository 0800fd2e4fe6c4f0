"""The bound of an elimination, recomputed: a second elimination that shares no code with the solver's.

Sound for any order and any multipliers ≥ 0: a charge at a place is never more than what a limit or a price makes it
worth, amounts only round down, and a minimum over one variable after another is a minimum over all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .answer import EliminationCertificate
from .problem import FORBIDDEN, AssignmentProblem

_Array = NDArray[np.int64]
_Variable = tuple[int, int]  # (node, -1), or (node, supply): what the node means to the supply
_Factor = tuple[tuple[_Variable, ...], _Array]  # axes in ascending order of their variables


def eliminated_bound(problem: AssignmentProblem, certificate: EliminationCertificate) -> int:
    """The lower bound on the cost of every choice that fits. Raises ValueError where the certificate is none."""
    charge, worth = _charges(problem, certificate)
    factors, total = _factors(problem, charge, certificate.price_unit, set(certificate.order)), 0
    for variable in certificate.order:
        mine = [factor for factor in factors if variable in factor[0]]
        factors = [factor for factor in factors if variable not in factor[0]]
        if not mine:
            raise ValueError(f"certificate: variable {variable} is in no factor, or was eliminated before")
        variables, joint = _added(mine)
        least = np.minimum(joint.min(axis=variables.index(variable)), FORBIDDEN)
        if least.ndim:
            factors.append((tuple(v for v in variables if v != variable), least))
        else:
            total += int(least)
    if factors:
        raise ValueError(f"certificate: {factors[0][0][0]} is never eliminated")
    return total - worth


def _charges(problem: AssignmentProblem, certificate: EliminationCertificate) -> tuple[Any, int]:
    """charge(resource, intervals, amounts) under the multipliers, in their units; what the limits are worth."""
    paid: list[dict[int, int]] = [{} for _ in problem.limits]
    for r, instant, price in certificate.prices:
        if price < 0:
            raise ValueError(f"certificate: a negative multiplier at instant {instant}")
        paid[r][instant] = paid[r].get(instant, 0) + price
    instants = [sorted(prices) for prices in paid]
    until = [list(accumulate((prices[t] for t in sorted(prices)), initial=0)) for prices in paid]
    unit, worth = certificate.price_unit, 0
    for r, limit in enumerate(problem.limits.tolist()):
        own = problem.prices[r] if problem.prices else 0
        worth += limit * max(0, until[r][-1] - own * unit)

    def charge(r: int, intervals: Sequence[tuple[int, int]], amounts: _Array) -> NDArray[np.object_] | int:
        rate = 0
        for start, stop in intervals:
            if start < stop:
                rate += until[r][bisect_left(instants[r], stop)] - until[r][bisect_left(instants[r], start)]
        return amounts.astype(object) * rate if rate else 0

    return charge, -(-worth // unit)


def _factors(problem: AssignmentProblem, charge: Any, unit: int, variables: set[_Variable]) -> list[_Factor]:
    charged: list[Any] = [0] * problem.node_count
    usages = problem.usages
    for q, v in enumerate(usages.node.tolist()):
        interval = (int(usages.start[q]), int(usages.stop[q]))
        charged[v] = charged[v] + charge(int(usages.resource[q]), [interval], usages.amounts[q])
    unary = [_with_charge(problem.costs[v], extra, unit) for v, extra in enumerate(charged)]
    factors: list[_Factor] = [(((v, -1),), np.minimum(costs, FORBIDDEN)) for v, costs in enumerate(unary)]
    for e, (u, v) in enumerate(problem.edges.tolist()):
        matrix = np.minimum(problem.matrix(e), FORBIDDEN)
        if u == v:
            factors.append((((u, -1),), matrix.diagonal()))
        else:
            factors.append((((u, -1), (v, -1)), matrix) if u < v else (((v, -1), (u, -1)), matrix.T))
    for k in range(len(problem.supplies)):
        factors += _of_supply(problem, k, charge, unit, variables)
    return factors


def _of_supply(problem: AssignmentProblem, k: int, charge: Any, unit: int, variables: set[_Variable]) -> list[_Factor]:
    """The factor of a supply, and the links from nodes to what they mean to it where the certificate has such."""
    supply, links = problem.supplies[k], []
    nodes = sorted({supply.source, *supply.readers})
    axes: list[_Variable] = []
    stands_for: list[list[int]] = []  # per axis and value a strategy of the node
    for v in nodes:
        strategies = list(range(int(problem.strategy_counts[v])))
        if (v, k) in variables:
            meanings: dict[bytes, list[int]] = {}
            for s in strategies:
                meanings.setdefault(_meaning(problem, k, v, s), []).append(s)
            link = np.full((len(strategies), len(meanings)), FORBIDDEN, dtype=np.int64)
            for number, same in enumerate(meanings.values()):
                link[same, number] = 0
            links.append((((v, -1), (v, k)), link))
            strategies = [same[0] for same in meanings.values()]
        axes.append((v, k) if (v, k) in variables else (v, -1))
        stands_for.append(strategies)
    return [*links, (tuple(axes), _supply_costs(problem, k, charge, unit, nodes, stands_for))]


def _with_charge(costs: _Array, charged: Any, unit: int) -> _Array:
    """Costs and charges, rounded down once."""
    return costs + np.asarray(charged // unit).astype(np.int64)


def _meaning(problem: AssignmentProblem, k: int, v: int, s: int) -> bytes:
    """Equal for strategies of a node that no choice of the others tells apart, as far as this supply goes."""
    supply = problem.supplies[k]
    asked = [asks[s] for reader, asks in zip(supply.readers, supply.asks, strict=True) if reader == v]
    given = [supply.costs[s], *(use.amounts[s] for use in supply.uses)] if v == supply.source else []
    return np.concatenate([np.array(asked, dtype=np.int64), *given]).tobytes()


def _supply_costs(
    problem: AssignmentProblem, k: int, charge: Any, unit: int, nodes: list[int], stands_for: list[list[int]]
) -> _Array:
    """Item by item: where it is asked for and nothing larger is, what it costs."""
    supply = problem.supplies[k]
    costs = _with_charge(supply.costs, sum(charge(u.resource, u.intervals, u.amounts) for u in supply.uses), unit)
    shape = [len(values) for values in stands_for]

    def along(v: int, values: NDArray[Any]) -> NDArray[Any]:
        """Values per strategy of a node, laid along its axis."""
        axis = nodes.index(v)
        return values[stands_for[axis]].reshape([-1 if a == axis else 1 for a in range(len(nodes))])

    asked = np.zeros((supply.item_count, *shape), dtype=bool)
    for reader, asks in zip(supply.readers, supply.asks, strict=True):
        for item in range(supply.item_count):
            asked[item] |= along(reader, asks == item)
    total = np.zeros(shape, dtype=np.int64)
    for item in range(supply.item_count):
        needed = asked[item] & ~asked[supply.within[item]].any(axis=0)
        total = np.minimum(total + np.where(needed, along(supply.source, costs[:, item]), 0), FORBIDDEN)
    return total


def _added(factors: Sequence[_Factor]) -> _Factor:
    """The sum over the union of the variables."""
    variables = tuple(sorted({v for factor in factors for v in factor[0]}))
    joint: _Array = np.zeros((1,) * len(variables), dtype=np.int64)
    for mine, costs in factors:
        shape, sizes = [1] * len(variables), iter(costs.shape)
        for axis, v in enumerate(variables):
            shape[axis] = next(sizes) if v in mine else 1
        joint = np.minimum(joint + costs.reshape(shape), FORBIDDEN)
    return variables, joint
