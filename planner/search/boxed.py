"""Plans with contractions in unequal boxes, where no grid of so many ranks has sides that are near: on 5 ranks, or 7.

Boxes move less in all, but some ranks more than others, and all wait for these; and a row of slabs hides more of what
it moves in pieces. So they are asked for beside the best plan without, and kept where that simulates shorter.
"""

from __future__ import annotations

from ...errors import Infeasible, TimeLimit
from .effort import FEW, WORTH
from .found import Found
from .leaner import NothingFits, answered
from .question import Question
from .search import Search
from .turns import improved

# Of what ranks receive on the best grid, what they do in boxes that are tried: some ranks receive more than others.
LESS = 0.9
WAITING = 1.01  # of what ranks compute, what the best plan takes that leaves something to be gained


def in_boxes(question: Question, best: Found) -> tuple[Search, Found] | None:
    """The plan that is shorter than the best with contractions in boxes, if there is one."""
    alike = question.objective == "time" and not question.pins and not question.mesh.weights
    timeline = best.candidate.timeline
    waits = timeline.makespan_s > WAITING * timeline.compute_s
    if not (alike and waits and len(question.program.operations) <= FEW) or question.clock.up:
        return None
    boxed = question.in_boxes(LESS)
    if not any(map(boxed.table.in_boxes, boxed.program.operations)):
        return None
    question.say("boxes")
    try:
        search, first = answered(boxed)
        found = improved(search, search.settled(first))
    except (Infeasible, NothingFits, TimeLimit):
        return None
    return (search, found) if found.makespan_s < WORTH * best.makespan_s else None
