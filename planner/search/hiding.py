"""Answers beside the best that move more, and may hide more of it: an operation of much work is cut otherwise.

The solver and the trials of single decisions look at what costs least, transfers added up. What costs a little more
may wait for nothing once it is in pieces: rows of an image in place of blocks, whose halos lie along one side. Between
the two lie answers that cost much more, as an operation that is cut otherwise alone is moved to and from: so the solver
is asked again, and all else follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..sharding.model import PICO, TIE
from ..sharding.nodes import OperationNode
from .effort import EXPOSED, WORTH
from .found import Found

if TYPE_CHECKING:
    from .search import Search

# Operations that are cut otherwise, and in how many other ways each; what an operation takes of all work at least.
OPERATIONS, WAYS, HEAVY = 3, 2, 0.1
# Options of all decisions together, beyond which an answer takes too long to be asked for again; how many are lowered.
MANY, LOWERED = 300, 3


def hiding(search: Search, best: Found) -> list[Found]:
    """Answers with an operation cut otherwise that would be shorter if all that they move were hidden, lowered: those
    that fit.
    """
    question, costs = search.question, search.costs
    overlaps = question.pieces and question.machine.device.overlap and best.least_s < WORTH * best.makespan_s
    options = sum(len(search.model.nodes[node].labels) for node in best.choice)
    if not overlaps or options > MANY or best.solution.status == "fallback":  # nothing is asked without a solver
        return []
    known = [costs.parts(choice) for choice in (best.choice, *(other.choice for other in search.seen))]
    found: list[tuple[int, dict[int, int]]] = []
    for choice in _otherwise(search, best):
        parts = costs.parts(choice)  # what costs the same is the same along other axes
        at_work = max(parts["compute"], parts["values"] + parts["resident"])
        if parts not in known and at_work < WORTH * best.makespan_s * PICO:
            known.append(parts)
            found.append((at_work, choice))
    chosen = [choice for _, choice in sorted(found, key=lambda pair: pair[0])[:LOWERED]]
    lowered = [search.lowered(choice, best.solution) for choice in chosen if not question.clock.up]
    return [each for each in lowered if each.candidate.peak <= question.capacity]


def _otherwise(search: Search, best: Found) -> Iterator[dict[int, int]]:
    """The solver's answers without what the operations of most work are cut along, and without that of these."""
    model, capacity = search.model, search.question.capacity
    work = {
        node: model.weight[node] * model.work(node, option)
        for node, option in best.choice.items()
        if isinstance(model.nodes[node], OperationNode)
    }
    heavy = [node for node in sorted(work, key=lambda node: -work[node]) if work[node] > HEAVY * sum(work.values())]
    for node in heavy[:OPERATIONS]:
        without = {best.choice[node]}
        for _ in range(WAYS):
            if search.late or len(without) == len(model.nodes[node].labels):
                break
            answer = search.asked(capacity, EXPOSED[1], without=[(node, option) for option in without])
            if not answer.choice or answer.bound >= WORTH * best.makespan_s * TIE * PICO:
                break
            without.add(answer.choice[node])
            yield answer.choice
