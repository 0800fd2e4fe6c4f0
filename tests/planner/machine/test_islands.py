"""Machines whose devices are not all linked alike, or have a link together: what files say, and what transfers take."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import load_machine, plan
from tapestry.planner.check import Code, check
from tapestry.planner.machine import Machine, MachineError, machine_from_json, machine_to_json
from tapestry.planner.machine.write import machine_toml
from tapestry.planner.strategy.layouts import Layouts
from tapestry.planner.strategy.mesh import Cut, Mesh
from tapestry.planner.strategy.traffic import Traffic
from tapestry.program import Pin
from tapestry.records import Width

DEVICE = """
[device]
name = "a core"
launch_overhead_us = 1
[device.peak.elementwise]
f64_gflops = 1
[[device.tiers]]
name = "hbm"
capacity_gb = 1
read_gb_per_s = 10
write_gb_per_s = 10
"""
FAR = '[[links]]\nkind = "far"\nscope = "host"\ngb_per_s = 1\nlatency_us = 0\n'
NEAR = '[[links]]\nkind = "near"\nscope = "island"\ngb_per_s = 8\nlatency_us = 0\n'
HEAD = 'name = "pairs"\ndescription = "four cores"\nhosts = 1\ndevices_per_host = 4\n'
ISLANDS = HEAD + "devices_per_island = 2\n" + DEVICE + FAR + NEAR
SHARED = HEAD + DEVICE + FAR + "shared_by = 2\n"

SIZE = 4096
WIDTH = Width(4, 4)


def described(text: str, tmp_path: Path) -> Machine:
    file = tmp_path / "machine.toml"
    file.write_text(text)
    return load_machine(file)


def gathered(machine: Machine, mesh: tuple[int, ...]) -> float:
    """Seconds of one transfer, a gather of SIZE elements of 4 bytes along the last axis of a mesh."""
    grid = Mesh.of(mesh, machine.device_count)
    layouts = Layouts(grid)
    have = layouts.cut((SIZE,), (*(None,) * (len(mesh) - 1), Cut("0")))
    return Traffic(grid, machine).direct(have, layouts.replicated((SIZE,)), WIDTH).seconds


@pytest.mark.parametrize("text", [ISLANDS, SHARED], ids=["islands", "shared"])
def test_a_machine_survives_its_file_and_json(text: str, tmp_path: Path) -> None:
    machine = described(text, tmp_path)
    assert described(machine_toml(machine), tmp_path) == machine
    assert machine_from_json(machine_to_json(machine)) == machine


def test_machines_without_them_say_nothing_of_islands() -> None:
    told = machine_to_json(load_machine("h200x8"))
    assert not {"devices_per_island", "others"} & set(told)
    assert "shared_by" not in told["links"][0]


def test_the_nearest_link_connects(tmp_path: Path) -> None:
    machine = described(ISLANDS, tmp_path)
    assert machine.link_among((2, 3)).kind == "near"
    assert machine.link_among((1, 2)).kind == "far"
    assert machine.link_among(range(4)).kind == "far"


def test_what_crosses_islands_takes_the_slower_link(tmp_path: Path) -> None:
    """Of a quarter each, half comes from the other island at 1 GB/s, a quarter from the neighbour at 8."""
    machine = described(ISLANDS, tmp_path)
    assert gathered(machine, (4,)) == pytest.approx(SIZE * 4 * (1 / 2 / 1e9 + 1 / 4 / 8e9))
    assert gathered(machine, (2, 2)) == pytest.approx(SIZE * 4 / 2 / 8e9)


def test_a_shared_link_is_divided_among_those_that_use_it_at_once(tmp_path: Path) -> None:
    """Devices 0 and 1 have one share: both at once get half. A rank that receives alone has all of it."""
    machine = described(SHARED, tmp_path)
    assert gathered(machine, (4,)) == pytest.approx(SIZE * 4 * 3 / 4 / 0.5e9)
    grid = Mesh.of((4,), 4)
    layouts = Layouts(grid)
    have, need = layouts.cut((SIZE,), (Cut("0"),)), layouts.cut((SIZE,), (Cut("@0"),))
    assert Traffic(grid, machine).direct(have, need, WIDTH).seconds == pytest.approx(SIZE * 4 * 3 / 4 / 1e9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("devices_per_island = 2", "devices_per_island = 3"), "devices_per_island"),
        (("devices_per_island = 2", ""), "devices_per_island"),
        (('scope = "host"', 'scope = "island"'), "links"),
        (("gb_per_s = 8", "gb_per_s = 8\nshared_by = 0"), "shared_by"),
    ],
)
def test_a_wrong_description_is_refused_by_key(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=message):
        described(ISLANDS.replace(*change), tmp_path)


@tp.program
def sums(x: f32[Tensor, "n c"]) -> Tensor:
    return tp.sum(tp.exp(x), axis=0)


@pytest.mark.parametrize("text", [ISLANDS, SHARED], ids=["islands", "shared"])
@pytest.mark.parametrize("mesh", [(4,), (2, 2)])
def test_plans_for_them_are_proved(text: str, mesh: tuple[int, ...], tmp_path: Path) -> None:
    machine = described(text, tmp_path)
    pin = Pin("tensor", "x", tuple((f"mesh{k}", "n") for k in range(len(mesh))))
    program = sums.bind(n=1024, c=8).with_pins(pin)
    made = plan(program, machine, mesh=mesh)
    assert made.check().ok, str(made.check())
    told = dict(made.document.traffic.bytes_by_link)
    assert sum(told.values()) == made.document.traffic.bytes_total > 0
    wrong = msgspec.structs.replace(made.document.traffic, bytes_by_link={"network": sum(told.values())})
    assert check(msgspec.structs.replace(made.document, traffic=wrong)).codes == {Code.LINKS}
