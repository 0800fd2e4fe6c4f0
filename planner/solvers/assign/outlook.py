"""A look ahead where what some strategies cost is known from below alone: what elimination says without an answer.

The bound holds for whatever such strategies cost in truth, and so does how much more than it every choice with one of
them costs at least. What no choice within reach of a known one has need not be found out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from .dominance import Kept, undominated
from .eliminate import affordable
from .factors import TooWide
from .first import first_choices
from .lagrange import Relaxation, examine
from .places import places_of
from .problem import FORBIDDEN, AssignmentProblem, Ints
from .standing import Terms

Known = Sequence[NDArray[np.bool_]]
"""Of every supply [strategy of the source, item] whether the cost is what it is, and not only no more than that."""


@dataclass(frozen=True, eq=False)
class Outlook:
    """`spare`: per node, for each strategy how much more than the bound all choices with it cost at least.

    `choices` are some that fit, by the costs as they are known. `loose`: the bound may stay below all choices.
    `relaxation`: what says so, of the strategies `kept` alone, which are named per node.
    """

    bound: int
    spare: tuple[Ints, ...]
    choices: tuple[tuple[int, ...], ...]
    loose: bool
    relaxation: Relaxation | None = None
    kept: Kept = ()

    def within(self, reach: int) -> list[list[int]]:
        """Per node the strategies of the choices that cost at most so much more than the bound, or as little more as
        leaves every node one: a bound below all choices may say of some node that all of its strategies cost more.
        """
        least = max(int(mine.min()) for mine in self.spare)
        return [np.flatnonzero(mine <= max(reach, least)).tolist() for mine in self.spare]


def outlook(
    problem: AssignmentProblem,
    known: Known | None = None,
    gap: float = 0.0,
    until: float = inf,
    after: tuple[Outlook, Sequence[Sequence[int]]] | None = None,
) -> Outlook | None:
    """What elimination says of a problem with supplies; None where nothing was seen to fit.

    `known`: all of it by default. `gap` and `until` as in `Relaxation.ascend`. `after`: an outlook on a problem in
    which less was known, and per node those of its strategies that are left, all of them within a reach of it.
    """
    kept = undominated(places_of(problem), known)
    relaxation = _begun(problem.restricted(kept), kept, affordable(until - time.monotonic()), after)
    relaxation.ascend(gap, until)
    choices = _fitting(relaxation)
    if relaxation.impossible or not choices:
        return None
    spare = relaxation.engine.spare()
    whole = []
    for v, (mine, count) in enumerate(zip(kept, problem.strategy_counts.tolist(), strict=True)):
        every = np.full(count, FORBIDDEN, dtype=np.int64)
        every[list(mine)] = spare[v]
        whole.append(every)
    named = tuple(tuple(mine[s] for mine, s in zip(kept, choice, strict=True)) for choice in choices)
    return Outlook(relaxation.bound, tuple(whole), named, not relaxation.whole, relaxation, kept)


def _begun(
    problem: AssignmentProblem, kept: Kept, most_work: int, after: tuple[Outlook, Sequence[Sequence[int]]] | None
) -> Relaxation:
    """Where an earlier bound stands, if that is by shares, of which many sweeps make one; else anew."""
    before, near = after or (None, ())
    if before is None or before.relaxation is None or before.relaxation.whole:
        return Relaxation.at_most(places_of(problem), most_work)
    place = [{s: k for k, s in enumerate(mine)} for mine in before.kept]
    # What was left out before, and is within a reach beyond all costs, may begin as any other: no bound hangs on that.
    same = [[place[v].get(near[v][s], 0) for s in mine] for v, mine in enumerate(kept)]
    return before.relaxation.among(problem, same, most_work)


def least_cost(problem: AssignmentProblem, most_work: int) -> int | None:
    """What every choice costs at least, by one elimination; None where that would go through more entries."""
    try:
        relaxation = Relaxation.of(places_of(problem), most_work)
    except TooWide:
        return None
    relaxation.begin()
    return relaxation.bound


def _fitting(relaxation: Relaxation) -> list[tuple[int, ...]]:
    """The choices seen that fit; where the bound may stay below them all, better ones beside them."""
    if relaxation.whole:
        return [trial.choice for trial in relaxation.trials if trial.fits]
    places, seen = relaxation.places, [trial.choice for trial in relaxation.by_cost]
    found = [*seen, *first_choices(Terms.of(places), also=seen[:1])]
    return [choice for choice in found if examine(places, choice).fits]
