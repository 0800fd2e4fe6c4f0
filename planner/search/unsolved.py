"""Plans that need no solver, for where the time is short: the best of a few choices, changed one decision at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..sharding.model import Costs, combine, least_objective
from ..sharding.solving import Solution
from .found import Found
from .starts import along, cut, lean, uncut

if TYPE_CHECKING:
    from .search import Search

# Shares of the time that is left for what is cut as dimensions are carried, and for changes of it; how many of these
# are counted; and how many times as much as what fits first an answer may cost that is looked at beside it.
NAMED, DESCENDING, DESCENT, NEAR = 0.4, 0.6, 2000, 2
# Of all of the time, what the former take even if there is less left.
AT_LEAST = 0.08


def shortest(search: Search, choices: Iterator[dict[int, int]], share: float = 1.0) -> Found | None:
    """The shortest of the plans with these choices, as long as a share of the time is not gone that is left. ``share``
    of less than 1: none where the first does not fit, as a solver is asked next; else until one fits.
    """
    q, fitting, late = search.question, list[Found](), search.question.clock.after(share)
    q.say("lowering")
    for choice in choices:
        cost = search.costs.of(choice)
        if fitting and cost > NEAR * fitting[0].solution.objective:
            continue
        found = search.lowered(choice, Solution("fallback", choice, cost, least_objective(search.model)))
        fitting += [found] if found.candidate.peak <= q.capacity else []
        if late() if fitting else share < 1:
            break
    return min(fitting, key=lambda f: f.makespan_s, default=None)


def unsolved(search: Search) -> Iterator[dict[int, int]]:
    """Choices that need no solver, the most promising first. What is cut last may be in the way of changes, so changes
    are made before it, too.
    """
    model, clock, costs = search.model, search.question.clock, search.costs
    stages = along(model, costs.of, clock.after(NAMED, AT_LEAST))
    starts = [stages[-1]] if len(stages) < 3 else [stages[-1], stages[1]]
    share = DESCENDING / len(starts)
    yield from sorted((descended(costs, start, clock.after(share)) for start in starts), key=costs.of)
    yield from (lean(model, stages[-1]), uncut(model), cut(model))


def descended(costs: Costs, start: Mapping[int, int], late: Callable[[], bool]) -> dict[int, int]:
    """What is cheaper by the model than a choice: one decision after another is taken anew until it is late.

    It may need more memory.
    """
    choice, parts, left = dict(start), costs.parts(start), DESCENT
    options = [(node, k) for node in sorted(start) for k in range(len(costs.model.nodes[node].labels))]
    improved = True
    while improved:
        improved = False
        for node, option in options:
            if left <= 0 or late():
                break
            left -= 1
            was, changed = choice[node], costs.changed(choice, parts, node, option)
            if combine(costs.model.objective, changed) < combine(costs.model.objective, parts):
                parts, improved = changed, True
            else:
                choice[node] = was
    return choice
