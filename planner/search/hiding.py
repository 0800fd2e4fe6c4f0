"""Answers beside the best that move more, and may hide more of it: an operation of much work is cut otherwise.

The solver and the trials of single decisions look at what costs least, transfers added up. What costs a little more
may wait for nothing once it is in pieces: rows of an image in place of blocks, whose halos lie along one side. Between
the two lie answers that cost much more, as an operation that is cut otherwise alone is moved to and from: so the solver
is asked again, and all else follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..sharding.model import PICO, TIE
from ..sharding.nodes import OperationNode
from .effort import EXPOSED, WORTH
from .found import Found

if TYPE_CHECKING:
    from .search import Search

# Operations that are cut otherwise, and in how many other ways each; what an operation takes of all work at least.
OPERATIONS, WAYS, HEAVY = 3, 2, 0.1
# An answer that counts transfers by half says little of one that hides them: it is looked at up to so much longer.
ABOUT = 1.1
# Options of all decisions together, beyond which an answer takes too long to be asked for again; how many are lowered.
MANY, LOWERED = 300, 3


def hiding(search: Search, best: Found) -> list[Found]:
    """Answers with an operation cut otherwise that would be shorter if all that they move were hidden, lowered: those
    that fit. Where the best waits for nothing, the one that works least is cut otherwise.
    """
    question, costs = search.question, search.costs
    near = best if best.least_s < WORTH * best.makespan_s else min((best, *search.seen), key=lambda each: each.least_s)
    overlaps = question.pieces and question.machine.device.overlap and near.least_s < WORTH * best.makespan_s
    options = sum(len(search.model.nodes[node].labels) for node in best.choice)
    if not overlaps or options > MANY or best.solution.status == "fallback":  # nothing is asked without a solver
        return []
    known = [(costs.parts(c), _partial(search, c)) for c in (best.choice, *(other.choice for other in search.seen))]
    found: list[tuple[int, dict[int, int]]] = []
    for choice in _otherwise(search, near, best.makespan_s):
        # What costs the same is the same along other axes, unless ranks send what they fold in place of what they read.
        parts, partial = costs.parts(choice), _partial(search, choice)
        at_work = max(parts["compute"], parts["values"] + parts["resident"])
        if (parts, partial) not in known and at_work < WORTH * best.makespan_s * PICO:
            known.append((parts, partial))
            found.append((at_work, choice))
    chosen = [choice for _, choice in sorted(found, key=lambda pair: pair[0])[:LOWERED]]
    lowered = [search.lowered(choice, best.solution) for choice in chosen if not question.clock.up]
    return [each for each in lowered if each.candidate.peak <= question.capacity]


def _partial(search: Search, choice: Mapping[int, int]) -> set[int]:
    """The operations of which ranks have partial results."""
    nodes = search.model.nodes
    return {
        node
        for node, option in choice.items()
        if isinstance(made := nodes[node], OperationNode) and made.homes[option].parts is not None
    }


def _otherwise(search: Search, near: Found, below: float) -> Iterator[dict[int, int]]:
    """The solver's answers without what the operations of most work are cut along, and without that of these, that take
    little more than ``below`` seconds, if more.
    """
    model, capacity = search.model, search.question.capacity
    work = {
        node: model.weight[node] * model.work(node, option)
        for node, option in near.choice.items()
        if isinstance(model.nodes[node], OperationNode)
    }
    heavy = [node for node in sorted(work, key=lambda node: -work[node]) if work[node] > HEAVY * sum(work.values())]
    for node in heavy[:OPERATIONS]:
        without = {near.choice[node]}
        for _ in range(WAYS):
            if search.late or len(without) == len(model.nodes[node].labels):
                break
            answer = search.asked(capacity, EXPOSED[1], without=[(node, option) for option in without])
            if not answer.choice or answer.bound >= ABOUT * below * TIE * PICO:
                break
            without.add(answer.choice[node])
            yield answer.choice
