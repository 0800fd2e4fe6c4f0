"""The time limit is kept: by a clock that goes on by what lowering, placing and pricing would take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import clock, plan
from tapestry.planner.search import candidates, ready
from tapestry.planner.search import search as searching
from tapestry.planner.sharding import nodes


@tp.program
def layered(x: f32[Tensor, "n c"], *, layers: int = 3) -> Tensor:
    for k in range(layers):
        x = tp.relu(tp.einsum("nc,ck->nk", x, tp.param(f"w{k}", "f32", (x.shape[1], x.shape[1]))))
    return x


class Hands:
    """A clock that stands still but for the work that is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def taking(self, work: Any, seconds: float) -> Any:
        """The work, and so many seconds on the clock for it."""

        def slow(*given: Any, **named: Any) -> Any:
            self.now += seconds
            return work(*given, **named)

        return slow


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    """A lowered plan takes four seconds, its steps one of them; the model two; an operation's strategies a quarter."""
    hands = Hands()
    monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: hands.now))
    monkeypatch.setattr(candidates, "_stepped", hands.taking(candidates._stepped, 1.0))
    monkeypatch.setattr(candidates, "_placed", hands.taking(candidates._placed, 3.0))
    monkeypatch.setattr(searching, "build_model", hands.taking(searching.build_model, 2.0))
    monkeypatch.setattr(nodes, "op_node", hands.taking(nodes.op_node, 0.25))
    monkeypatch.setattr(ready, "made_ready", hands.taking(ready.made_ready, 10.0))
    return hands


@pytest.mark.parametrize(
    ("limit", "memory", "mesh", "rewrite"),
    [(20.0, 120_000, (2, 2), False), (30.0, 150_000, None, False), (20.0, None, None, True), (4.0, None, (4,), False)],
)
def test_a_plan_takes_no_longer_than_its_time_and_a_trial(
    limit: float, memory: int | None, mesh: tuple[int, ...] | None, rewrite: bool, hands: Hands
) -> None:
    """The first answer takes about five seconds, whatever the limit."""
    made = plan(layered.bind(n=64, c=128), "cpu-4", mesh=mesh, memory=memory, rewrite=rewrite, time_limit=limit)
    assert made.check().ok
    assert hands.now <= max(limit, 8.0) + 4.0


def test_what_is_proved_does_not_depend_on_what_was_done_before(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work that the solver may do is a share of the limit, not of what is left of it."""
    works: list[int | None] = []
    solve = searching.solve

    def noted(*given: Any, **named: Any) -> Any:
        works.append(named["work_limit"])
        return solve(*given, **named)

    monkeypatch.setattr(searching, "solve", noted)
    program = layered.bind(n=64, c=128, layers=1)
    plan(program, "cpu-4", time_limit=600)
    first, works[:] = list(works), []
    hands.now += 0.9
    plan(program, "cpu-4", time_limit=600, rewrite=True)
    assert works == first
