"""What several hosts could save of one host's work: no choice over hosts saves more, by a count that shares no code."""

from __future__ import annotations

import random
from dataclasses import replace
from math import prod

import pytest

from tapestry.planner.clock import Clock
from tapestry.planner.machine import Machine
from tapestry.planner.search.groups import by_itself
from tapestry.planner.search.question import Question
from tapestry.planner.sharding.between import Hosts, of_hosts
from tapestry.planner.sharding.model import PICO, Model, evaluate
from tapestry.planner.sharding.nodes import OperationNode, SourceNode
from tapestry.planner.simulate import PriceBook
from tapestry.planner.strategy.mesh import Mesh
from tapestry.planner.strategy.strategies import StrategyTable

from ..search.named import Described
from ..training_step import trained

HOSTS = 2


def machine(between: float) -> Machine:
    """Hosts of two ranks each, with so many GB/s a rank between them."""
    return Described(2 * HOSTS, hosts=HOSTS, tflops=0.01, gb_per_s=10.0, latency_us=1.0, between=between).machine()


def hosts(between: float) -> tuple[Hosts, Model]:
    """A step of training, whose operations take on one host as long as they have points; and its options over hosts."""
    given, program = machine(between), trained.bind(n=64, c=32, layers=3)
    question = Question.of(program, given, Mesh.of((HOSTS, 2), given.device_count), time_limit=600)
    model = by_itself(question, Mesh((2,), ("mesh1",)), question.clock).model
    work = {
        node: round(model.weight[node] * PICO * 1e-9 * points(found))
        for node in model.weight
        if isinstance(found := model.nodes[node], OperationNode)
    }
    over = Mesh((HOSTS,), ("mesh0",))
    book = PriceBook(of_hosts(given), over)
    made = Hosts(model, work, StrategyTable(program, over, book.works, book.layouts), book.traffic, Clock(600))
    return made, made._over_hosts()


def points(node: OperationNode) -> int:
    return prod(dim.extent for dim in node.op.dims)


def took(made: Hosts, model: Model, choice: dict[int, int]) -> float:
    """T: work by how many points the busiest host has of an operation that is cut evenly, and transfers as the model
    counts them."""
    computed = 0.0
    for node, work in made.work.items():
        found = model.nodes[node]
        assert isinstance(found, OperationNode)
        cut = found.strategies[choice[node]].cuts[0]
        extent = 1 if cut is None else found.op.extents[cut.dim]
        computed += work * (1.0 if cut is None else -(-extent // HOSTS) / extent)
    parts = evaluate(model, choice)[1]
    return max(computed + parts["values"], parts["values"] + parts["resident"])


@pytest.mark.parametrize("between", [0.01, 0.5, 1000.0])
def test_no_choice_over_hosts_saves_more(between: float) -> None:
    made, model = hosts(between)
    saved, rng = made.saved(), random.Random(0)
    assert saved is not None
    whole = sum(made.work.values())
    options = {node: len(model.nodes[node].labels) for node in sorted(set(model.tied_to))}
    rooms = len(options) * HOSTS  # what is rounded down
    for _ in range(300):
        often = rng.random()  # as often the first of all options, which cut most
        choice = {node: 0 if rng.random() < often else rng.randrange(count) for node, count in options.items()}
        assert took(made, model, choice) >= whole - saved - rooms


def test_fast_links_save_all_that_hosts_can_share() -> None:
    made, _ = hosts(1e6)
    whole, saved = sum(made.work.values()), made.saved()
    assert saved is not None
    assert 0.8 * whole * (1 - 1 / HOSTS) < saved <= whole * (1 - 1 / HOSTS) + len(made.work)


def test_slow_links_save_nothing() -> None:
    saved = hosts(1e-4)[0].saved()
    assert saved is not None
    assert saved <= 0


def test_a_source_lies_as_hosts_ask_for_it() -> None:
    _, model = hosts(1.0)
    of = {flow.home: flow for flow in model.flows}
    for node in set(model.tied_to):
        found = model.nodes[node]
        if isinstance(found, SourceNode) and found.tensor.role == "state":
            asked = {need for reader in of[node].readers for need in ask(model, reader) if need.one_copy}
            assert asked <= set(found.homes)


def ask(model: Model, reader: tuple[int, int]) -> list[object]:
    node = model.nodes[reader[0]]
    return [model.need(reader, k) for k in range(len(node.labels))] if isinstance(node, OperationNode) else []


def test_of_a_host_all_links_to_others_count_together() -> None:
    given = machine(0.5)
    link = of_hosts(given).link_among((0, 1))
    assert link.gb_per_s == pytest.approx(1.0)
    assert of_hosts(replace(given, devices_per_island=1)).device_count == HOSTS
