"""A mesh with several rows within a host is planned as one longer row, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import Machine, load_machine
from tapestry.planner.search.found import Found
from tapestry.planner.search.question import Question
from tapestry.planner.search.rows import as_one_row, beside, crosswise, within_host
from tapestry.planner.search.search import Search, searched
from tapestry.planner.sharding.nodes import OperationNode
from tapestry.planner.sharding.solving import Solution
from tapestry.planner.strategy.mesh import Mesh


@tp.program
def layers(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]], v: param[f32[Tensor, "k c"]]) -> Tensor:
    y = tp.relu(tp.einsum("nc,ck->nk", x, w))
    return x + tp.einsum("nk,kc->nc", y, v)


TWO_HOSTS = replace(load_machine("h200x8-2node"), devices_per_host=4)


def asked(mesh: tuple[int, ...], machine: Machine) -> Search:
    program = layers.bind(n=4096, c=1024, k=4096)
    return searched(Question.of(program, machine, Mesh.of(mesh, machine.device_count), time_limit=600))


@pytest.mark.parametrize(
    ("mesh", "first"), [((4,), 0), ((2, 2), 0), ((2, 4), 1), ((2, 2, 2), 1), ((8,), 1), ((4, 2), 1)]
)
def test_rows_within_a_host_are_the_last_of_a_mesh(mesh: tuple[int, ...], first: int) -> None:
    assert within_host(Mesh.of(mesh, 8), TWO_HOSTS) == first


@pytest.mark.parametrize(("mesh", "first"), [((2, 2), 0), ((2, 2, 2), 1)])
def test_what_is_left_cuts_rows_of_a_host_alike(mesh: tuple[int, ...], first: int) -> None:
    search = asked(mesh, TWO_HOSTS)
    across = crosswise(search.model, search.question.mesh, TWO_HOSTS)
    for number in {number for number, _ in across}:
        node = search.model.nodes[number]
        assert isinstance(node, OperationNode)
        left = [s.cuts[first:] for k, s in enumerate(node.strategies) if (number, k) not in across]
        assert left
        assert all(len({*cuts}) == 1 for cuts in left)


@pytest.mark.parametrize("mesh", [(4,), (8,), (2, 4), (4, 2)])
def test_where_there_is_one_row_of_a_host_nothing_is_left_out(mesh: tuple[int, ...]) -> None:
    search = asked(mesh, TWO_HOSTS)
    assert crosswise(search.model, search.question.mesh, TWO_HOSTS) == frozenset()


def test_without_them_the_answer_is_that_of_one_row() -> None:
    machine = load_machine("h200x8")
    rows, row = asked((2, 4), machine), asked((8,), machine)
    across = crosswise(rows.model, rows.question.mesh, machine)
    answer = rows.asked(rows.question.capacity, without=across)
    assert not across & set(answer.choice.items())
    assert answer.objective == row.asked(row.question.capacity).objective
    assert rows.asked(rows.question.capacity).objective <= answer.objective


def test_an_answer_is_no_longer_than_that_of_one_row_and_both_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = load_machine("h200x8")
    rows, row = asked((2, 4), machine), asked((8,), machine).first()
    lowered: list[dict[int, int]] = []
    whole = rows.lowered

    def counted(choice: dict[int, int], solution: Solution) -> Found:
        lowered.append(choice)
        return whole(choice, solution)

    monkeypatch.setattr(rows, "lowered", counted)
    found = rows.first()
    assert found.makespan_s <= row.makespan_s * (1 + 1e-9)
    assert lowered.count(found.choice) == 1
    assert found.solution.objective <= row.solution.objective


def test_of_two_answers_the_shorter_is_kept_whatever_the_model_says_of_them() -> None:
    """Where the model finds less to do with rows cut in different ways, the simulator has the last word."""
    search = asked((2, 4), load_machine("h200x8"))
    row = as_one_row(search)
    assert row is not None
    across = crosswise(search.model, search.question.mesh, search.question.machine)
    for node, option in sorted(across)[:12]:
        other = {**row.choice, node: option}
        solution = Solution("feasible", other, row.solution.objective - 1, 0)
        found, alone = beside(search, row, solution), search.lowered(other, solution)
        assert found.makespan_s == min(row.makespan_s, alone.makespan_s)
        assert found.solution is solution
    assert beside(search, row, row.solution).candidate is row.candidate
