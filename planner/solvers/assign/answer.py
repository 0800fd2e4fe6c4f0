"""What a solve returns: a choice, its cost, a bound with what certifies it; or the conflict that rules out any choice.

Plain values only; the solver fills them in and the checker reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from .problem import FORBIDDEN, AssignmentProblem, Ints

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
Place = tuple[int, int]  # resource, instant
Prices = tuple[tuple[int, int, int], ...]
"""(resource, instant, multiplier in units of 1 / `price_unit`)."""


class Step(NamedTuple):
    """By these edges, labels of `node` without partner are dropped, or (`merge`) `other` is a function of `node`."""

    merge: bool
    node: int
    other: int
    edges: tuple[int, ...]


@dataclass(frozen=True)
class EngineClaim:
    """An exact solver's word, which nobody can recompute: which solver, how it ended, and the bound that it names."""

    engine: str
    status: str
    bound: int | None

    def says_more_than(self, bound: int | None) -> bool:
        """Whether it names a higher bound."""
        return self.bound is not None and (bound is None or self.bound > bound)


@dataclass(frozen=True, eq=False)
class DualCertificate:
    """A point of the dual on the reduced problem, as integers.

    `steps` lead from the problem to its groups; a group is known by its node that was never merged. For the pair of
    groups `pairs[i]`, `messages[i]` are the amounts moved from its matrix to the labels of either group, in units of
    1 / `unit`. `prices` are (resource, instant, multiplier in units of 1 / `price_unit`). `check.py` evaluates it.
    """

    steps: tuple[Step, ...]
    pairs: tuple[tuple[int, int], ...]
    messages: tuple[tuple[Ints, Ints], ...]
    unit: int
    prices: tuple[tuple[int, int, int], ...]
    price_unit: int


@dataclass(frozen=True)
class EliminationCertificate:
    """An order in which eliminating one variable after another is cheap, and multipliers of places.

    A variable is (node, -1), or (node, supply): what a node's strategies mean to a supply, where few strategies differ,
    or (-1 - j, supply): the items that the first j of a supply's nodes ask for together.
    `prices` are (resource, instant, multiplier in units of 1 / `price_unit`). `kept` are the strategies per node that
    no other one of the node equals or beats in everything (none given: all). `check_elimination.py` eliminates again.
    """

    order: tuple[tuple[int, int], ...]
    prices: Prices
    price_unit: int
    kept: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class SplitCertificate:
    """The strategies of one node in groups, and what certifies each group: the bound is the least of theirs.

    `parts[i]` is for the problem in which `node` has the strategies `groups[i]` alone, numbered anew in that order.
    `kept` as for an elimination: these strategies per node come first, and all else is about them.
    """

    node: int
    groups: tuple[tuple[int, ...], ...]
    parts: tuple[Certificate, ...]
    kept: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class PairDuals:
    """Of a source and a reader: what is moved from what they cost together `to_source` and `to_reader`, by strategy of
    each. `share` [strategy of the source, item]: what the reader pays of an item, where a supply is what joins them.
    """

    to_source: Ints
    to_reader: Ints
    share: Ints


@dataclass(frozen=True, eq=False)
class ShareCertificate:
    """Shares of what readers of one supply pay together, and what is moved between pairs of nodes and the nodes.

    `supplies`: by number of a supply, for each of its readers; those left out count nothing. `edges`: by number, of
    edges between different nodes. `prices`, `kept` as for an elimination. `check_shares.py` evaluates it.
    """

    supplies: Mapping[int, tuple[PairDuals, ...]]
    edges: Mapping[int, PairDuals]
    prices: Prices
    price_unit: int
    kept: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class NarrowedCertificate:
    """A relaxation that says what strategies cost at least, and what certifies the problem without some of them.

    `left`: per node the strategies that are left. All choices with another one cost at least what `first` says of that;
    of the problem in which nodes have those in `left` alone, numbered anew, `rest` is the certificate: none where some
    node has none left. `kept` as for an elimination: these strategies per node come first, and all else is about them.
    """

    first: EliminationCertificate | ShareCertificate
    left: tuple[tuple[int, ...], ...]
    rest: Certificate | None
    kept: tuple[tuple[int, ...], ...] = ()


