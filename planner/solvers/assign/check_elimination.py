"""The bound of an elimination, recomputed: a second elimination that shares no code with the solver's.

Sound for any order and any multipliers ≥ 0: a charge at a place is never more than what a limit or a price makes it
worth, amounts only round down, and a minimum over one variable after another is a minimum over all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .answer import EliminationCertificate, Prices
from .problem import FORBIDDEN, AssignmentProblem
from .supply import Supply

_Array = NDArray[np.int64]
# (node, -1), or (node, supply): what the node means to the supply, or (-1 - j, supply): what its first j nodes ask for
_Variable = tuple[int, int]
_Factor = tuple[tuple[_Variable, ...], _Array]  # axes in ascending order of their variables


def eliminated_bound(problem: AssignmentProblem, certificate: EliminationCertificate) -> int:
    """The lower bound on the cost of every choice that fits. Raises ValueError where the certificate is none."""
    if certificate.kept:
        demand_no_worse(problem, certificate.kept)
        problem = problem.restricted(certificate.kept)
    return _eliminated(problem, certificate).bound


def least_with_each(problem: AssignmentProblem, certificate: EliminationCertificate) -> list[_Array]:
    """Per node, for each of its strategies the same of the choices with it. Raises ValueError as well.

    The way back of the elimination: what is not behind a step costs at least what all do less what the step passed on.
    """
    run = _eliminated(problem, certificate)
    least = {(v, -1): np.full(int(count), run.bound) for v, count in enumerate(problem.strategy_counts.tolist())}
    beside: dict[int, _Array] = {}  # per factor that was passed on: what all else costs at least, over its variables
    for step in reversed(run.steps):
        variables, joint = run.joint(step)
        axis, passed = variables.index(step.variable), run.factors[step.passed][1]
        if not passed.ndim:
            beside[step.passed] = np.array(run.bound - int(passed))
        every = np.minimum(joint, FORBIDDEN) + np.expand_dims(beside.pop(step.passed), axis)
        for number in step.group:
            mine, costs = run.factors[number]
            if number >= run.given:
                with_it = every.min(axis=tuple(k for k, v in enumerate(variables) if v not in mine))
                beside[number] = np.where(with_it >= FORBIDDEN // 2, FORBIDDEN, with_it - costs)
        found = every.min(axis=tuple(k for k in range(len(variables)) if k != axis))
        least[step.variable] = np.maximum(least.get(step.variable, found), np.minimum(found, FORBIDDEN))
    return [least[v, -1] for v in range(problem.node_count)]


class _Step(NamedTuple):
    """A variable that goes from its factors, by number, and what is passed on."""

    variable: _Variable
    group: list[int]
    passed: int


@dataclass(eq=False)
class _Run:
    """An elimination: `factors` are as many as were given, then what every step passed on. `bound`: of all choices."""

    factors: list[_Factor]
    given: int
    steps: list[_Step]
    bound: int

    def joint(self, step: _Step) -> _Factor:
        """All that a step adds up."""
        return _added([self.factors[number] for number in step.group])


def _eliminated(problem: AssignmentProblem, certificate: EliminationCertificate) -> _Run:
    charge, worth = charges(problem, certificate.prices, certificate.price_unit)
    factors = _factors(problem, charge, certificate.price_unit, set(certificate.order))
    factors, single, total = _without_choice(factors)
    run = _Run(factors, len(factors), [], total - worth)
    live = dict.fromkeys(range(len(factors)))
    for variable in certificate.order:
        if variable in single:
            single.remove(variable)
            continue
        mine = [number for number in live if variable in factors[number][0]]
        if not mine:
            raise ValueError(f"certificate: variable {variable} is in no factor, or was eliminated before")
        for number in mine:
            del live[number]
        step = _Step(variable, mine, len(factors))
        variables, joint = run.joint(step)
        least = np.minimum(joint.min(axis=variables.index(variable)), FORBIDDEN)
        factors.append((tuple(v for v in variables if v != variable), least))
        run.steps.append(step)
        if least.ndim:
            live[step.passed] = None
        else:
            run.bound += int(least)
    if live or single:
        left = factors[next(iter(live))][0][0] if live else min(single)
        raise ValueError(f"certificate: {left} is never eliminated")
    return run


def demand_no_worse(problem: AssignmentProblem, kept: Sequence[Sequence[int]]) -> None:
    """Every strategy left out asks for what some kept one does, costs no less, holds no less, and is in no edge."""
    joined = {v for pair in problem.edges.tolist() for v in pair}
    for v, mine in enumerate(kept):
        out = sorted(set(range(int(problem.strategy_counts[v]))) - set(mine))
        if not out:
            continue
        if v in joined or not mine:
            raise ValueError(
                f"certificate: strategies of {problem.node_name(v)} are left out, and edges tell them apart"
            )
        same, more = _told_apart(problem, v), _paid(problem, v)
        for s in out:
            if not any(all(f[s] == f[t] for f in same) and all((f[s] >= f[t]).all() for f in more) for t in mine):
                raise ValueError(f"certificate: {problem.node_name(v)}: no kept strategy is as good as {s}")


def _told_apart(problem: AssignmentProblem, v: int) -> list[_Array]:
    pairs = [pair for supply in problem.supplies for pair in zip(supply.readers, supply.asks, strict=True)]
    return [asks for reader, asks in pairs if reader == v]


def _paid(problem: AssignmentProblem, v: int) -> list[_Array]:
    """Per strategy what it costs and holds, of resources that have a price or could run out."""
    scarce = [r for r in range(len(problem.limits)) if _scarce(problem, r)]
    found = [problem.costs[v]]
    usages = problem.usages
    for q in np.flatnonzero(usages.node == v).tolist():
        if int(usages.resource[q]) in scarce and usages.start[q] < usages.stop[q]:
            found.append(usages.amounts[q])
    for supply in problem.supplies:
        if supply.source == v:
            lasting = [use for use in supply.uses if any(start < stop for start, stop in use.intervals)]
            found += [supply.costs, *(use.amounts for use in lasting if use.resource in scarce)]
    return found


def _scarce(problem: AssignmentProblem, r: int) -> bool:
    """Whether all that could ever be held of a resource, at one time, is over its limit; or its peak has a price."""
    if problem.prices and problem.prices[r]:
        return True
    usages = problem.usages
    lasting = (usages.resource == r) & (usages.start < usages.stop)
    most = sum(int(usages.amounts[q].max()) for q in np.flatnonzero(lasting).tolist())
    for supply in problem.supplies:
        for use in supply.uses:
            if use.resource == r and use.amounts.size:
                several = min(len(supply.readers), supply.item_count) * sum(a < b for a, b in use.intervals)
                most += several * int(use.amounts.max())
    return most > int(problem.limits[r])


def _without_choice(factors: Sequence[_Factor]) -> tuple[list[_Factor], set[_Variable], int]:
    """The factors over what has two values or more, the variables that have one, and what all costs that is decided."""
    rest: list[_Factor] = []
    single: set[_Variable] = set()
    total = 0
    for variables, costs in factors:
        single |= {v for v, size in zip(variables, costs.shape, strict=True) if size == 1}
        open_ = tuple(v for v, size in zip(variables, costs.shape, strict=True) if size > 1)
        if open_:
            rest.append((open_, costs.reshape([size for size in costs.shape if size > 1])))
        else:
            total += int(costs.reshape(()))
    return rest, single, total


def charges(problem: AssignmentProblem, prices: Prices, unit: int) -> tuple[Any, int]:
    """charge(resource, intervals, amounts) under the multipliers, in their units; what the limits are worth."""
    paid: list[dict[int, int]] = [{} for _ in problem.limits]
    for r, instant, price in prices:
        if price < 0:
            raise ValueError(f"certificate: a negative multiplier at instant {instant}")
        paid[r][instant] = paid[r].get(instant, 0) + price
    instants = [sorted(mine) for mine in paid]
    until = [list(accumulate((mine[t] for t in sorted(mine)), initial=0)) for mine in paid]
    worth = 0
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
    unary = charged_nodes(problem, charge, unit)
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
    supply = problem.supplies[k]
    links: list[_Factor] = []
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
    costs = charged_supply(supply, charge, unit)
    if not costs.any() and not any(supply_of == k for _, supply_of in variables):
        return links
    if (-2, k) in variables:
        return links + _one_by_one(supply, k, costs, dict(zip(nodes, zip(axes, stands_for, strict=True), strict=True)))
    return [*links, (tuple(axes), _supply_costs(supply, costs, nodes, stands_for))]


def _one_by_one(
    supply: Supply, k: int, costs: _Array, known: Mapping[int, tuple[_Variable, list[int]]]
) -> list[_Factor]:
    """The same cost by way of what the first j nodes ask for together, less what lies within more."""
    asks: dict[int, list[_Array]] = {}
    for v, asked in zip(supply.readers, supply.asks, strict=True):
        asks.setdefault(v, []).append(asked)
    together: list[frozenset[int]] = [frozenset()]
    factors: list[_Factor] = []
    before: list[_Variable] = []
    for j, v in enumerate([v for v in dict.fromkeys((supply.source, *supply.readers)) if v in asks], 1):
        variable, strategies = known[v]
        number: dict[frozenset[int], int] = {}
        where = np.empty((len(together), len(strategies)), dtype=np.int64)
        for a, items in enumerate(together):
            for b, s in enumerate(strategies):
                union = (items | {int(asked[s]) for asked in asks[v]}) - {-1}
                least = frozenset(i for i in union if not any(supply.within[i, other] for other in union))
                where[a, b] = number.setdefault(least, len(number))
        link = np.full((*where.shape, len(number)), FORBIDDEN, dtype=np.int64)
        np.put_along_axis(link, where[:, :, None], 0, axis=2)
        after = (-1 - j, k)
        factors.append(_sorted((*before, variable, after), link if before else link[0]))
        together, before = list(number), [after]
    variable, strategies = known[supply.source]
    cost = np.zeros((len(strategies), len(together)), dtype=np.int64)
    for b, items in enumerate(together):
        for i in items:
            cost[:, b] = np.minimum(cost[:, b] + costs[strategies, i], FORBIDDEN)
    return [*factors, _sorted((variable, *before), cost)]


def _sorted(variables: tuple[_Variable, ...], costs: _Array) -> _Factor:
    order = sorted(range(len(variables)), key=lambda axis: variables[axis])
    return tuple(variables[axis] for axis in order), costs.transpose(order)


def charged_nodes(problem: AssignmentProblem, charge: Any, unit: int) -> list[_Array]:
    """What strategies cost, by node, with what they hold."""
    charged: list[Any] = [0] * problem.node_count
    usages = problem.usages
    for q, v in enumerate(usages.node.tolist()):
        interval = (int(usages.start[q]), int(usages.stop[q]))
        charged[v] = charged[v] + charge(int(usages.resource[q]), [interval], usages.amounts[q])
    return [_with_charge(problem.costs[v], extra, unit) for v, extra in enumerate(charged)]


def charged_supply(supply: Supply, charge: Any, unit: int) -> _Array:
    """What items cost, by strategy of the source, with what they hold."""
    return _with_charge(supply.costs, sum(charge(u.resource, u.intervals, u.amounts) for u in supply.uses), unit)


def _with_charge(costs: _Array, charged: Any, unit: int) -> _Array:
    """Costs and charges, rounded down once."""
    return costs + np.asarray(charged // unit).astype(np.int64)


def _meaning(problem: AssignmentProblem, k: int, v: int, s: int) -> bytes:
    """Equal for strategies of a node that no choice of the others tells apart, as far as this supply goes."""
    supply = problem.supplies[k]
    asked = [asks[s] for reader, asks in zip(supply.readers, supply.asks, strict=True) if reader == v]
    given = [supply.costs[s], *(use.amounts[s] for use in supply.uses)] if v == supply.source else []
    return np.concatenate([np.array(asked, dtype=np.int64), *given]).tobytes()


def _supply_costs(supply: Supply, costs: _Array, nodes: list[int], stands_for: list[list[int]]) -> _Array:
    """Item by item: where it is asked for and nothing larger is, what it costs."""
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
