"""Lower bounds on any plan, beside plans that are known to be good and closed forms of what must move."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.check import Code
from tapestry.planner.format import LowerBound
from tapestry.planner.machine import Machine
from tapestry.planner.search.explicit import plan_partitions
from tapestry.planner.sharding.bound import lower_bound
from tapestry.planner.sharding.forced import Product, forced_seconds, touched
from tapestry.planner.testing import plans
from tapestry.program import Pin
from tapestry.space import Box, Region


@tp.program
def chains(x: f32[Tensor, "n"], *, count: int = 8, length: int = 4) -> tuple[Tensor, ...]:
    found = []
    for k in range(count):
        value = x * float(k + 1)
        for _ in range(length):
            value = tp.exp(value)
        found.append(value)
    return tuple(found)


@tp.program
def product(a: f32[Tensor, "m k"], b: f32[Tensor, "k n"]) -> Tensor:
    return a @ b


def stating(made: Plan, bound: float, chain: float) -> Plan:
    makespan = made.document.predicted.makespan_s
    stated = LowerBound(bound, (makespan - bound) / makespan, chain)
    return Plan(msgspec.structs.replace(made.document, bound=stated))


def test_one_chain_a_rank_is_not_below_the_bound() -> None:
    """Independent chains, each on a rank of its own, wait for nothing: a bound that adds them up would be wrong."""
    program = chains.bind(n=64)
    machine = load_machine("h200x8")
    shards = {}
    for k, op in enumerate(program.operations):
        whole = Box.of_shape(tuple(op.extents.values())).region()
        shards[op.name] = [whole if rank == k // 5 else Region() for rank in range(8)]
    homes = {"x": [Box.of_shape((64,)).region()] * 8}
    pinned = program.with_pins(Pin("tensor", "x", (("mesh0", None),)))
    made = plan_partitions(pinned, machine, shards, homes=homes)
    assert made.simulate().makespan_s == pytest.approx(5 * machine.device.start_s(8), rel=0.1)
    bound = lower_bound(pinned, machine, 8)
    assert 0.5 * made.simulate().makespan_s < bound.seconds <= made.simulate().makespan_s
    assert stating(made, bound.seconds, bound.chain).check().ok


@settings(max_examples=20, deadline=None)
@given(plans())
def test_what_is_soon_proved_is_no_more_than_what_is_proved(made: Plan) -> None:
    ranks = len(made.document.devices)
    soon = lower_bound(made.program, made.machine, ranks, soon=True)
    assert 0 < soon.seconds <= lower_bound(made.program, made.machine, ranks).seconds
    assert stating(made, soon.seconds, soon.chain).check().ok


def received_at_least(m: int, n: int, k: int, ranks: int) -> float:
    """Elements that some rank touches at least, m >= n >= k, by Al Daas et al."""
    if ranks <= m / n:
        return (m * n + m * k) / ranks + n * k
    if ranks <= m * n / k**2:
        return 2 * (m * n * k * k / ranks) ** 0.5 + m * n / ranks
    return 3.0 * (m * n * k / ranks) ** (2 / 3)


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("sides", [(4096, 4096, 4096), (65536, 512, 256), (8192, 4096, 64), (16384, 1024, 1024)])
@pytest.mark.parametrize("ranks", [1, 4, 8, 16, 64])
def test_what_equal_parts_of_a_product_touch_is_the_closed_form(
    sides: tuple[int, int, int], ranks: int, order: tuple[int, int, int]
) -> None:
    op = product.bind(m=2, n=2, k=2).operations[0]
    found = touched(Product(*(sides[place] for place in order), 4, op, "f32"), ranks)
    assert found == pytest.approx(ranks * received_at_least(*sides, ranks))


def slow_links(factor: float) -> Machine:
    machine = load_machine("cpu-4")
    links = tuple(replace(link, gb_per_s=link.gb_per_s * factor, latency_s=0.0, curve=()) for link in machine.links)
    return replace(machine, links=links)


@pytest.mark.parametrize("factor", [1e-3, 1e-2, 1e-1, 1.0])
def test_products_on_slow_links_are_bounded_by_what_they_must_move(factor: float) -> None:
    """The bound is between those of computing on four ranks and on one, and the best plan not far above it."""
    machine, program = slow_links(factor), product.bind(m=512, n=512, k=512)
    made = plan(program, machine)
    moved, stated = forced_seconds(program, machine, 4), made.document.bound
    assert made.check().ok, str(made.check())
    assert stated is not None
    assert moved <= stated.bound_s * (1 + 1e-6) <= made.document.predicted.makespan_s * (1 + 1e-6)
    assert made.document.predicted.makespan_s <= 2.5 * stated.bound_s
    assert stating(made, stated.bound_s * 1.001, stated.chain).check().codes == {Code.BOUND}
    freely = lower_bound(program, slow_links(1e6), 4).seconds
    assert (moved > 1.2 * freely) == (factor < 1.0)


def test_what_may_be_on_every_rank_need_not_move() -> None:
    """Pinned to lie on all ranks, or a parameter, an operand is received by nobody."""
    program, machine = product.bind(m=512, n=512, k=512), slow_links(1e-3)
    assert forced_seconds(program, machine, 4) > 0
    assert forced_seconds(program.with_pins(Pin("tensor", "a", (("mesh0", None),))), machine, 4) == 0


@settings(max_examples=40, deadline=None)
@given(plans())
def test_no_drawn_plan_is_below_the_bound(made: Plan) -> None:
    bound = lower_bound(made.program, made.machine, len(made.document.devices))
    assert bound.seconds <= made.simulate().makespan_s * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(plans(product.bind(m=12, n=8, k=16)), st.sampled_from([1e-4, 1e-2, 1.0]))
def test_no_drawn_plan_of_a_product_is_below_what_it_must_move(made: Plan, factor: float) -> None:
    machine = made.machine
    links = tuple(replace(link, gb_per_s=link.gb_per_s * factor) for link in machine.links)
    slower = replace(machine, links=links)
    shards = {
        op.name: list(made.resolved.regions(task.shards))
        for op in made.program.operations
        for task in made.document.tasks
        if getattr(task, "op", None) == op.name
    }
    again = plan_partitions(made.program, slower, shards)
    ranks = len(again.document.devices)
    assert lower_bound(made.program, slower, ranks).seconds <= again.simulate().makespan_s * (1 + 1e-9)
