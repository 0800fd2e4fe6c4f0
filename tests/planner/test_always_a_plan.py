"""There is always a plan: what is undecided when the time is up falls back to something that works, and says so."""

from __future__ import annotations

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import Infeasible, TimeLimit
from tapestry.planner import plan
from tapestry.planner.clock import Clock
from tapestry.planner.search.search import ENOUGH, Search
from tapestry.planner.sharding.assignment import OutOfTime
from tapestry.program import Program

from .search.test_rivals import bound
from .wide_programs import recurrent, stacked, triangular, u_net

NO_TIME = 1e-3


def programs() -> dict[str, Program]:
    return {
        "a stack of 64": stacked.bind(n=64, c=64),
        "24 recurrent steps": recurrent.bind(t=24, n=32, c=64, h=128),
        "a triangular solve": triangular.bind(m=256, r=64, blocks=4),
        "a step of a U-Net": u_net.bind(n=4, c=3, y=16, x=16, e=32),
    }


@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
@pytest.mark.parametrize("name", list(programs()))
def test_with_no_time_at_all_there_is_a_plan(monkeypatch: pytest.MonkeyPatch, name: str, mesh: tuple[int, ...]) -> None:
    """Where nothing says that even this plan comes too late."""
    monkeypatch.setattr(Clock, "demand", lambda _: None)
    made = plan(programs()[name], "cpu-4", mesh=mesh, time_limit=NO_TIME)
    assert made.document.claims.status in ("fallback", "feasible")
    assert 0.0 < made.document.claims.model_gap < 1.0  # what every operation costs at least is known without a solver
    assert made.check().ok, made.check()


@pytest.mark.parametrize("name", ["a stack of 64", "24 recurrent steps"])
def test_tensors_with_many_readers_are_decided_to_the_end(name: str) -> None:
    made = plan(programs()[name], "cpu-4", mesh=(4,), time_limit=600)
    assert made.document.claims.status == "optimal"
    assert made.check().ok, made.check()


def test_a_triangular_solve_is_decided_as_near_as_is_asked_for() -> None:
    """Its 17 operations read several before them: too wide to be eliminated but in parts."""
    made = plan(programs()["a triangular solve"], "cpu-4", mesh=(2, 2), objective="bytes", time_limit=600)
    assert made.document.claims.status in ("optimal", "feasible")
    assert made.document.claims.model_gap <= ENOUGH
    assert made.check().ok, made.check()


def test_without_a_solver_single_decisions_still_make_a_plan_better(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(search: Search) -> None:
        raise OutOfTime

    monkeypatch.setattr(Search, "fitting", none)
    program = triangular.bind(m=256, r=64, blocks=2)
    made = plan(program, "cpu-4", mesh=(2, 2), time_limit=600)
    assert made.document.claims.status == "fallback"
    monkeypatch.undo()
    best = plan(program, "cpu-4", mesh=(2, 2), time_limit=600)
    assert made.document.claims.objective_s <= 1.1 * best.document.claims.objective_s
    assert made.document.claims.model_gap < 1.0


@tp.program
def one_way(x: f32[Tensor, "n"]) -> Tensor:
    """64 readers of one tensor, none of which can be cut."""
    return tp.stack([tp.sum(tp.tanh(x * float(k))) for k in range(64)])


def test_readers_that_have_nothing_to_choose() -> None:
    made = plan(one_way.bind(n=1), "cpu-4", mesh=(4,), time_limit=600)
    assert made.document.claims.status == "optimal"
    assert made.check().ok, made.check()


def test_what_fits_in_no_way_is_infeasible_or_out_of_time() -> None:
    with pytest.raises(Infeasible):
        plan(stacked.bind(n=64, c=64), "cpu-4", mesh=(4,), memory={"host": "64KiB"}, time_limit=600)
    with pytest.raises(TimeLimit):
        plan(stacked.bind(n=64, c=64), "cpu-4", mesh=(4,), memory={"host": "64KiB"}, time_limit=NO_TIME)


@pytest.mark.parametrize("mesh", [(8,), (2, 4)])
@pytest.mark.parametrize(
    "program", [bound("llama", "forward", layers=2), bound("moe", "layer", t=4096)], ids=["tokens", "experts"]
)
def test_without_a_solver_what_people_do_by_hand_is_found(
    monkeypatch: pytest.MonkeyPatch, program: Program, mesh: tuple[int, ...]
) -> None:
    """Dimensions that many operations have are cut in all of them: single decisions alone would not get there."""
    monkeypatch.setattr(Search, "fitting", lambda _: None)
    made = plan(program, "h200x8", mesh=mesh, time_limit=600)
    assert made.document.claims.status == "fallback"
    assert made.check().ok, made.check()
    monkeypatch.undo()
    best = plan(program, "h200x8", mesh=mesh, time_limit=600)
    assert made.document.predicted.makespan_s <= 1.1 * best.document.predicted.makespan_s
