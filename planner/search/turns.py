"""Operations in turns: asked for where memory is short, and tried where ranks wait for what is gathered.

What an operation gathers whole is there at once, before it starts; in turns a rank has two blocks of it, and the next
block comes while one is used. A model in which operations may be in turns has more options, so it is only written
down where some operation would leave that much memory free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...errors import Infeasible, TimeLimit
from ..sharding.nodes import OperationNode
from ..strategy.strategies import Strategy
from ..strategy.turning import in_turns
from .candidates import Candidate, fitting
from .effort import FEW
from .found import Found
from .question import Question
from .search import Search, searched

# Turns are asked for where more than this share of memory is taken, and some operation takes that share less of it.
TIGHT, SAVING = 0.9, 0.05
# Ranks wait, if they do for this share of the time. A plan is worth having that is as much shorter.
WAITING, WORTH = 0.01, 0.99
# What the solver finds in turns is taken if it is as much shorter.
SHORTER = 0.999
# Lowered operations in all trials together, of plans for few ranks.
EFFORT = 2500
# Turns that are tried at most, those of all ranks together, and how many of each rank whatever the number of ranks.
TURNS, FEWEST = 1024, 8


def first_answer(question: Question) -> tuple[Search, Found]:
    """The problem of a question with its first answer; where memory is short, operations may be in turns as well, which
    then take less of it. Raises Infeasible or TimeLimit.
    """
    search = searched(question)
    try:
        first = search.first()
    except Infeasible:
        turned = searched(question, turning=True)
        if not _offered(turned):
            raise
        return turned, turned.first()
    if question.clock.up or not _would_help(question, first):
        return search, first
    other = _answered_in_turns(question)
    return other if other is not None and other[1].makespan_s < first.makespan_s else (search, first)


def _answered_in_turns(question: Question) -> tuple[Search, Found] | None:
    """The first answer where operations may be in turns; None where none may, or where none is found in time."""
    try:
        search = searched(question, turning=True)
        return (search, search.first()) if _offered(search) else None
    except (Infeasible, TimeLimit):
        return None


def improved(search: Search, first: Found) -> Found:
    """An answer made better: by the search, and by turns that hide transfers, unless operations are left whole."""
    question, best = search.question, search.improved(first)
    if question.objective != "time" or not question.pieces:
        return best
    best = _hidden(question, best)
    small = question.toil <= FEW and search.written and not search.translation.lazy and not question.clock.up
    return _asked_for(question, best) if small and _waits(question, first) and any(_turned(question, first)) else best


def _asked_for(question: Question, best: Found) -> Found:
    """What the solver finds where operations may be in turns, if that is shorter: what they read then lies before the
    run as they begin with it.
    """
    _, other = _answered_in_turns(question) or (None, best)
    return replace(best, candidate=other.candidate) if other.makespan_s < SHORTER * best.makespan_s else best


def _waits(question: Question, found: Found) -> bool:
    """Whether ranks wait for transfers that could be hidden."""
    timeline = found.candidate.timeline
    return question.machine.device.overlap and timeline.exposed_transfer_s > WAITING * timeline.makespan_s


def _offered(search: Search) -> bool:
    """Whether any operation of a model may be in turns."""
    nodes = (node for node in search.model.nodes if isinstance(node, OperationNode))
    return any(strategy.turns is not None for node in nodes for strategy in node.strategies)


def _would_help(question: Question, found: Found) -> bool:
    """Whether memory is nearly full, and some operation would take clearly less of it."""
    if found.candidate.peak <= TIGHT * question.capacity:
        return False
    return any(_saved(question, name, one) > SAVING * question.capacity for name, one, _ in _turned(question, found))


def _saved(question: Question, name: str, strategy: Strategy) -> int:
    """Bytes of a rank that an operation takes less in turns than at once."""
    assert strategy.turns is not None
    op, program = question.program.op_by_name[name], question.program
    saved = -strategy.turns.workspace
    for k, stages in strategy.turns.stages.items():
        every = stages.layouts[0].everything.size
        saved += (every - stages.layouts[0].storage_size) * program.tensor(op.operands[k]).itemsize
    return saved


def _turned(question: Question, found: Found) -> Iterator[tuple[str, Strategy, Strategy]]:
    """Operations that are computed at once, each with its strategy in turns and as it is; equal ones once."""
    seen: set[int] = set()
    most = max(FEWEST, TURNS // question.mesh.size)
    decisions = found.candidate.decisions
    for op in question.program.operations:
        whole = decisions.strategies[op.name]
        if whole.turns is None and op.name not in decisions.pieces and id(whole) not in seen:
            seen.add(id(whole))
            turned = in_turns(op, whole, question.table, question.pricing, most)
            yield from ((op.name, one, whole) for one in turned)


def _hidden(question: Question, best: Found) -> Found:
    """Operations put in turns while that makes the run shorter, all that are alike together."""
    trials = EFFORT // question.toil
    if not trials or question.clock.up or not _waits(question, best):
        return best
    for _, turned, whole in list(_turned(question, best)):
        if trials <= 0 or question.clock.up:
            break
        trials -= 1
        other = _instead(question, best.candidate, whole, turned)
        if other is not None:
            best = replace(best, candidate=other)
    return best


def _instead(question: Question, candidate: Candidate, whole: Strategy, turned: Strategy) -> Candidate | None:
    """The plan with one strategy in the place of another, wherever it is; None where it does not fit, or is hardly
    shorter.
    """
    strategies = {name: turned if mine is whole else mine for name, mine in candidate.decisions.strategies.items()}
    below = WORTH * candidate.timeline.makespan_s
    other = fitting(question, replace(candidate.decisions, strategies=strategies), candidate.schedule, below)
    return other if other is not None and other.timeline.makespan_s < below else None
