"""The assignment problem: one strategy per node, costs on nodes, edges and supplies, limited resources over time.

    minimise    Σ_v cost_v[x_v] + Σ_(u,v) cost_uv[x_u, x_v] + Σ cost of what is supplied + Σ_r price_r · peak_r
    subject to  Σ usage of r at instant t under x  ≤  peak_r  ≤  limit_r      for every resource r and instant t,
                no forbidden strategy and no forbidden pair is chosen.

Most problems have neither supplies (`supply.py`) nor prices. With a price, the peak of a resource over time is part of
the cost: a duration that is the larger of two sums is a resource of two instants.

Everything is an exact integer. The entries of a problem are flat arrays, so that reading, reducing and checking are
array operations: `cost[first[v]:first[v + 1]]` are the costs of node v.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ....errors import UsageError
from .supply import Supply, supply_fault

Ints = NDArray[np.int64]

FORBIDDEN = 10**18
"""The cost of a forbidden strategy or pair. Any given cost of at least half of it means the same."""

_TOTAL_LIMIT = 4 * 10**17  # the sum of the largest finite costs: sums of all that is finite stay below FORBIDDEN / 2


class InvalidProblem(UsageError):
    """The arrays of an assignment problem contradict one another; the message names the place."""


@dataclass(frozen=True, eq=False)
class Costs:
    """Vectors of different lengths in one array: the i-th is `values[first[i]:first[i + 1]]`."""

    first: Ints
    values: Ints

    def __len__(self) -> int:
        return len(self.first) - 1

    def __getitem__(self, i: int) -> Ints:
        return self.values[self.first[i] : self.first[i + 1]]

    @cached_property
    def lengths(self) -> Ints:
        return np.diff(self.first)


@dataclass(frozen=True, eq=False)
class Usages:
    """Row q: while its interval [start, stop) lasts, node[q] holds amounts[q][s] of resource[q] under strategy s."""

    node: Ints
    resource: Ints
    start: Ints
    stop: Ints
    amounts: Costs

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, eq=False)
class AssignmentProblem:
    """`costs[v]` per strategy of node v; `edge_costs[e]` row-major over the strategies of `edges[e] = (u, v)`.

    An edge may repeat (its costs add) and may join a node with itself (its diagonal counts). Instants are integers.
    """

    costs: Costs
    edges: Ints  # [m, 2]
    edge_costs: Costs
    limits: Ints  # per resource
    usages: Usages
    names: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    prices: tuple[int, ...] = ()  # per resource what a unit of its peak costs; none given: nothing
    supplies: tuple[Supply, ...] = ()

    def __post_init__(self) -> None:
        _validate(self)

    @property
    def node_count(self) -> int:
        return len(self.costs)

    @property
    def strategy_counts(self) -> Ints:
        return self.costs.lengths

    def node_name(self, v: int) -> str:
        return self.names[v] if self.names else f"node {v}"

    def resource_name(self, r: int) -> str:
        return self.resource_names[r] if self.resource_names else f"resource {r}"

    @property
    def plain(self) -> bool:
        """Whether there are only nodes, edges and limits: neither supplies nor prices."""
        return not self.supplies and not any(self.prices)

    def price(self, r: int) -> int:
        """What a unit of the peak of resource r costs."""
        return self.prices[r] if self.prices else 0

    def restricted(self, kept: Sequence[Sequence[int]]) -> AssignmentProblem:
        """The same problem with some strategies of every node alone, numbered anew in the order given."""
        index = [np.array(mine, dtype=np.int64) for mine in kept]
        ends, usages = self.edges.tolist(), self.usages
        supplies = tuple(
            replace(
                supply,
                asks=tuple(asks[index[v]] for v, asks in zip(supply.readers, supply.asks, strict=True)),
                costs=supply.costs[index[supply.source]],
                uses=tuple(replace(use, amounts=use.amounts[index[supply.source]]) for use in supply.uses),
            )
            for supply in self.supplies
        )
        return replace(
            self,
            costs=pack_vectors([self.costs[v][mine] for v, mine in enumerate(index)]),
            edge_costs=pack_vectors([self.matrix(e)[np.ix_(index[u], index[v])] for e, (u, v) in enumerate(ends)]),
            usages=replace(
                usages,
                amounts=pack_vectors([usages.amounts[q][index[v]] for q, v in enumerate(usages.node.tolist())]),
            ),
            supplies=supplies,
        )

    def matrix(self, e: int) -> Ints:
        """The costs of edge e as [strategies of u, strategies of v]."""
        u, v = self.edges[e]
        counts = self.costs.lengths
        return self.edge_costs[e].reshape(counts[u], counts[v])


def pack_vectors(vectors: Sequence[ArrayLike]) -> Costs:
    """One array from vectors of different lengths.

    >>> pack_vectors([[1, 2], [3]]).first.tolist()
    [0, 2, 3]
    """
    arrays = [np.asarray(vector, dtype=np.int64).reshape(-1) for vector in vectors]
    first = np.concatenate([[0], np.cumsum([len(array) for array in arrays], dtype=np.int64)]).astype(np.int64)
    return Costs(first, np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64))


class ProblemBuilder:
    """Collects nodes, edges and resources one by one; every call checks what it is given.

    >>> builder = ProblemBuilder()
    >>> hbm = builder.add_resource(10, "hbm")
    >>> a, b = builder.add_node([3, 1], "a"), builder.add_node([0, 5], "b")
    >>> builder.add_edge(a, b, [[0, 2], [7, FORBIDDEN]])
    >>> builder.use(a, hbm, start=0, stop=4, amounts=[2, 8])
    >>> builder.build().node_count
    2
    """

    def __init__(self) -> None:
        self._costs: list[Ints] = []
        self._names: list[str] = []
        self._edges: list[tuple[int, int]] = []
        self._edge_costs: list[Ints] = []
        self._limits: list[int] = []
        self._resource_names: list[str] = []
        self._usage_rows: list[tuple[int, int, int, int]] = []
        self._amounts: list[Ints] = []
        self._prices: list[int] = []
        self._supplies: list[Supply] = []

    def add_resource(self, limit: int, name: str = "", price: int = 0) -> int:
        """A resource of which at most `limit` may be in use at any instant; returns its number.

        `price` is what a unit of its peak costs.
        """
        where = f"resource {name or len(self._limits)}"
        self._prices.append(int(_integers([price], where, "price", least=0)[0]))
        self._limits.append(int(_integers([limit], where, "limit", least=0)[0]))
        self._resource_names.append(name or f"resource {len(self._limits) - 1}")
        return len(self._limits) - 1

    def add_node(self, costs: ArrayLike, name: str = "") -> int:
        """A node with one cost per strategy (`FORBIDDEN`, or infinity, rules one out); returns its number."""
        where = f"node {name or len(self._costs)}"
        self._costs.append(_integers(costs, where, "costs"))
        self._names.append(name or f"node {len(self._costs) - 1}")
        return len(self._costs) - 1

    def add_edge(self, u: int, v: int, costs: ArrayLike, forbidden: ArrayLike | None = None) -> None:
        """Costs [strategies of u, strategies of v] on a pair of nodes; `forbidden` is a mask of the same shape."""
        where = f"edge {len(self._edges)} ({self._name(u)}, {self._name(v)})"
        shape = (len(self._costs[u]), len(self._costs[v]))
        matrix = _integers(costs, where, "costs")
        if forbidden is not None:
            mask = np.asarray(forbidden, dtype=bool).reshape(-1)
            _expect(len(mask) == len(matrix), where, f"{len(mask)} forbidden flags", f"{len(matrix)} costs")
            matrix = np.where(mask, FORBIDDEN, matrix)
        _expect(len(matrix) == prod(shape), where, f"{len(matrix)} costs", f"{shape[0]} × {shape[1]} strategies")
        self._edges.append((u, v))
        self._edge_costs.append(matrix)

    def use(self, node: int, resource: int, start: int, stop: int, amounts: ArrayLike) -> None:
        """While [start, stop) lasts, strategy s of the node holds amounts[s] of the resource."""
        where = f"usage {len(self._usage_rows)} of {self._name(node)}"
        _expect(0 <= resource < len(self._limits), where, f"resource {resource}", f"{len(self._limits)} resources")
        row = _integers(amounts, where, "amounts", least=0)
        _expect(
            len(row) == len(self._costs[node]), where, f"{len(row)} amounts", f"{len(self._costs[node])} strategies"
        )
        self._usage_rows.append((node, resource, start, stop))
        self._amounts.append(row)

    def add_supply(self, supply: Supply) -> None:
        """What one node gives to several readers, each item once."""
        _expect_supply(supply, len(self._supplies), np.array([len(c) for c in self._costs]), len(self._limits))
        self._supplies.append(supply)

    def build(self) -> AssignmentProblem:
        rows = np.array(self._usage_rows, dtype=np.int64).reshape(-1, 4)
        return AssignmentProblem(
            costs=pack_vectors(self._costs),
            edges=np.array(self._edges, dtype=np.int64).reshape(-1, 2),
            edge_costs=pack_vectors(self._edge_costs),
            limits=np.array(self._limits, dtype=np.int64),
            usages=Usages(*_columns(rows), pack_vectors(self._amounts)),
            names=tuple(self._names),
            resource_names=tuple(self._resource_names),
            prices=tuple(self._prices) if any(self._prices) else (),
            supplies=tuple(self._supplies),
        )

    def _name(self, node: int) -> str:
        _expect(0 <= node < len(self._names), "node", f"index {node}", f"{len(self._names)} nodes")
        return self._names[node]


def _integers(values: ArrayLike, where: str, what: str, least: int | None = None) -> Ints:
    """A flat int64 copy: NaN, fractions and values below `least` are refused, infinity and what is above is capped."""
    array = np.array(values).reshape(-1)
    _expect(len(array) > 0, where, f"no {what}", "at least one")
    if array.dtype == object:
        array = np.array([min(value, FORBIDDEN) for value in array.tolist()])
    if array.dtype.kind == "f":
        bad = np.flatnonzero(np.isnan(array) | (array != np.floor(array)) | (array == -np.inf))
        _expect(len(bad) == 0, where, f"{what}[{_at(bad)}] = {_of(array, bad)}", "an integer")
        array = np.minimum(array, FORBIDDEN)
    _expect(array.dtype.kind in "iufb", where, f"{what} of type {array.dtype}", "integers")
    small = np.flatnonzero(array < least) if least is not None else np.zeros(0, dtype=np.int64)
    _expect(len(small) == 0, where, f"{what}[{_at(small)}] = {_of(array, small)}", f"at least {least}")
    capped: Ints = np.minimum(array, FORBIDDEN).astype(np.int64)
    return capped


def _columns(rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    node, resource, start, stop = (np.ascontiguousarray(column) for column in rows.T)
    return node, resource, start, stop


def _at(places: NDArray[np.int64]) -> int:
    return int(places[0]) if len(places) else 0


def _of(array: NDArray[np.generic], places: NDArray[np.int64]) -> object:
    return array[places[0]] if len(places) else None


def _expect(holds: bool, where: str, found: str, expected: str) -> None:
    if not holds:
        raise InvalidProblem(
            "the problem contradicts itself", where=where, sides={"found": found, "expected": expected}
        )


def _validate(problem: AssignmentProblem) -> None:
    """Every length, index and sign; raises InvalidProblem at the first that is wrong."""
    costs, edges, usages = problem.costs, problem.edges, problem.usages
    counts, n, resources = costs.lengths, len(costs), len(problem.limits)
    _each(counts > 0, "node", lambda _: ("no strategies", "at least one"))
    _each(problem.limits >= 0, "resource", lambda r: (f"limit {problem.limits[r]}", "at least 0"))
    _expect(
        len(edges) == len(problem.edge_costs), "edges", f"{len(problem.edge_costs)} cost vectors", f"{len(edges)} pairs"
    )
    _each(
        np.all((edges >= 0) & (edges < n), axis=1),
        "edge",
        lambda e: (f"nodes {edges[e].tolist()}", f"indices below {n}"),
    )
    sizes = counts[edges[:, 0]] * counts[edges[:, 1]]
    given = problem.edge_costs.lengths
    _each(
        given == sizes, "edge", lambda e: (f"{given[e]} costs", f"{' × '.join(map(str, counts[edges[e]]))} strategies")
    )
    _validate_usages(usages, counts, resources)
    for k, supply in enumerate(problem.supplies):
        _expect_supply(supply, k, counts, resources)
    _expect(len(problem.prices) in (0, resources), "prices", f"{len(problem.prices)} prices", f"{resources} resources")
    _expect(all(price >= 0 for price in problem.prices), "prices", f"{problem.prices}", "none below 0")
    for what, vectors in (("node", costs), ("edge", problem.edge_costs), ("usage", usages.amounts)):
        _validate_totals(what, vectors)
    if not problem.plain:
        _validate_all_together(problem)


def _validate_usages(usages: Usages, counts: Ints, resources: int) -> None:
    rows = len(usages)
    for name in ("resource", "start", "stop", "amounts"):
        _expect(len(getattr(usages, name)) == rows, "usages", f"{len(getattr(usages, name))} of {name}", f"{rows} rows")
    node, resource = usages.node, usages.resource
    _each((node >= 0) & (node < len(counts)), "usage", lambda q: (f"node {node[q]}", f"an index below {len(counts)}"))
    _each(
        (resource >= 0) & (resource < resources), "usage", lambda q: (f"resource {resource[q]}", f"below {resources}")
    )
    _each(
        usages.start <= usages.stop,
        "usage",
        lambda q: (f"interval [{usages.start[q]}, {usages.stop[q]})", "its start not after its stop"),
    )
    given = usages.amounts.lengths
    _each(given == counts[node], "usage", lambda q: (f"{given[q]} amounts", f"{counts[node[q]]} strategies"))
    if len(usages.amounts.values) and usages.amounts.values.min() < 0:
        at = int(np.argmax(usages.amounts.values < 0))
        q = int(np.searchsorted(usages.amounts.first, at, side="right")) - 1
        _expect(False, f"usage {q} of node {node[q]}", f"amount {usages.amounts.values[at]}", "at least 0")


def _validate_totals(what: str, vectors: Costs) -> None:
    """Costs and amounts must be small enough for their sums to be exact in 64 bits and below what is forbidden."""
    size = np.where(vectors.values >= FORBIDDEN // 2, 0, np.abs(vectors.values))
    if len(size) == 0:
        return
    largest = np.maximum.reduceat(size, vectors.first[:-1])
    total = int(largest.astype(object).sum())
    worst = int(largest.argmax())
    _expect(total < _TOTAL_LIMIT, f"{what} {worst}", f"values that sum to {total}", f"a sum below {_TOTAL_LIMIT:.0e}")


def _expect_supply(supply: Supply, k: int, counts: Ints, resources: int) -> None:
    fault = supply_fault(supply, counts, resources)
    if fault is not None:
        _expect(False, f"supply {k}", *fault)


def _validate_all_together(problem: AssignmentProblem) -> None:
    total = cost_bound(problem)
    _expect(total < _TOTAL_LIMIT, "all costs", f"a sum of up to {total}", f"less than {_TOTAL_LIMIT:.0e}")


def cost_bound(problem: AssignmentProblem) -> int:
    """No finite cost of a choice is larger: the largest costs of all nodes, edges and supplies, and of all peaks."""
    total = sum(_largest(vectors[i]) for vectors in (problem.costs, problem.edge_costs) for i in range(len(vectors)))
    held = [0] * len(problem.limits)
    for q, r in enumerate(problem.usages.resource.tolist()):
        held[r] += _largest(problem.usages.amounts[q])
    for supply in problem.supplies:
        most = min(len(supply.readers), supply.item_count)  # every reader asks for one item at most
        total += most * _largest(supply.costs)
        for use in supply.uses:
            held[use.resource] += most * len(use.intervals) * _largest(use.amounts)
    return total + sum(problem.price(r) * amount for r, amount in enumerate(held))


def _largest(values: Ints) -> int:
    """The largest finite one in size."""
    return int(np.where(values >= FORBIDDEN // 2, 0, np.abs(values)).max(initial=0))


def _each(holds: NDArray[np.bool_], what: str, sides: Callable[[int], tuple[str, str]]) -> None:
    """`sides(i)` -> (found, expected) of the first place that does not hold."""
    if not holds.all():
        i = int(np.argmin(holds))
        _expect(False, f"{what} {i}", *sides(i))
