"""Choices one decision away: homes of a source that cost the same are told apart by name alone."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tapestry.planner import load_machine
from tapestry.planner.search.candidates import decide, fitting
from tapestry.planner.search.near import elsewhere
from tapestry.planner.search.question import Question
from tapestry.planner.search.search import Search, searched
from tapestry.planner.sharding.nodes import OperationNode
from tapestry.planner.strategy.mesh import Mesh
from tapestry.program import Program

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import convnet  # type: ignore[import-not-found]
import moe  # type: ignore[import-not-found]

PROGRAMS = {"convnet": convnet.forward.bind(), "moe": moe.layer.bind()}


def around(program: Program) -> Search:
    """What a program is planned by on 2 x 4."""
    return searched(Question.of(program, load_machine("h200x8"), Mesh.of((2, 4), 8), time_limit=600))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_homes_that_cost_the_same_make_plans_that_take_equally_long(name: str) -> None:
    search = around(PROGRAMS[name])
    best = search.first()
    seconds: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for choice in search.neighbours(best.choice, 80):
        home = elsewhere(search.costs, best.choice, choice)
        found = fitting(search.question, decide(search.model.nodes, search.model, choice), best.candidate.schedule)
        if home is not None and found is not None:
            seconds[home].append(found.timeline.makespan_s)
    assert any(len(some) > 1 for some in seconds.values())
    assert all(max(some) <= min(some) * (1 + 1e-9) for some in seconds.values())


def test_decisions_of_operations_are_all_tried() -> None:
    search = around(PROGRAMS["moe"])
    best = search.first()
    nodes = search.model.nodes
    for node, option in best.choice.items():
        for other in range(len(nodes[node].labels)):
            if other != option and isinstance(nodes[node], OperationNode):
                assert elsewhere(search.costs, best.choice, {**best.choice, node: other}) is None
