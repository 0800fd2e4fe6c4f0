"""Where memory is scarce: what cannot fit is said at once, and what is lowered only to be thrown away is not placed."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import Infeasible
from tapestry.planner import load_machine, parse_bytes, plan
from tapestry.planner.lowering.decisions import Schedule
from tapestry.planner.search.candidates import fitting, least_peak, lower
from tapestry.planner.search.question import Question
from tapestry.planner.search.search import searched
from tapestry.planner.strategy.mesh import Mesh
from tapestry.program import Program


@tp.program
def layered(x: f32[Tensor, "n c"], *, layers: int = 6) -> Tensor:
    for k in range(layers):
        x = tp.relu(tp.einsum("nc,ck->nk", x, tp.param(f"w{k}", "f32", (x.shape[1], x.shape[1]))))
    return x


LAYERED = layered.bind(n=64, c=128)
RESIDENT = 6 * 128 * 128 * 4


def said(program: Program, budget: int) -> tuple[list[str], Infeasible]:
    """What a refused plan says while it is looked for, and its error."""
    stages: list[str] = []
    with pytest.raises(Infeasible) as refused:
        plan(program, "cpu-4", memory={"host": budget}, progress=stages.append, time_limit=600)
    return stages, refused.value


def test_weights_that_do_not_fit_cut_over_all_ranks_are_tried_on_one_mesh_and_not_solved_for() -> None:
    stages, error = said(LAYERED, RESIDENT // 4 - 1)
    assert [stage for stage in stages if stage.startswith("mesh")] == ["mesh 4"]
    assert "lowering" not in stages
    budget = parse_bytes(str(error.hint).split("host=")[1].split()[0])
    assert plan(LAYERED, "cpu-4", memory={"host": budget}, time_limit=600).check().ok


def test_of_all_meshes_and_forms_the_error_names_the_least_budget() -> None:
    _, error = said(LAYERED, RESIDENT // 4 + 1024)
    budget = parse_bytes(str(error.hint).split("host=")[1].split()[0])
    assert RESIDENT // 4 < budget < RESIDENT // 2


@pytest.mark.parametrize("ahead", [0, 24])
def test_what_is_told_before_placing_is_no_more_than_places_take(ahead: int) -> None:
    machine = load_machine("cpu-4").with_memory({"host": RESIDENT})
    question = Question.of(LAYERED, machine, Mesh.of((4,), 4), time_limit=600)
    decisions = searched(question).first().candidate.decisions
    least = least_peak(question, decisions, Schedule(ahead))
    assert 0 < least <= lower(question, decisions, Schedule(ahead)).peak
    tight = replace(question, machine=machine.with_memory({"host": least - 1}))
    assert fitting(tight, decisions, Schedule(ahead)) is None
