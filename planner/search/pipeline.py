"""From a question to a plan document: strategies, one assignment problem, its answers lowered, the shortest kept."""

from __future__ import annotations

from ..format import Document
from ..sharding.bound import lower_bound
from ..sharding.model import build_model
from ..sharding.nodes import all_nodes
from ..sharding.repetition import find_repetition
from .question import Question
from .report import with_report
from .search import Search


def make_plan(question: Question) -> Document:
    """The whole of it. Raises Infeasible, TimeLimit or UsageError."""
    question.say("strategies")
    nodes = all_nodes(question.program, question.table, question.objective, question.pins, question.clock)
    repetition = find_repetition(question.program)
    model = build_model(question.program, nodes, repetition, question.pricing, question.objective)
    question.say("solving")
    bound = lower_bound(question.program, question.machine, question.mesh.size)
    return with_report(Search(question, model).run(), model, bound, question)
