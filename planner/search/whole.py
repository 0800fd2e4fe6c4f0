"""Pieces that hide nothing are put together again, one operation at a time.

Copies of a repeated layer are cut alike, and what is cut later may hide what was cut for: the first block of a network
waits for the borders of its stem, and the next ones, cut like it, wait for nothing. Small tasks take longer than a
large one, so each operation in pieces is computed at once where that is shorter.
"""

from __future__ import annotations

from dataclasses import replace

from ..lowering.decisions import Decisions
from .candidates import fitting
from .effort import WORTH
from .found import Found
from .question import Question

# Trials at most, and lowered operations in all of them.
TRIALS, EFFORT = 40, 500


def whole_again(question: Question, found: Found) -> Found:
    """The same with operations at once that are not worth their pieces."""
    decisions, schedule = found.candidate.decisions, found.candidate.schedule
    losses = {name: _lost(decisions, name) for name in decisions.pieces}
    worth = [name for name, loss in losses.items() if loss > (1 - WORTH) * found.makespan_s]
    trials = min(TRIALS, EFFORT // question.toil)
    for name in sorted(worth, key=lambda name: -losses[name])[:trials]:
        if question.clock.up:
            break
        decisions = found.candidate.decisions
        others = {other: pieces for other, pieces in decisions.pieces.items() if other != name}
        below = WORTH * found.makespan_s
        candidate = fitting(question, replace(decisions, pieces=others), schedule, below)
        if candidate is not None and candidate.timeline.makespan_s < below:
            found = replace(found, candidate=candidate)
    return found


def _lost(decisions: Decisions, name: str) -> float:
    """What the tasks of an operation take longer on the busiest rank than it does at once."""
    each = [task.seconds for piece in decisions.pieces[name] for task in piece]
    return max(map(sum, zip(*each, strict=True))) - decisions.strategies[name].slowest
