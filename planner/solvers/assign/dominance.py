"""Strategies that another one of the same node equals or beats in everything, left out before the search.

A tensor that may lie in many ways has few that are best for some reader; where memory cannot bind, often a single one.
What is left out changes no optimum: whoever takes such a strategy may take the other one instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .places import Places, asked_of
from .problem import Ints
from .supply import supplied

Kept = tuple[tuple[int, ...], ...]


def undominated(places: Places, known: Sequence[NDArray[np.bool_]] | None = None) -> Kept:
    """Per node the strategies that are left, in order. Of equal ones the first is.

    `known`: of every supply [strategy of the source, item] whether its cost is more than a bound from below. What is
    not all known beats nothing.
    """
    kept = []
    joined = {v for pair in places.problem.edges.tolist() for v in pair}
    facts, asks = _facts(places), _asks(places)
    sure = [np.ones(len(costs), dtype=bool) for costs in facts]
    for supply, table in zip(places.problem.supplies if known is not None else (), known or (), strict=True):
        sure[supply.source] &= table.all(axis=1)
    for v, costs in enumerate(facts):
        one_by_one = v in joined
        kept.append(tuple(range(len(costs))) if one_by_one else _best(costs, asks[v], sure[v]))
    return tuple(kept)


def _facts(places: Places) -> list[Ints]:
    """Per node [strategies, everything that a strategy costs or holds, whatever the others take]."""
    problem = places.problem
    found = [[problem.costs[v][:, None]] for v in range(problem.node_count)]
    for supply in problem.supplies:
        found[supply.source].append(supply.costs)
    for row in places.rows:
        found[row.node].append(row.amounts.reshape(len(row.amounts), -1))
    return [np.unique(np.concatenate(columns, axis=1), axis=1) for columns in found]


def _asks(places: Places) -> list[Ints]:
    """Per node [strategies, what it asks of each supply that it reads]."""
    problem = places.problem
    found: list[list[Ints]] = [[] for _ in range(problem.node_count)]
    for supply in problem.supplies:
        for v, asks in zip(supply.readers, supply.asks, strict=True):
            found[v].append(asks)
    counts = problem.strategy_counts.tolist()
    return [np.array(rows, dtype=np.int64).reshape(-1, count).T for rows, count in zip(found, counts, strict=True)]


def _best(facts: Ints, asks: Ints, sure: NDArray[np.bool_]) -> tuple[int, ...]:
    left: NDArray[np.bool_] = np.ones(len(facts), dtype=bool)
    for s in np.flatnonzero(sure).tolist():
        if left[s]:
            beaten = left & (facts >= facts[s]).all(axis=1) & (asks == asks[s]).all(axis=1)
            beaten[s] = False
            left &= ~beaten
    return tuple(np.flatnonzero(left).tolist())


def settled(places: Places, choice: Sequence[int], kept: Kept) -> tuple[int, ...]:
    """The same choice with the first strategy that does as well, where some were left out: it often holds less.

    As well: given what the readers ask for, nothing costs more and no more is held anywhere.
    """
    problem = places.problem
    brought = [supplied(s, asked_of(s.readers, s.asks, choice)) for s in problem.supplies]
    facts = [[problem.costs[v][:, None]] for v in range(problem.node_count)]
    for supply, items in zip(problem.supplies, brought, strict=True):
        facts[supply.source].append(supply.costs[:, items])
    for row in places.rows:
        facts[row.node].append(row.amounts[:, None] if row.supply < 0 else row.amounts[:, brought[row.supply]])
    asks = _asks(places)
    settled = list(choice)
    for v, columns in enumerate(facts):
        if len(kept[v]) < len(columns[0]):
            table = np.concatenate(columns, axis=1)
            as_well = (table <= table[choice[v]]).all(axis=1) & (asks[v] == asks[v][choice[v]]).all(axis=1)
            settled[v] = int(as_well.argmax())
    return tuple(settled)
