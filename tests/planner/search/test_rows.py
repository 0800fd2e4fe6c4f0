"""A mesh with several rows within a host is planned as one longer row, too."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import Machine, load_machine
from tapestry.planner.search.question import Question
from tapestry.planner.search.rows import crosswise, within_host
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


def test_rows_are_not_asked_about_where_the_best_choice_cuts_them_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be the answer; where its bound is not near, or it cuts them in different ways, they are."""
    search = asked((2, 4), load_machine("h200x8"))
    found = search.first()
    question = search.question
    assert crosswise(search.model, question.mesh, question.machine).isdisjoint(found.choice.items())
    budgets: list[Collection[tuple[int, int]]] = []
    whole = search.asked

    def counted(budget: int, exposed: int = 2, *, without: Collection[tuple[int, int]] = ()) -> Solution:
        budgets.append(without)
        return whole(budget, exposed, without=without)

    monkeypatch.setattr(search, "asked", counted)
    search.other_views(found)
    assert not any(budgets)
    search.other_views(replace(found, solution=replace(found.solution, bound=0)))
    assert any(budgets)
