"""Transfers of several tasks that meet on a link that devices have together, worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import Plan, load_machine
from tapestry.planner.check import Code, check
from tapestry.planner.format import Transfer
from tapestry.planner.machine import Machine
from tapestry.planner.search.explicit import plan_partitions
from tapestry.space import Box, Region

# Two devices a switch: 1 GB/s for both together. Nothing else takes long.
MACHINE = """
name = "switches"
description = "four cores behind two switches"
hosts = 1
devices_per_host = 4
[device]
name = "a core"
launch_overhead_us = 0
[device.peak.elementwise]
f64_gflops = 1000
[[device.tiers]]
name = "host"
capacity_gb = 1
read_gb_per_s = 1000
write_gb_per_s = 1000
[[links]]
kind = "wire"
scope = "host"
gb_per_s = 1.0
latency_us = 0
shared_by = 2
"""
KB, US, RANKS = 250, 1e-6, 4  # elements of a kilobyte, which takes a microsecond


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    path = tmp_path_factory.mktemp("machines") / "switches.toml"
    path.write_text(MACHINE, encoding="utf-8")
    return load_machine(path)


@tp.program
def three(a: f32[Tensor, "n"], b: f32[Tensor, "m"], c: f32[Tensor, "k"]) -> tuple[Tensor, Tensor, Tensor]:
    return tp.relu(a), tp.abs(b), tp.exp(c)


def on(rank: int, extent: int) -> list[Region]:
    """All of a vector on one rank."""
    return [Box((0,), (extent,)).region() if rank == mine else Region() for mine in range(RANKS)]


def sent(machine: Machine, ways: Mapping[str, tuple[int, int, int]]) -> Plan:
    """Inputs a, b, c that are so many kilobytes, lie on one rank and are read on another: (kilobytes, from, to)."""
    size = {name: kilobytes * KB for name, (kilobytes, _, _) in ways.items()}
    program = three.bind(n=size["a"], m=size["b"], k=size["c"])
    readers = {op.name: on(ways[op.operands[0]][2], size[op.operands[0]]) for op in program.operations}
    homes = {name: on(source, size[name]) for name, (_, source, _) in ways.items()}
    ends = {op.output: readers[op.name] for op in program.operations}
    return plan_partitions(program, machine, readers, homes=homes, ends=ends)


def ends(made: Plan) -> dict[str, float]:
    """Microseconds until each input has arrived."""
    timeline, moves = made.simulate(), {t.id for t in made.document.tasks if isinstance(t, Transfer)}
    found = {run.name: max(run.ends) / US for run in timeline.runs if run.task in moves}
    return {name: round(found[name], 6) for name in sorted(found)}


def test_two_that_arrive_at_one_switch_have_half_of_it_each(machine: Machine) -> None:
    """b and c arrive at devices 2 and 3, a at device 1 behind the other switch. b is there after twice its 8 us; then
    c, of which half of 16 us is left, has all of the link."""
    made = sent(machine, {"a": (4, 2, 1), "b": (8, 0, 3), "c": (4, 3, 0)})
    assert ends(made)["b"] == 8.0  # nobody else is behind its switch
    made = sent(machine, {"a": (4, 2, 2), "b": (8, 0, 2), "c": (16, 1, 3)})
    assert ends(made) == {"b": 16.0, "c": 24.0}
    assert made.document.predicted.makespan_s == pytest.approx(24 * US, rel=0.01)
    assert made.check().ok, str(made.check())


def test_what_begins_later_slows_what_is_under_way(machine: Machine) -> None:
    """Of a and b, which rank 0 sends one after the other, b meets c: 4 us of c are over then, 12 left, of which 8 pass
    at half the rate beside the 8 of b."""
    made = sent(machine, {"a": (4, 0, 2), "b": (8, 0, 2), "c": (16, 1, 3)})
    found = ends(made)
    assert found == {"a": 8.0, "b": 24.0, "c": 28.0}
    assert made.check().ok, str(made.check())


def test_each_has_all_of_a_link_that_is_its_own(machine: Machine) -> None:
    own = replace(machine, links=(replace(machine.links[0], shared_by=1),))
    made = sent(own, {"a": (4, 2, 2), "b": (8, 0, 2), "c": (16, 1, 3)})
    assert ends(made) == {"b": 8.0, "c": 16.0}


def test_a_plan_that_does_not_divide_them_is_refused(machine: Machine) -> None:
    made = sent(machine, {"a": (4, 2, 2), "b": (8, 0, 2), "c": (16, 1, 3)})
    wrong = msgspec.structs.replace(made.document.predicted, makespan_s=16 * US)
    assert check(msgspec.structs.replace(made.document, predicted=wrong)).codes == {Code.PREDICTED}


places = st.sampled_from(range(RANKS))


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.tuples(st.integers(1, 9), places, places), min_size=3, max_size=3),
    st.sampled_from([0.0, 2e-6]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)
def test_two_replays_that_share_no_code_agree(
    machine: Machine,
    ways: Sequence[tuple[int, int, int]],
    latency: float,
    together: int,
    overlap: bool,
) -> None:
    """And sharing a link makes nothing shorter, nor longer than one after another."""
    link = replace(machine.links[0], latency_s=latency, shared_by=together)
    shared = replace(machine, links=(link,), device=replace(machine.device, overlap=overlap))
    alone = replace(shared, links=(replace(link, shared_by=1),))
    given_ways = dict(zip("abc", ways, strict=True))
    one, other = sent(shared, given_ways), sent(alone, given_ways)
    assert one.check().ok, str(one.check())
    moved = sum(kilobytes * US + latency for kilobytes, source, target in ways if source != target)
    least, most = other.document.predicted.makespan_s, other.document.predicted.compute_s + moved
    assert least * (1 - 1e-9) <= one.document.predicted.makespan_s <= most * (1 + 1e-9) + 1e-6
