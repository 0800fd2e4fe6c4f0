"""Deep programs with most of their layers left out, by which schedules are told apart."""

from __future__ import annotations

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.dsl.program import ProgramFunction
from tapestry.planner import load_machine
from tapestry.planner.search import candidates
from tapestry.planner.search.candidates import best_candidate
from tapestry.planner.search.question import Question
from tapestry.planner.search.search import Search, searched
from tapestry.planner.search.shallow import KEPT, Shallow
from tapestry.planner.sharding.repetition import find_repetitions
from tapestry.planner.strategy.mesh import Mesh
from tapestry.program import Program
from tapestry.verify import verify

from ..training_step import trained


@tp.program
def forward(x: f32[Tensor, "n c"], *, layers: int = 4) -> Tensor:
    for k in range(layers):
        x = tp.relu(tp.einsum("nc,cd->nd", x, tp.param(f"w{k}", "f32", (x.shape[1], x.shape[1])))) + x
    return x


def few_layers(program: Program) -> Program:
    found = Shallow(program, find_repetitions(program)).program
    assert found is not None
    return found


@pytest.mark.parametrize("program", [trained, forward])
@pytest.mark.parametrize("layers", [16, 17, 30])
def test_what_is_kept_is_a_program_of_operations_as_they_were(program: ProgramFunction, layers: int) -> None:
    whole = program.bind(n=8, c=6, layers=layers)
    few = few_layers(whole)
    verify(few)
    for op in few.operations:
        assert few.graph.structure(op) == whole.graph.structure(whole.op_by_name[op.name])
    assert len(few.operations) <= (KEPT + 2) * len(whole.operations) / layers + 20


@pytest.mark.parametrize("program", [trained, forward])
def test_what_is_left_out_repeats_what_is_kept(program: ProgramFunction) -> None:
    whole = program.bind(n=8, c=6, layers=16)
    shallow = Shallow(whole, find_repetitions(whole))
    assert shallow.program is not None
    kept = shallow.program.op_by_name
    assert {left for left, _ in shallow.instead} == whole.op_by_name.keys() - kept.keys()
    for left, instead in shallow.instead:
        assert instead in kept
        assert whole.graph.structure(whole.op_by_name[left]) == whole.graph.structure(whole.op_by_name[instead])


def test_a_program_without_many_layers_is_left_as_it_is() -> None:
    whole = trained.bind(n=8, c=6, layers=4)
    assert Shallow(whole, find_repetitions(whole)).program is None


def deep_search(layers: int, devices: int) -> tuple[Search, Question]:
    program = trained.bind(n=2048, c=2048, layers=layers)
    machine = load_machine("h200x8")
    question = Question.of(program, machine, Mesh.of((devices,), machine.device_count))
    return searched(question), question


@pytest.mark.parametrize(("layers", "devices"), [(31, 4), (32, 8)])
def test_the_schedule_of_few_layers_is_about_as_short_as_the_best_of_all(layers: int, devices: int) -> None:
    search, question = deep_search(layers, devices)
    found = search.fitting()
    assert found is not None
    decisions = found.candidate.decisions
    few = question.of_few_layers(decisions)
    assert few is not None
    assert len(few.program.operations) < len(question.program.operations) / 2
    shortest = candidates._first_placed(question, candidates._tried(question, decisions, 0.0))
    assert shortest is not None
    assert best_candidate(question, decisions, 0.0).timeline.makespan_s <= 1.005 * shortest.timeline.makespan_s


def test_layers_that_are_decided_differently_are_all_looked_at() -> None:
    search, question = deep_search(31, 2)
    found = search.fitting()
    assert found is not None
    decisions = found.candidate.decisions
    assert question.of_few_layers(decisions) is not None
    left, kept = question.shallow.instead[0]
    other = next(
        strategy
        for node in search.model.nodes
        if getattr(node, "name", None) == kept and hasattr(node, "strategies")
        for strategy in node.strategies
        if strategy is not decisions.strategies[kept]
    )
    mixed = {**decisions.strategies, left: other}
    assert question.of_few_layers(type(decisions)(decisions.homes, mixed, decisions.ends)) is None
