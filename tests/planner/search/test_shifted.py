"""Slabs that are read in windows are shifted: what plans compute is the same, and borders come from one side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.inputs import random_inputs
from tapestry.planner import Machine, Plan, plan
from tapestry.planner.format import Transfer
from tapestry.planner.search import search
from tapestry.planner.search.found import Found
from tapestry.planner.search.search import Search
from tapestry.program import Pin, Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close

from .named import Described


@tp.program
def windows(x: f32[Tensor, "1 c h w"], *, count: int = 3, taps: int = 5) -> Tensor:
    """Convolutions that leave an image as large as it is, each added to what it reads."""
    c = x.shape[1]
    for k in range(count):
        f = tp.param(f"f{k}", "f32", (c, c, taps, taps))
        x = x + tp.relu(tp.conv2d(x, f, padding=taps // 2))
    return x


def machine(ranks: int) -> Machine:
    """Small tasks take longer than their work, and transfers as long as a good part of an operation."""
    made = Described(ranks, tflops=0.002, gb_per_s=1.0, latency_us=40.0).machine()
    return replace(made, device=replace(made.device, launch_overhead_s=8e-6, overlap=True))


def planned(program: Program, ranks: int, pins: Sequence[Pin] = ()) -> Plan:
    made = plan(program, machine(ranks), mesh=(ranks,), pins=pins)
    report = made.check()
    assert report.ok, str(report)
    return made


def seconds(made: Plan) -> float:
    return made.document.predicted.makespan_s


def as_it_is(_: Search, found: Found) -> Found:
    return found


@pytest.mark.parametrize(("rows", "taps", "ranks"), [(64, 3, 4), (64, 5, 4), (61, 5, 3)])
def test_it_is_shorter_and_computes_the_same(rows: int, taps: int, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = windows.bind(c=4, h=rows, w=16, taps=taps)
    made = planned(program, ranks)
    inputs = random_inputs(program)
    assert_close(program, inputs, made.run(inputs, device="numpy").outputs, evaluate(program, inputs))
    monkeypatch.setattr(search, "shifted", as_it_is)
    assert seconds(made) < seconds(planned(program, ranks))


def test_every_rank_receives_from_one_other() -> None:
    made = planned(windows.bind(c=4, h=64, w=16), 4)
    transfers = [task for task in made.document.tasks if isinstance(task, Transfer)]
    assert transfers
    for task in transfers:
        messages = [message for message in made.resolved.messages(task) if message.remote]
        assert len({message.dst for message in messages}) == len(messages) < 4


def test_slabs_stay_about_equal() -> None:
    program = windows.bind(c=4, h=64, w=16, count=6)
    made = planned(program, 4)
    for op in program.operations:
        sizes = [region.size for region in made.resolved.computed(op.name)]
        assert max(sizes) <= 1.25 * min(sizes)


def test_pins_are_kept() -> None:
    program = windows.bind(c=4, h=64, w=16)
    name = program.operations[0].name
    pinned = planned(program, 4, [Pin("op", name, (("mesh0", "p"),))])
    assert pinned.document.shardings[name].partition == {"p": "mesh0"}