Certificate = DualCertificate | EliminationCertificate | SplitCertificate | ShareCertificate | NarrowedCertificate


@dataclass(frozen=True)
class Conflict:
    """`nodes` cannot be assigned: at `instant` they need more of `resource` than there is.

    `places` are all the (resource, instant) that the proof needs; there are none where forbidden pairs alone rule out
    every choice, and then `instant` and `resource` are None. `smallest` says that no smaller set is a conflict.
    """

    nodes: tuple[int, ...]
    places: tuple[Place, ...]
    smallest: bool

    @property
    def resource(self) -> int | None:
        return self.places[0][0] if self.places else None

    @property
    def instant(self) -> int | None:
        return self.places[0][1] if self.places else None

    def describe(self, problem: AssignmentProblem) -> str:
        """One sentence with names and numbers, the largest few of the nodes first."""
        few = ", ".join(problem.node_name(v) for v in self.nodes[:6]) + (", …" if len(self.nodes) > 6 else "")
        if self.resource is None or self.instant is None:
            return f"the forbidden pairs among {len(self.nodes)} nodes ({few}) leave no choice"
        need = sum(least_use(problem, v, self.resource, self.instant) for v in self.nodes)
        limit, name = int(problem.limits[self.resource]), problem.resource_name(self.resource)
        nodes = f"{len(self.nodes)} nodes ({few})"
        if need <= limit:  # what each holds at the least would fit, but forbidden pairs keep them from it together
            return f"at instant {self.instant} {nodes} cannot be assigned together within {limit} of {name}"
        return f"at instant {self.instant} {nodes} need at least {need} of {name}, of which there is {limit}"


def least_use(problem: AssignmentProblem, v: int, resource: int, instant: int) -> int:
    """What node v holds at an instant at the very least."""
    use = use_of(problem, v, resource, instant)
    allowed = problem.costs[v] < FORBIDDEN // 2
    return int(use[allowed].min()) if allowed.any() else 0


def use_of(problem: AssignmentProblem, v: int, resource: int, instant: int) -> Ints:
    """What node v holds at an instant, per strategy."""
    usages = problem.usages
    total = np.zeros(int(problem.strategy_counts[v]), dtype=np.int64)
    rows = (usages.node == v) & (usages.resource == resource) & (usages.start <= instant) & (instant < usages.stop)
    for q in np.flatnonzero(rows):
        total += usages.amounts[int(q)]
    return total


@dataclass(frozen=True)
class Assignment:
    """`choice[v]` is the strategy of node v (empty if none was found), `cost` its exact cost.

    `bound` is a lower bound on the cost of every feasible choice that `check` recomputes from `certificate`; None where
    there is none. "optimal" means that the two meet. `claim` is what an exact solver says beyond that, on its word
    alone. Where `status` is "infeasible", `certificate` or `conflict` proves it, or else the claim is all there is.
    `history` are the improvements, as (seconds since the start, cost). `exhausted`: no engine would be asked for more,
    however long it might take.
    """

    status: Status
    choice: tuple[int, ...]
    cost: int | None
    bound: int | None
    certificate: Certificate | None
    conflict: Conflict | None
    wall_s: float
    seed: int
    history: tuple[tuple[float, int], ...] = ()
    claim: EngineClaim | None = None
    exhausted: bool = False

    @property
    def gap(self) -> float | None:
        """(cost − bound) / cost: how far from optimal the choice can be at most."""
        if self.cost is None or self.bound is None:
            return None
        return (self.cost - self.bound) / abs(self.cost) if self.cost else float(self.cost != self.bound)

    @property
    def certified_by(self) -> str | None:
        """What the bound is recomputed from, in words."""
        match self.certificate:
            case DualCertificate():
                return "duals"
            case EliminationCertificate():
                return "elimination"
            case SplitCertificate():
                return "elimination, case by case"
            case ShareCertificate():
                return "shares"
            case NarrowedCertificate():
                return "narrower and narrower"
        return None

    @property
    def claimed_by(self) -> str | None:
        """Whose word the claim is, and what it says."""
        return None if self.claim is None else f"{self.claim.engine}: {self.claim.status}"
