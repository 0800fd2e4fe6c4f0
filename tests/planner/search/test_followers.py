"""Pieces of a batch on hosts that follow one another: a slow link is hidden behind the work of the host ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import Plan, plan
from tapestry.planner.format import Compute, Resolved, Transfer
from tapestry.planner.lowering.order import listed
from tapestry.planner.machine import Machine
from tapestry.planner.search.followers import GRAIN, Followers, followed
from tapestry.planner.search.found import Found
from tapestry.planner.search.leaner import answered
from tapestry.planner.search.question import Question
from tapestry.planner.search.report import with_prediction
from tapestry.planner.sharding.model import PICO, TIE
from tapestry.planner.strategy.mesh import Mesh
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close

from .named import Described


@tp.program
def grouped(x: f32[Tensor, "t d"], *, layers: int = 4, heads: int = 8, ffn: int = 256) -> Tensor:
    """Causal layers whose heads share keys and values, so that these are little beside all else."""
    d = x.shape[1]
    e = d // heads
    for layer in range(layers):
        with tp.name(f"layers.{layer}"):
            q = tp.einsum("td,dhe->the", x, tp.param("wq", "f32", (d, heads, e)), name="q")
            k = tp.einsum("td,dge->tge", x, tp.param("wk", "f32", (d, 1, e)), name="k")
            v = tp.einsum("td,dge->tge", x, tp.param("wv", "f32", (d, 1, e)), name="v")
            seen = tp.attention(q, k, v, causal=True, name="attention")
            x = x + tp.einsum("the,hed->td", seen, tp.param("wo", "f32", (heads, e, d)), name="o")
            x = x + tp.relu(x @ tp.param("w_in", "f32", (d, ffn))) @ tp.param("w_out", "f32", (ffn, d))
    return x


def hosts(count: int = 2, *, between: float = 0.02, latency_us: float = 50.0) -> Machine:
    """Of two ranks each, which compute while they transfer."""
    machine = Described(2 * count, hosts=count, tflops=0.01, gb_per_s=10.0, latency_us=1.0, between=between).machine()
    links = [replace(link, latency_s=latency_us * 1e-6) if link.scope == "cluster" else link for link in machine.links]
    return replace(machine, links=tuple(links), device=replace(machine.device, overlap=True))


def found_for(program: Program, machine: Machine, mesh: tuple[int, ...]) -> tuple[Question, Found, Found | None]:
    question = Question.of(program, machine, Mesh.of(mesh, machine.device_count), time_limit=600)
    _, first = answered(question)
    return question, first, followed(question, first, first.makespan_s)


def test_a_host_follows_another_through_causal_layers() -> None:
    """Each has tokens of its own in every layer; keys and values go to the one that has later tokens, and nothing
    back.
    """
    program = grouped.bind(t=64, d=64)
    question, first, found = found_for(program, hosts(), (2, 2))
    assert found is not None
    one = plan(program, hosts(1), mesh=(2,), time_limit=600).document.predicted.makespan_s
    assert found.makespan_s < 0.8 * one
    assert found.makespan_s < 0.9 * first.makespan_s
    made = Plan(with_prediction(found.candidate.document, found.candidate.timeline, question), program)
    assert made.check().ok, str(made.check())
    assert all(host in ((0, 1), (2, 3)) for host in tasks_by_host(made))
    resolved = Resolved(made.document)
    for task in made.document.tasks:
        if isinstance(task, Transfer):
            assert not any(message.src >= 2 > message.dst for message in resolved.messages(task))
    runs(made)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Followers]:
    """What is looked at, by how many groups there are."""
    search, seen = Followers.found, list[Followers]()

    def noted(self: Followers, below: float) -> Found | None:
        seen.append(self)
        return search(self, below)

    monkeypatch.setattr(Followers, "found", noted)
    return seen


@pytest.mark.parametrize(("tokens", "between"), [(32, 0.02), (64, 0.01), (64, 0.05), (96, 0.02)])
def test_of_two_pieces_no_others_are_listed_shorter(tokens: int, between: float, tried: list[Followers]) -> None:
    """What is proved optimal is the shortest of all ends that there are, each listed."""
    question, _, found = found_for(grouped.bind(t=tokens, d=64, layers=2), hosts(between=between), (2, 2))
    assert found is not None
    assert found.solution.status == "optimal"
    every = [
        listed(question.program, tried[0].decisions((0, end, GRAIN)), question.pricing, question.layouts).seconds
        for end in range(1, GRAIN)
    ]
    assert found.solution.objective == found.solution.bound == round(min(every) * TIE * PICO)


def test_of_more_pieces_an_equal_share_of_the_work_is_the_bound(tried: list[Followers]) -> None:
    _, _, two = found_for(grouped.bind(t=64, d=64), hosts(4), (4, 2))
    assert two is not None
    three = next(each for each in tried if each.count == 3)
    ends = (0, 10, 20, GRAIN)
    found, least = three.shortest(ends)
    assert found == ends
    assert least < three.seconds(ends)
    made = three.lowered(found, least)
    assert made.solution.status == "feasible"


def test_what_is_folded_over_a_batch_is_not_followed() -> None:
    """Its result would need all groups, one after another."""

    @tp.program
    def meant(x: f32[Tensor, "t d"]) -> Tensor:
        return tp.mean(grouped(x, layers=1), axis=0)

    assert found_for(meant.bind(t=64, d=64), hosts(), (2, 2))[2] is None


def test_rows_that_have_nothing_to_do_with_one_another_are_not_followed() -> None:
    """All ranks have a share of them at once, and nothing to wait for."""

    @tp.program
    def rows(x: f32[Tensor, "t d"], w: param[f32[Tensor, "d f"]], v: param[f32[Tensor, "f d"]]) -> Tensor:
        return tp.relu(x @ w) @ v

    assert found_for(rows.bind(t=64, d=64, f=128), hosts(), (2, 2))[2] is None


def tasks_by_host(made: Plan) -> set[tuple[int, ...] | None]:
    return {task.ranks for task in made.document.tasks if isinstance(task, Compute)}


def runs(made: Plan) -> None:
    """It computes what the program means."""
    rng, program = np.random.default_rng(0), made.program
    inputs = {t.name: rng.uniform(-1, 1, t.shape).astype("f4") for t in program.of_role("input", "param")}
    assert_close(program, inputs, made.run(inputs, engine="local").outputs, evaluate(program, inputs))
