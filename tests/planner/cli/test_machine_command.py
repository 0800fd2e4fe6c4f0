"""`tapestry machine list | show`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapestry.planner import load_machine, machine_names
from tapestry.planner.machine import machine_from_json

Tapestry = Callable[..., Any]


def test_list_names_every_machine(tapestry: Tapestry) -> None:
    ended = tapestry("machine", "list")
    assert ended.code == 0
    assert [line.split()[0] for line in ended.out.splitlines()] == machine_names()


def test_list_as_json(tapestry: Tapestry) -> None:
    assert list(json.loads(tapestry("machine", "list", "--json").out)["machines"]) == machine_names()


@pytest.mark.parametrize("name", machine_names())
def test_show_as_json_is_the_machine(tapestry: Tapestry, name: str) -> None:
    assert machine_from_json(json.loads(tapestry("machine", "show", name, "--json").out)) == load_machine(name)


@pytest.mark.parametrize("name", machine_names())
def test_show_names_every_tier_and_link(tapestry: Tapestry, name: str) -> None:
    shown, machine = tapestry("machine", "show", name), load_machine(name)
    assert shown.code == 0
    words = shown.out.split()
    assert {tier.name for tier in machine.device.tiers} | {link.kind for link in machine.links} <= set(words)


def test_an_unknown_machine(tapestry: Tapestry) -> None:
    ended = tapestry("machine", "show", "h20x8")
    assert (ended.code, ended.out) == (2, "")
    assert "did you mean 'h200x8'" in ended.err


def test_a_machine_with_a_field_too_many(tapestry: Tapestry, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\ncolour = "red"\n', encoding="utf-8")
    ended = tapestry("machine", "show", file)
    assert (ended.code, ended.out) == (2, "")
    assert str(file) in ended.err


def test_import_writes_a_machine_that_can_be_shown(tapestry: Tapestry, tmp_path: Path) -> None:
    network, mine = tmp_path / "network.yml", tmp_path / "mine.toml"
    network.write_text(
        "topology: [ Ring, Switch ]\nnpus_count: [ 4, 2 ]\nbandwidth: [ 50, 25 ]\nlatency: [ 500, 900 ]\n"
    )
    assert tapestry("machine", "import", str(network), "--devices-from", "cpu-4", "-o", str(mine)).code == 0
    assert tapestry("machine", "show", str(mine)).out.startswith("network: 8 devices")
    assert load_machine(mine).device == load_machine("cpu-4").device
    network.write_text("nothing of the kind")
    assert tapestry("machine", "import", str(network)).code == 2
