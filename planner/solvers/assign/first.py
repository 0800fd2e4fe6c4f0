"""First choices, before any engine that takes time: one node decided after another, again as long as that helps.

What the engines start from, and what is left where their time is too short. The work is counted, not timed: equal
problems have equal first choices on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .problem import FORBIDDEN
from .standing import OPEN, Rank, Standing, Terms

WORK = 5000  # decisions (tenths of a millisecond, about), after which no further start is made
_SHAKES = 8  # times at least that a part of the best choice is decided anew
_IN_VAIN = 12  # times in turn without anything better, after which it is left at that
_SHARES = 12  # one start takes one of so many parts of the work at most
_SHARE = 4  # of the nodes one in so many is then


def first_choices(
    terms: Terms, work: int = WORK, seed: int = 0, also: Sequence[Sequence[int]] = ()
) -> Iterator[tuple[int, ...]]:
    """Choices, each better than the one before; the last may still choose something forbidden or break a limit.

    `also`: choices to start from before any other.
    There is always one. `work`: decisions before it is left at that, the first pass over all nodes not counted.
    """
    most = work // _SHARES
    several = [v for v, costs in enumerate(terms.costs) if len(costs) > 1]
    best: tuple[Rank, list[int]] | None = None
    for start in (*map(list, also), *_starts(terms)):
        standing = Standing(terms, start)
        work -= _descend(standing, several, min(work, most))
        rank = standing.rank()
        if best is None or rank < best[0]:
            best = rank, standing.choice
            yield tuple(standing.choice)
        if work <= 0:
            return
    assert best is not None
    if several:
        yield from _shaken(terms, several, *best, work, random.Random(seed))


def _descend(standing: Standing, several: Sequence[int], work: int) -> int:
    """Decides one node after another, all of them once, and again while that helps; returns the work."""
    changed = True
    while changed:
        changed = False
        for v in several:
            if standing.work >= work and standing.choice[v] != OPEN:
                continue
            changed |= standing.decide(v)
    return standing.work


def _shaken(
    terms: Terms, several: Sequence[int], rank: Rank, choice: Sequence[int], work: int, chance: random.Random
) -> Iterator[tuple[int, ...]]:
    """From the best so far, with some nodes open and decided again in another order."""
    most, vain = work // _SHAKES, 0
    while work > 0 and vain < _IN_VAIN:
        vain += 1
        opened = chance.sample(several, max(1, len(several) // _SHARE))
        standing = Standing(terms, [OPEN if v in opened else s for v, s in enumerate(choice)])
        for v in opened:
            standing.decide(v)
        work -= _descend(standing, several, most)
        if (better := standing.rank()) < rank:
            rank, choice, vain = better, standing.choice, 0
            yield tuple(choice)


def _starts(terms: Terms) -> Iterator[list[int]]:
    """All that can be decided open; each node's cheapest strategy, its first, its last, the one that holds least."""
    yield [OPEN if len(costs) > 1 else 0 for costs in terms.costs]
    yield [int(costs.argmin()) for costs in terms.costs]
    yield [0 for _ in terms.costs]
    yield [len(costs) - 1 for costs in terms.costs]
    yield [int(_held(terms, v).argmin()) for v in range(len(terms.costs))]


def _held(terms: Terms, v: int) -> NDArray[np.float64]:
    """What a node holds per strategy, over all the places together."""
    total = np.where(terms.costs[v] < FORBIDDEN // 2, 0.0, np.inf)
    for span in terms.held[v]:
        total = total + span.amounts * float((span.end - span.begin).sum())
    return total
