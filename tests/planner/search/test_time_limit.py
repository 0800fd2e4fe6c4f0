"""The time limit is kept: by a clock that goes on by what lowering, placing and pricing would take."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import TimeLimit
from tapestry.planner import Machine, clock, load_machine, plan
from tapestry.planner.search import candidates, ready, turns
from tapestry.planner.search import search as searching
from tapestry.planner.search.blocks import Blocks
from tapestry.planner.search.question import Question
from tapestry.planner.sharding import nodes
from tapestry.planner.strategy.mesh import Mesh


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
    monkeypatch.setattr(candidates, "unhindered", hands.taking(candidates.unhindered, 1.0))
    monkeypatch.setattr(candidates, "place", hands.taking(candidates.place, 3.0))
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


def test_what_went_before_the_call_counts(hands: Hands) -> None:
    """As on the command line, where the program is read first: what the search may do is the same, it ends earlier."""
    program = layered.bind(n=64, c=128)
    hands.now = 15.0
    made = plan(program, "cpu-4", mesh=(2, 2), time_limit=30.0, since=0.0)
    assert made.check().ok
    assert hands.now <= 30.0 + 4.0


def test_the_first_plan_is_given_time(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that takes all that it is given leaves enough for lowering what it says."""
    solve, given = searching.solve, list[float]()

    def slow(*some: Any, time_limit: float, **named: Any) -> Any:
        given.append(time_limit)
        hands.now += time_limit
        return solve(*some, time_limit=time_limit, **named)

    monkeypatch.setattr(searching, "solve", slow)
    made = plan(layered.bind(n=64, c=128), "cpu-4", mesh=(4,), time_limit=40.0)
    assert made.check().ok
    assert given[0] > 0
    assert hands.now <= 40.0


def test_a_plan_that_would_come_much_too_late_is_not_made(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "op_node", hands.taking(nodes.op_node, 1.0))
    with pytest.raises(TimeLimit, match="no plan was found within 4 s"):
        plan(layered.bind(n=64, c=128), "cpu-4", mesh=(4,), time_limit=4.0)
    assert hands.now <= 1.2 * 4.0 + 2.0  # one more step of the work


def test_a_plan_that_is_there_is_kept(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is short operations in turns are asked for next; no time is left for them."""
    searched = turns.searched

    def asked(question: Any, *, turning: bool = False) -> Any:
        hands.now += 100.0 * turning
        return searched(question, turning=turning)

    monkeypatch.setattr(turns, "searched", asked)
    monkeypatch.setattr(turns, "_would_help", lambda *_: True)
    monkeypatch.setattr(searching, "least_held", late(searching.least_held, hands))
    made = plan(layered.bind(n=64, c=128), "cpu-4", mesh=(4,), time_limit=60.0)
    assert made.check().ok


def late(work: Any, hands: Hands) -> Any:
    """The same; once the time is over it finds nothing."""

    def limited(*given: Any) -> Any:
        if hands.now > 60.0:
            raise TimeLimit("nothing fits")
        return work(*given)

    return limited


def test_a_clock_keeps_what_its_last_step_takes(hands: Hands) -> None:
    mine = clock.Clock(10.0)
    with mine.last_of_all():
        hands.now += 3.0
    with mine.last_of_all():
        hands.now += 1.0
    assert (mine.left, mine.left_of(0.5)) == (3.0, 0.0)
    hands.now += 3.0
    assert mine.up
    mine.demand()  # in time: the last step may still be taken
    hands.now += 5.0
    with pytest.raises(TimeLimit):
        mine.demand()
    mine.secured = True
    mine.demand()


def test_nothing_follows_from_changes_once_the_time_is_up(hands: Hands) -> None:
    """What follows from changes takes prices that nobody has asked for."""
    program = layered.bind(n=64, c=128)
    question = Question.of(program, load_machine("cpu-4"), Mesh.of((4,), 4), time_limit=60.0)
    search = searching.searched(question)
    found = search.first()
    blocks = Blocks(search.model, search.costs, question.clock)
    assert blocks.around(found.choice, search.costs.of, 10)
    hands.now += 100.0
    assert not blocks.around(found.choice, search.costs.of, 10)


def test_no_view_is_asked_for_that_would_come_too_late(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer takes ten seconds, whatever it is given: writing down what is asked for takes that long."""
    solve, asked = searching.solve, list[float]()

    def slow(*some: Any, **named: Any) -> Any:
        asked.append(hands.now)
        hands.now += 10.0
        return solve(*some, **named)

    monkeypatch.setattr(searching, "solve", slow)
    made = plan(layered.bind(n=64, c=128), "cpu-4", mesh=(4,), time_limit=34.0)
    assert made.check().ok
    assert len(asked) > 1
    assert hands.now <= 34.0


def test_a_clock_keeps_what_is_foretold(hands: Hands) -> None:
    """All of it until there is a plan, then half."""
    mine = clock.Clock(10.0)
    with mine.foretells(4.0):
        hands.now += 1.0
    assert mine.left == 5.0
    mine.secured = True
    assert mine.left == 7.0


def test_shares_of_what_is_left_have_a_least_length(hands: Hands) -> None:
    mine = clock.Clock(10.0)
    hands.now += 10.0
    soon, later = mine.after(0.5), mine.after(0.5, 0.2)
    assert soon()
    assert not later()
    hands.now += 2.0
    assert later()


def test_what_comes_after_a_plan_is_not_begun_late(hands: Hands) -> None:
    mine = clock.Clock(10.0)
    hands.now += 10.5
    mine.demand_left()  # there is no plan yet
    mine.secured = True
    with pytest.raises(TimeLimit, match="no better plan"):
        mine.demand_left()


def far(hosts: int) -> Machine:
    """Hosts of four devices."""
    machine = load_machine("cpu-4")
    return replace(machine, hosts=hosts, links=(*machine.links, replace(machine.links[0], kind="far", scope="cluster")))


def test_where_hosts_are_many_one_of_them_has_a_plan_first(hands: Hands, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strategies of an operation of all ranks take ten seconds, of one host's a tenth."""
    work = nodes.op_node

    def slow(op: Any, table: Any, *given: Any, **named: Any) -> Any:
        hands.now += 10.0 if table.mesh.size > 4 else 0.0
        return work(op, table, *given, **named)

    monkeypatch.setattr(nodes, "op_node", slow)
    program = layered.bind(n=512, c=256)
    made = plan(program, far(4), mesh=(4, 4), time_limit=25.0)
    assert made.check().ok
    assert hands.now <= 1.2 * 25.0 + 10.0
    one = plan(program, far(1), mesh=(4,), time_limit=600)
    assert made.document.predicted.makespan_s <= 1.05 * one.document.predicted.makespan_s


def test_memory_that_a_host_lacks_is_looked_for_on_all(hands: Hands) -> None:
    """One host has no room for the weights, four have."""
    made = plan(layered.bind(n=64, c=256), far(4), mesh=(4, 4), memory=160_000, time_limit=29.0)
    assert made.check().ok
