"""Machines: what the packaged ones say, and how a wrong description is refused."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.dtypes import DTYPES
from tapestry.errors import UsageError
from tapestry.planner import load_machine, machine_names, parse_bytes
from tapestry.planner.machine import (
    KERNEL_CLASSES,
    Machine,
    MachineError,
    Rate,
    format_bytes,
    machine_from_json,
    machine_to_json,
)

PACKAGED = Path(__file__).parents[3] / "planner" / "machines"
MIB = 1 << 20


def test_the_packaged_machines_are_those_of_the_issue() -> None:
    assert machine_names() == ["cpu-4", "h200", "h200x2", "h200x4", "h200x8", "h200x8-2node"]


@pytest.mark.parametrize("name", machine_names())
def test_every_packaged_machine_is_sound(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    rates = {(k, d): machine.device.ops_per_s(k, d) for k in KERNEL_CLASSES for d in DTYPES}
    assert min(rates.values()) > 0
    for a in range(machine.device_count):
        for b in range(a):
            link = machine.link_among((a, b))
            assert link.scope == "cluster" or machine.host_of(a) == machine.host_of(b)
            assert link == machine.link_among((b, a))


@pytest.mark.parametrize("name", machine_names())
def test_a_machine_survives_json(name: str) -> None:
    machine = load_machine(name).with_memory({"host": 7})
    assert machine_from_json(machine_to_json(machine)) == machine


def test_json_that_is_no_machine_is_refused_by_field() -> None:
    data = machine_to_json(load_machine("cpu-4")) | {"hosts": "one"}
    with pytest.raises(MachineError, match=r"hosts"):
        machine_from_json(data)


def test_links_of_two_hosts() -> None:
    machine = load_machine("h200x8-2node")
    assert machine.device_count == 16
    assert [machine.host_of(d) for d in (0, 7, 8, 15)] == [0, 0, 1, 1]
    assert machine.link_among((0, 7)).kind == "nvlink"
    assert machine.link_among((7, 8)).kind == "network"
    assert machine.link_among(range(8)).kind == "nvlink"
    assert machine.link_among([0, 1, 9]).kind == "network"


@pytest.mark.parametrize("pair", [(0, 0), (0, 4), (-1, 0)])
def test_no_link_to_oneself_or_to_nowhere(pair: tuple[int, int]) -> None:
    with pytest.raises(MachineError, match=r"no (link|device)"):
        load_machine("cpu-4").link_among(pair)


# Bus bandwidths of NCCL on eight and two H200, in GB/s, as measured: the time model gives them back.
@pytest.mark.parametrize(
    ("collective", "ranks", "received", "gb_per_s"),
    [
        ("all_reduce", 8, 2 * 7 * MIB // 8, 24),
        ("all_reduce", 8, 2 * 7 * 16 * MIB // 8, 165),
        ("all_reduce", 8, 2 * 7 * 256 * MIB // 8, 312),
        ("all_reduce", 2, 16 * MIB, 136),
        ("all_gather", 8, 7 * MIB, 84),
        ("all_gather", 8, 7 * 16 * MIB, 255),
    ],
)
def test_measured_collectives_are_met(collective: str, ranks: int, received: int, gb_per_s: float) -> None:
    """The host waited for what was measured by hand, which the machine leaves out."""
    link = load_machine("h200x8").link_among((0, 1))
    waited = 33e-6
    assert link.seconds(received, collective, ranks) + waited == pytest.approx(received / (gb_per_s * 1e9), rel=1e-4)


@given(
    sizes=st.lists(st.integers(0, 1 << 34), min_size=2, max_size=2).map(sorted),
    collective=st.sampled_from([None, "all_reduce", "all_gather", "all_to_all"]),
    ranks=st.integers(2, 16),
)
def test_time_grows_with_bytes_and_never_beats_the_link(sizes: list[int], collective: str | None, ranks: int) -> None:
    link = load_machine("h200x8").link_among((0, 1))
    short, long = (link.seconds(size, collective, ranks) for size in sizes)
    assert 0 <= short <= long
    assert long >= sizes[1] / (link.gb_per_s * 1e9)


def test_nothing_received_takes_no_time() -> None:
    assert load_machine("cpu-4").link_among((0, 1)).seconds(0) == 0


def test_rates_fall_back_to_wider_types_before_other_classes() -> None:
    known = {
        "matmul": {"bf16": 790, "f16": 790, "f32": 53, "f64": 53},
        "elementwise": {"f32": 33.5, "f64": 17, "int32": 16.7},
    }
    peak = tuple(Rate(kernel, dtype, tflops) for kernel, rates in known.items() for dtype, tflops in rates.items())
    device = replace(load_machine("h200").device, peak=peak)
    assert device.ops_per_s("matmul", "bf16") == 790e12
    assert device.ops_per_s("conv", "f16") == device.ops_per_s("matmul", "f16")
    assert device.ops_per_s("attention", "f32") == device.ops_per_s("matmul", "f32")
    assert device.ops_per_s("sort", "bf16") == device.ops_per_s("elementwise", "f32")
    assert device.ops_per_s("elementwise", "bool") == device.ops_per_s("elementwise", "int32")


def test_budgets_replace_capacities() -> None:
    machine = load_machine("h200x8").with_memory({"hbm": "8GiB", "host": 0})
    assert machine.capacity_bytes("hbm") == 8 << 30
    assert machine.capacity_bytes("host") == 0
    assert machine.device.compute_tier.name == "hbm"
    assert machine.link_among((0, 1)) == load_machine("h200x8").link_among((0, 1))


def test_a_shared_tier_is_shared_equally() -> None:
    machine = load_machine("h200x8").with_memory({"host": 8001})
    assert machine.capacity_bytes("host") == 1000


def test_a_budget_for_a_tier_that_is_not_there() -> None:
    with pytest.raises(MachineError, match=r"no memory tier 'hbn'") as failed:
        load_machine("h200").with_memory({"hbn": 1})
    assert "did you mean 'hbm'" in str(failed.value)


def test_an_unknown_machine_lists_the_known_ones() -> None:
    with pytest.raises(MachineError, match="no machine 'h20x8'") as failed:
        load_machine("h20x8")
    assert failed.value.exit_code == 2
    assert "did you mean 'h200x8'" in str(failed.value)
    assert all(name in str(failed.value) for name in machine_names())


def test_a_machine_of_ones_own_is_given_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((PACKAGED / "cpu-4.toml").read_text(encoding="utf-8").replace("cpu-4", "mine"), encoding="utf-8")
    assert load_machine(path) == load_machine(str(path))
    assert load_machine(path).name == "mine"


# What is changed in cpu-4.toml, and what the one message names: the table, the key, what was expected.
BROKEN = [
    ("hosts = 1", "hosts = 0", ["top level", "'hosts'", "an integer, 1 or more", "0"]),
    ("devices_per_host = 4", "devices_per_host = 0", ["top level", "'devices_per_host'", "1 or more"]),
    ("devices_per_host = 4", "devices_per_host = -4", ["'devices_per_host'", "-4"]),
    ("devices_per_host = 4", "devices_per_host = 4.0", ["'devices_per_host'", "an integer", "4.0"]),
    ("devices_per_host = 4", "devices_per_host = true", ["'devices_per_host'", "True"]),
    ("devices_per_host = 4", "", ["top level", "'devices_per_host'", "nothing"]),
    ("devices_per_host = 4", "device_per_host = 4", ["'devices_per_host'"]),
    ("hosts = 1", "hosts = 1\ncolour = 'red'", ["top level", "unknown key 'colour'"]),
    ("hosts = 1", "hosts = 2", ["top level", "'links'", "cluster"]),
    ('name = "cpu-4"', 'name = "c p u"', ["top level", "'name'", "letters"]),
    ('name = "cpu-4"', "name = 4", ["top level", "'name'", "text", "4"]),
    ("launch_overhead_us = 5", "launch_overhead_us = -5", ["[device]", "'launch_overhead_us'", "0 or more", "-5"]),
    ("launch_overhead_us", "launch_overhead_ms", ["[device]", "launch_overhead_us"]),
    ("capacity_gb = 4 ", "capacity_gb = '4' ", ["[device.tiers.0]", "'capacity_gb'", "a number", "'4'"]),
    ("capacity_gb = 64", "capacity_gb = 0", ["[device.tiers.1]", "'capacity_gb'", "greater than 0"]),
    ("capacity_gb = 64", "capacity_gb = inf", ["[device.tiers.1]", "'capacity_gb'", "inf"]),
    ("capacity_gb = 64", "capacity_gb = 64\nspeed = 1", ["[device.tiers.1]", "unknown key 'speed'"]),
    ('name = "disk"', 'name = "tape"', ["[device.tiers.1]", "'name'", "'hbm', 'host', 'disk'", "'tape'"]),
    ('name = "disk"', 'name = "host"', ["[device]", "'tiers'", "each name once"]),
    ("capacity_gb = 4 ", "shared_per_host = true\ncapacity_gb = 4 ", ["[device]", "'tiers.0'", "each device its own"]),
    ("shared_per_host = true", "shared_per_host = 1", ["[device.tiers.1]", "'shared_per_host'", "true or false"]),
    ("matmul.f32_gflops = 100", "matmul.f32_gflops = 0", ["[device.peak.matmul]", "'f32_gflops'", "greater than 0"]),
    ("matmul.f32_gflops", "matmul.f33_gflops", ["[device.peak.matmul]", "'f33_gflops'", "did you mean"]),
    ("matmul.f32_gflops", "matmull.f32_gflops", ["[device.peak]", "'matmull'", "did you mean 'matmul'"]),
    ("matmul.f64_gflops = 50", "matmul.f32_tflops = 1", ["[device.peak.matmul]", "one rate for f32"]),
    ("elementwise.f64_gflops = 4.0", "", ["[device.peak]", "elementwise.f64_tflops"]),
    ('scope = "host"', 'scope = "rack"', ["[links.0]", "'scope'", "'host', 'cluster'", "'rack'"]),
    ("gb_per_s = 3.0", "gb_per_s = 0", ["[links.0]", "'gb_per_s'", "greater than 0"]),
    ("[[links]]", "[links]", ["top level", "'links'", "[[links]]"]),
    ("latency_us = 100", "latency_us = 100\ncurves = [{}]", ["[links.0.curves.0]", "'collective'"]),
    (
        "latency_us = 100",
        "latency_us = 100\n[[links.curves]]\ncollective = 'broadcast'\nranks = 2\n"
        "received_bytes_and_gb_per_s = [[1, -1]]",
        ["[links.0.curves.0]", "'received_bytes_and_gb_per_s'", "[bytes, GB/s]"],
    ),
    (
        "latency_us = 100",
        "latency_us = 100\n[[links.curves]]\ncollective = 'broadcast'\nranks = 2\n"
        "received_bytes_and_gb_per_s = [[1, 1], [2, 3]]",
        ["[links.0.curves.0]", "times increasing"],
    ),
    ("hosts = 1", "hosts = = 1", ["not TOML", "line"]),
]


@pytest.mark.parametrize(("old", "new", "named"), BROKEN)
def test_a_wrong_description_gets_one_message(tmp_path: Path, old: str, new: str, named: list[str]) -> None:
    text = (PACKAGED / "cpu-4.toml").read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "broken.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(MachineError) as failed:
        load_machine(path)
    message = str(failed.value)
    assert str(path) in message
    assert [part for part in named if part not in message] == []


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe9"')
    for name, reason in (("none.toml", "No such file"), ("latin.toml", "UTF-8")):
        with pytest.raises(MachineError, match=reason):
            load_machine(tmp_path / name)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=3), st.data())
def test_no_value_anywhere_crashes_the_loader(value: object, data: st.DataObject) -> None:
    """Whatever one value is replaced by, the result is a machine or a MachineError."""
    from tapestry.planner.machine.load import _machine
    from tapestry.planner.machine.toml_table import TomlTable

    raw = tomllib.loads((PACKAGED / "h200x8.toml").read_text(encoding="utf-8"))
    spot: dict[str, object] | list[object] = raw
    while True:
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        key = data.draw(st.sampled_from(keys))
        inner = spot[key]  # type: ignore[index]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        spot = inner
    spot[key] = value  # type: ignore[index]
    try:
        outcome: Machine | str = _machine(TomlTable("drawn", "top level", raw, MachineError))
    except MachineError as error:
        outcome = str(error)
    assert isinstance(outcome, Machine) or outcome.startswith("drawn [")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1kB", 1000),
        ("1 KiB", 1024),
        ("3.5GiB", 7 << 29),
        ("80gb", 80 * 10**9),
        (".5MB", 500_000),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 GiB 2", "1e9", "3.5 furlongs", "0.3B", "1.2.3MB", "nan"])
def test_texts_that_are_no_size(text: str) -> None:
    with pytest.raises(UsageError, match=r"bytes|unit"):
        parse_bytes(text)


@given(st.integers(0, 1 << 60))
def test_whole_numbers_of_bytes_are_themselves(size: int) -> None:
    assert parse_bytes(str(size)) == parse_bytes(size) == size


@given(st.integers(0, 1 << 50))
def test_formatted_sizes_read_back_within_rounding(size: int) -> None:
    number, unit = format_bytes(size).split()
    assert float(number) * parse_bytes(f"1{unit}") == pytest.approx(size, rel=1e-3)
