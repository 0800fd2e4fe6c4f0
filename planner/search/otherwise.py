"""Answers beside the solver's best, where that fits by the model and not once packed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..sharding.solving import Solution
from .found import Found

if TYPE_CHECKING:
    from .search import Search

# Answers without one of the best one's decisions that are lowered.
LOWERED = 6
# Options of all decisions together, beyond which an answer takes too long to be asked for again without each of them.
MANY = 300


def otherwise(search: Search, best: Solution) -> Found | None:
    """The shortest that fits once packed of the answers without one of the decisions of the best; all that fit are
    among those seen.

    What takes as much by the model may take less packed, and where less is asked for it is left out.
    """
    found = []
    if sum(len(search.model.nodes[node].labels) for node in best.choice) > MANY:
        return None
    for node, option in best.choice.items():
        if len(search.model.nodes[node].labels) > 1 and not search.question.clock.up:
            found.append(search.asked(search.budget, without=((node, option),)))
    tried: list[dict[int, int]] = []
    for other in sorted((each for each in found if each.choice), key=lambda each: each.objective):
        if other.choice not in tried and len(tried) < LOWERED and not search.question.clock.up:
            tried.append(other.choice)
            made = search.lowered(other.choice, replace(other, status="feasible", bound=best.bound))
            search.seen += [made] if made.candidate.peak <= search.question.capacity else []
    return min(search.seen, key=lambda each: each.makespan_s, default=None)
