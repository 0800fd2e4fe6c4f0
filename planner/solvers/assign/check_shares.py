"""The bound of shares, recomputed: by pair of nodes, from the problem itself.

Whatever its readers ask for, each of them is served by an item that is supplied, its own or one around it that another
reader asks for. So shares ≥ 0 that are together no more than what an item costs are never more than what is paid. What
is moved between pairs and nodes changes no choice's cost. It shares no code with the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .answer import PairDuals, ShareCertificate
from .check_elimination import charged_nodes, charged_supply, charges, demand_no_worse
from .problem import FORBIDDEN, AssignmentProblem
from .supply import Supply

_Array = NDArray[np.int64]
_MOST = 1 << 60  # of what is moved: three of them fit 64 bits


def shared_bound(problem: AssignmentProblem, certificate: ShareCertificate) -> int:
    """The lower bound on the cost of every choice that fits. Raises ValueError where the certificate is none."""
    if certificate.kept:
        demand_no_worse(problem, certificate.kept)
        problem = problem.restricted(certificate.kept)
    return _Sum.of(problem, certificate).bound


def shared_with_each(problem: AssignmentProblem, certificate: ShareCertificate) -> list[_Array]:
    """Per node, for each of its strategies the same of the choices with it; none is left out. Raises ValueError as
    well.
    """
    found = _Sum.of(problem, certificate)
    more = [costs - min(costs) for costs in found.nodes]
    for left, ends in found.pairs:
        for axis, v in enumerate(ends):
            more[v] = more[v] + (left.min(axis=1 - axis) - left.min())
    return [np.minimum(found.bound + mine, FORBIDDEN).astype(np.int64) for mine in more]


@dataclass(frozen=True, eq=False)
class _Sum:
    """What nodes cost by strategy, and pairs of nodes by both, once everything is moved; and all that limits are worth.

    A pair of a node with itself has one strategy: it is with the node.
    """

    nodes: list[Any]
    pairs: list[tuple[_Array, tuple[int, int]]]
    worth: int

    @property
    def bound(self) -> int:
        """Each at its least."""
        pairs = sum(int(left.min()) for left, _ in self.pairs)
        return sum(int(min(costs)) for costs in self.nodes) + pairs - self.worth

    @staticmethod
    def of(problem: AssignmentProblem, certificate: ShareCertificate) -> _Sum:
        """Raises ValueError where something counts twice."""
        unit = certificate.price_unit
        charge, worth = charges(problem, certificate.prices, unit)
        unary = charged_nodes(problem, charge, unit)
        found = _Sum([np.minimum(costs, FORBIDDEN).astype(object) for costs in unary], [], worth)
        for e, (u, v) in enumerate(problem.edges.tolist()):
            matrix = np.minimum(problem.matrix(e), FORBIDDEN)
            duals = certificate.edges[e] if u != v else None
            found.add(matrix, (u, v), duals, f"edge {e}")
        for k, pairs in certificate.supplies.items():
            supply = problem.supplies[k]
            costs = np.minimum(charged_supply(supply, charge, unit), FORBIDDEN)
            _demand_shares(supply, pairs, costs, f"supply {k}")
            for j, duals in enumerate(pairs):
                found.add(_paid(supply, j, duals.share), (supply.source, supply.readers[j]), duals, f"supply {k}")
        return found

    def add(self, table: _Array, ends: tuple[int, int], duals: PairDuals | None, name: str) -> None:
        """A pair; nothing need be moved where both ends are one node."""
        u, v = ends
        if u == v:
            self.nodes[u] = self.nodes[u] + table.diagonal()
            return
        if duals is None or (len(duals.to_source), len(duals.to_reader)) != table.shape:
            raise ValueError(f"certificate: what is moved from {name} is not a cost for each strategy")
        if max(np.abs(moved).max(initial=0) for moved in (duals.to_source, duals.to_reader)) > _MOST:
            raise ValueError(f"certificate: what is moved from {name} is too much")
        self.pairs.append((table - duals.to_source[:, None] - duals.to_reader, ends))
        self.nodes[u], self.nodes[v] = self.nodes[u] + duals.to_source, self.nodes[v] + duals.to_reader


def _demand_shares(supply: Supply, pairs: Sequence[PairDuals], costs: _Array, name: str) -> None:
    """One for each reader, none below nothing, together no more than there is to share."""
    if len(pairs) != len(supply.readers) or any(duals.share.shape != costs.shape for duals in pairs):
        raise ValueError(f"certificate: {name} has not a share for each reader")
    if any(duals.share.min(initial=0) < 0 for duals in pairs):
        raise ValueError(f"certificate: {name}: a share is less than nothing")
    if (sum(duals.share.astype(object) for duals in pairs) > costs).any():
        raise ValueError(f"certificate: {name}: shares are more than the costs")


def _paid(supply: Supply, j: int, share: _Array) -> _Array:
    """[strategy of the source, of the reader] the least share of an item that serves the reader."""
    others = {int(i) for k, asks in enumerate(supply.asks) if k != j for i in asks}
    paid: _Array = np.zeros((len(share), len(supply.asks[j])), dtype=np.int64)
    for s, item in enumerate(supply.asks[j].tolist()):
        if item >= 0:
            serving = [item, *(k for k in np.flatnonzero(supply.within[item]).tolist() if k in others)]
            paid[:, s] = share[:, serving].min(axis=1)
    return paid
