"""What does not fit is refused with the tensors that bind and the least budget that would do."""

from __future__ import annotations

import re

import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import Infeasible
from tapestry.planner import load_machine, parse_bytes, plan
from tapestry.program import Pin, Program


@tp.program
def heavy(x: f32[Tensor, "n c"], small: param[f32[Tensor, "c c"]], big: param[f32[Tensor, "c k"]]) -> Tensor:
    """Its largest weight is 4 MiB and its largest value 256 KiB."""
    return tp.relu(x @ small) @ big


def bound() -> Program:
    return heavy.bind(n=16, c=256, k=4096)


WEIGHTS = 256 * 4096 * 4 + 256 * 256 * 4


def refused(budget: int | str, mesh: tuple[int, ...] = (4,), pins: tuple[Pin, ...] = ()) -> Infeasible:
    with pytest.raises(Infeasible) as failed:
        plan(bound(), "h200x8", mesh=mesh, memory={"hbm": budget}, pins=pins)
    assert failed.value.exit_code == 3
    return failed.value


def least(error: Infeasible) -> int:
    """The budget that the hint gives, in bytes."""
    found = re.search(r"--memory hbm=(\w+) ", error.hint or "")
    assert found is not None
    return parse_bytes(found[1])


def test_the_largest_tensors_are_named_first() -> None:
    error = refused("64KiB")
    assert error.where is not None
    assert error.where.startswith("operation ")
    assert str(error.sides["largest"]).startswith("big ")
    assert error.sides["allowed"] == "64 KiB"
    assert "64 KiB of hbm on each device" in error.what


@pytest.mark.parametrize("mesh", [(1,), (2,), (4,), (2, 2)])
def test_the_least_budget_is_enough(mesh: tuple[int, ...]) -> None:
    budget = least(refused(1000, mesh))
    made = plan(bound(), "h200x8", mesh=mesh, memory={"hbm": budget})
    assert made.check().ok
    assert max(tiers["hbm"] for tiers in made.document.peak_bytes.values()) <= budget


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_no_budget_below_an_equal_share_of_the_weights_does(ranks: int) -> None:
    error = refused(WEIGHTS // ranks - 1, (ranks,))
    assert least(error) >= WEIGHTS // ranks


def test_pins_can_make_it_infeasible() -> None:
    whole = (Pin("tensor", "big", (("mesh0", None),)),)
    assert plan(bound(), "h200x8", mesh=(4,), memory={"hbm": "3MiB"}).check().ok
    error = refused("3MiB", pins=whole)
    assert least(error) > 4 << 20


def test_every_budget_down_to_the_least_has_a_plan() -> None:
    """What packing loses never makes a budget infeasible that is more than the error would ask for."""
    enough = least(refused(1000))
    for budget in (enough, enough + 256, enough + 4096, 2 * enough):
        assert plan(bound(), "h200x8", mesh=(4,), memory={"hbm": budget}).check().ok


def test_more_memory_than_the_machine_has_may_be_asked_for() -> None:
    machine = load_machine("h200x8")
    assert plan(bound(), machine, memory={"hbm": 4 * machine.capacity_bytes("hbm")}).check().ok
