"""Machines from topologies that other tools write, and what is said of files that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapestry.planner import load_machine
from tapestry.planner.machine import Machine, MachineError
from tapestry.planner.machine.imported import imported
from tapestry.planner.machine.write import machine_toml


def matrix(*rows: str) -> str:
    """As `nvidia-smi topo -m` prints it, with underlined names and columns of affinities."""
    names = "\t".join(f"GPU{k}" for k in range(len(rows)))
    lines = [f"\t\x1b[4m{names}\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m"]
    lines += ["\t".join([f"GPU{k}", *row.split(), "SYS", "0-31", "0"]) for k, row in enumerate(rows)]
    return "\n".join([*lines, "NIC0\t" + "\t".join(["SYS"] * len(rows)) + "\tX", "", "Legend:", "  X    = Self"])


BRIDGED = matrix("X NV4 SYS SYS", "NV4 X SYS SYS", "SYS SYS X NV4", "SYS SYS NV4 X")
SWITCHED = matrix(*(" ".join("X" if a == b else "NV18" for b in range(8)) for a in range(8)))
PCIE = matrix("X PIX NODE NODE", "PIX X NODE NODE", "NODE NODE X PIX", "NODE NODE PIX X")
SOCKETS = matrix("X PHB SYS SYS", "PHB X SYS SYS", "SYS SYS X PHB", "SYS SYS PHB X")


def gpu(number: int, links: str = "") -> str:
    return (
        f'<pci busid="0000:0{number}:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">'
        f'<gpu dev="{number}" sm="80" rank="{number}" gdr="1">{links}</gpu></pci>'
    )


def bus(*gpus: str) -> str:
    return (
        f'<pci busid="0000:c0:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">{"".join(gpus)}</pci>'
    )


def system(*processors: str) -> str:
    cpus = (f'<cpu numaid="{k}" arch="x86_64" vendor="AuthenticAMD">{cpu}</cpu>' for k, cpu in enumerate(processors))
    return f'<system version="1">{"".join(cpus)}</system>'


NVSWITCH = '<nvlink target="fffffff" count="12" tclass="0x068000"/>'
XML_SWITCH = system(bus(gpu(0, NVSWITCH), gpu(1, NVSWITCH)), bus(gpu(2, NVSWITCH), gpu(3, NVSWITCH)))
XML_PCIE = system(bus(gpu(0), gpu(1)), bus(gpu(2), gpu(3)))


def pair(other: int) -> str:
    return f'<nvlink target="0000:0{other}:00.0" count="4" tclass="0x030200"/>'


XML_BRIDGED = system(gpu(0, pair(1)) + gpu(1, pair(0)), gpu(2, pair(3)) + gpu(3, pair(2)))

ASTRA = """# two dimensions
topology: [ Ring, Switch ]
npus_count: [ 8, 4 ]
bandwidth: [ 50.0, 25.0 ]  # GB/s
latency: [ 500.0, 2000.0 ]  # ns
"""


def read(text: str, tmp_path: Path) -> Machine:
    file = tmp_path / "some topology.txt"
    file.write_text(text)
    machine = imported(file, load_machine("h200x8"))
    again = tmp_path / "again.toml"
    again.write_text(machine_toml(machine))
    written = load_machine(again)
    assert (written.hosts, written.devices_per_host) == (machine.hosts, machine.devices_per_host)
    assert written.devices_per_island == machine.devices_per_island
    assert [link.scope for link in written.links] == [link.scope for link in machine.links]
    return machine


@pytest.mark.parametrize(
    ("text", "devices", "island", "links"),
    [
        (BRIDGED, 4, 2, [("nvlink", "island", 4 * 20, 1), ("processors", "host", 10, 2)]),
        (SWITCHED, 8, 0, [("nvlink", "host", 18 * 20, 1)]),
        (PCIE, 4, 2, [("pcie switch", "island", 24, 1), ("pcie", "host", 24, 2)]),
        (SOCKETS, 4, 0, [("processors", "host", 10, 2)]),
        (XML_SWITCH, 4, 0, [("nvlink", "host", 12 * 20, 1)]),
        (XML_PCIE, 4, 2, [("pcie switch", "island", 24, 1), ("processors", "host", 16, 2)]),
        (XML_BRIDGED, 4, 2, [("nvlink", "island", 4 * 20, 1), ("processors", "host", 16, 2)]),
    ],
    ids=["nvlink bridges", "nvswitch", "pcie switches", "two sockets", "xml nvswitch", "xml pcie", "xml bridges"],
)
def test_topologies_of_one_host(
    text: str, devices: int, island: int, links: list[tuple[str, str, float, int]], tmp_path: Path
) -> None:
    machine = read(text, tmp_path)
    assert (machine.hosts, machine.devices_per_host, machine.devices_per_island) == (1, devices, island)
    assert [(link.kind, link.scope, link.gb_per_s, link.shared_by) for link in machine.links] == links
    assert machine.device == load_machine("h200x8").device


def test_a_network_of_astra_sim(tmp_path: Path) -> None:
    """A ring gives each device two links; a GB there is 2^30 bytes."""
    machine = read(ASTRA, tmp_path)
    assert (machine.hosts, machine.devices_per_host, machine.devices_per_island) == (4, 8, 0)
    near, far = machine.links
    assert (near.scope, near.kind, far.scope, far.kind) == ("host", "ring", "cluster", "switch")
    assert near.gb_per_s == pytest.approx(100 * 1.073741824)
    assert (near.latency_s, far.latency_s) == pytest.approx((500e-9, 2000e-9))


def test_three_dimensions_are_islands_hosts_and_the_network(tmp_path: Path) -> None:
    text = ASTRA.replace("[ Ring, Switch ]", "\n  - FullyConnected\n  - Ring\n  - Switch").replace(
        "[ 8, 4 ]", "[2, 4, 3]"
    )
    text = text.replace("[ 50.0, 25.0 ]", "[50, 25, 12]").replace("[ 500.0, 2000.0 ]", "[5, 5, 5]")
    machine = read(text, tmp_path)
    assert (machine.hosts, machine.devices_per_host, machine.devices_per_island) == (3, 8, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither"),
        ("hello", "neither"),
        ("<system>", "not XML"),
        ("<graphs/>", "the top is <graphs>"),
        ("<system/>", "no <gpu>"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><system/>', "entities"),
        (XML_PCIE.replace('dev="1"', 'dev="one"'), "dev of a <gpu>"),
        (XML_PCIE.replace("16.0 GT/s", "9 GT/s"), "link_speed"),
        (XML_SWITCH.replace('count="12"', ""), "count of a <nvlink>"),
        ("\n".join(BRIDGED.splitlines()[:3]), "no row of GPU2"),
        (BRIDGED.replace("NV4", "NVX"), "GPU0 to GPU1"),
        (BRIDGED.replace("NV4\tX", "SYS\tX"), "both ways"),
        (ASTRA.replace("[ 8, 4 ]", "[ 8 ]"), "npus_count"),
        (ASTRA.replace("[ 8, 4 ]", "[ 8, -4 ]"), "npus_count"),
        (ASTRA.replace("[ 8, 4 ]", "[ 8, 4000000000000 ]"), "npus_count"),
        (ASTRA.replace("Ring", "Torus"), "topology"),
        (ASTRA.replace("50.0", "0"), "bandwidth"),
        (ASTRA.replace("50.0", "fast"), "bandwidth"),
        (ASTRA.replace("latency", "delay"), "latency"),
        (ASTRA + "topology: [ Ring ]", "twice"),
        (ASTRA + "links: { a: b }", "line 6"),
    ],
)
def test_a_file_that_is_none_gives_one_clear_error(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "bad"
    file.write_text(text)
    with pytest.raises(MachineError, match=message) as error:
        imported(file, load_machine("h200"))
    assert str(file) in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be read"):
        imported(tmp_path / "nothing", load_machine("h200"))
