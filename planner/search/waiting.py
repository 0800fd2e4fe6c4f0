"""Operations that are waited for, decided otherwise while that makes the run shorter.

Of single decisions those are tried that cost least by the model, which counts a transfer alike wherever it falls. What
is waited for may be worth more than it says: a gradient that is folded on all ranks and added up after all is computed
takes less than one that gathers what it folds, and the gathering goes on beside other work.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ..sharding.nodes import OperationNode
from .candidates import decide, fitting
from .effort import WORTH
from .found import Found
from .near import changed, cheapest
from .pieces import WAITING, waited

if TYPE_CHECKING:
    from .search import Search

# Trials at most, and lowered operations in all of them.
TRIALS, EFFORT = 40, 1500


def waiting_less(search: Search, best: Found) -> Found:
    """The answer with decisions of operations that are waited for changed one at a time, in so many trials."""
    question = search.question
    trials = min(TRIALS, EFFORT // question.toil)
    improved = question.machine.device.overlap
    while improved and trials > 0:
        improved = False
        near = changed(search.least_costs, best.choice, question.clock, _waited_for(search, best))
        for choice in cheapest(near, search.costs.of, trials):
            if question.clock.up:
                return best
            trials -= 1
            below = WORTH * best.makespan_s
            decisions = decide(search.model.nodes, search.model, choice)
            candidate = fitting(question, decisions, best.candidate.schedule, below)
            if candidate is not None and candidate.timeline.makespan_s < below:
                best, improved = Found(candidate, choice, best.solution), True
                break
    return best


def _waited_for(search: Search, found: Found) -> set[int]:
    """The decisions of operations that are worth a trial."""
    seconds = defaultdict[str, float](float)
    for name, waits in waited(found.candidate, search.question.program):
        seconds[name] += waits
    return {
        search.model.tied_to[k]
        for k, node in enumerate(search.model.nodes)
        if isinstance(node, OperationNode) and seconds[node.name] > WAITING * found.makespan_s
    }
