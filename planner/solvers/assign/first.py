"""A first choice for problems that elimination is too wide for: the least of each node, then one node after another
decided again as long as that helps. What CP-SAT starts from, and what is left where its time is too short.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from .lagrange import Trial, examine
from .places import Places
from .problem import FORBIDDEN

_EXAMINED = 3000  # choices at most


def first_choices(places: Places, until: float) -> Iterator[tuple[int, ...]]:
    """Choices that may fit, better and better, until the moment `until` by the monotonic clock."""
    best: Trial | None = None
    for start in _starts(places):
        trial = examine(places, start)
        if trial.linear < FORBIDDEN // 2 and (best is None or _rank(places, trial) < _rank(places, best)):
            best = trial
    if best is None:
        return
    yield best.choice
    left, counts = _EXAMINED, places.problem.strategy_counts.tolist()
    improved = True
    while improved:
        improved = False
        for v, count in enumerate(counts):
            for s in range(count):
                if left <= 0 or time.monotonic() > until:
                    yield best.choice
                    return
                left -= 1
                trial = examine(places, (*best.choice[:v], s, *best.choice[v + 1 :]))
                if trial.linear < FORBIDDEN // 2 and _rank(places, trial) < _rank(places, best):
                    best, improved = trial, True
    yield best.choice


def _rank(places: Places, trial: Trial) -> tuple[int, int]:
    """How far over the limits, then what it costs."""
    over = int(np.maximum(trial.profile - places.limit, 0).max(initial=0))
    return over, trial.cost


def _starts(places: Places) -> Iterator[tuple[int, ...]]:
    """Each node's cheapest strategy, its first, its last, and the one that holds least."""
    problem = places.problem
    nodes = range(problem.node_count)
    yield tuple(int(problem.costs[v].argmin()) for v in nodes)
    yield tuple(0 for _ in nodes)
    yield tuple(int(count) - 1 for count in problem.strategy_counts)
    held = [np.where(problem.costs[v] < FORBIDDEN // 2, 0, FORBIDDEN).astype(np.float64) for v in nodes]
    for row in places.rows:
        if row.supply < 0:
            held[row.node] = held[row.node] + row.amounts
    yield tuple(int(amounts.argmin()) for amounts in held)
