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
# NVLinks within two fours, and one from each GPU to the other four, as a DGX-1 has them.
CUBE = matrix("X NV1 NV2 SYS", "NV1 X SYS NV2", "NV2 SYS X NV1", "SYS NV2 NV1 X")
APART = matrix("X SYS NV4 SYS", "SYS X SYS NV4", "NV4 SYS X SYS", "SYS NV4 SYS X")


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
# As virtual machines say it: of some devices no lanes or no speed, or of none.
XML_NO_LANES = XML_PCIE.replace('link_width="16"><gpu', 'link_width="0"><gpu')
XML_UNKNOWN = XML_PCIE.replace("16.0 GT/s PCIe", "Unknown", 1)
XML_SILENT = XML_PCIE.replace("16.0 GT/s PCIe", "")
XML_UNDER_THE_PROCESSOR = '<system><cpu numaid="0"><gpu dev="0"/><gpu dev="1"/></cpu></system>'
XML_DEEP = system("<pci>" * 3000 + gpu(0) + "</pci>" * 3000)

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
        (CUBE, 4, 2, [("nvlink", "island", 20, 1), ("processors", "host", 10, 1)]),
        (APART, 4, 0, [("processors", "host", 10, 1)]),
        ("\ufeff" + SWITCHED, 8, 0, [("nvlink", "host", 18 * 20, 1)]),
        (XML_NO_LANES, 4, 2, [("pcie switch", "island", 24, 1), ("processors", "host", 16, 2)]),
        (XML_UNKNOWN, 4, 2, [("pcie switch", "island", 24, 1), ("processors", "host", 16, 2)]),
        (XML_SILENT, 4, 2, [("pcie switch", "island", 24, 1), ("processors", "host", 16, 2)]),
        (XML_UNDER_THE_PROCESSOR, 2, 0, [("pcie", "host", 24, 1)]),
        (XML_DEEP, 1, 0, []),
    ],
    ids=[
        "nvlink bridges", "nvswitch", "pcie switches", "two sockets", "xml nvswitch", "xml pcie", "xml bridges",
        "hybrid cube", "bridges that cross", "byte order mark", "no lanes", "unknown speed", "no speed", "no pcie",
        "three thousand switches",
    ],
)  # fmt: skip
def test_topologies_of_one_host(
    text: str, devices: int, island: int, links: list[tuple[str, str, float, int]], tmp_path: Path
) -> None:
    machine = read(text, tmp_path)
    assert (machine.hosts, machine.devices_per_host, machine.devices_per_island) == (1, devices, island)
    assert [(link.kind, link.scope, link.gb_per_s, link.shared_by) for link in machine.links] == links
    assert machine.device == load_machine("h200x8").device


def test_nvlinks_that_no_link_of_the_machine_stands_for_are_named(tmp_path: Path) -> None:
    assert "without its NVLinks" in read(APART, tmp_path).description
    assert "NVLinks" not in read(BRIDGED, tmp_path).description


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "größe_2.txt"
    file.write_text(SWITCHED)
    again = tmp_path / "again.toml"
    again.write_text(machine_toml(imported(file, load_machine("h200x8"))))
    assert load_machine(again).name == "gr-e-2"


@pytest.mark.parametrize(
    "text",
    [
        ASTRA.replace("[ Ring, Switch ]", "[ Ring,\n  Switch  # of 4\n]"),
        ASTRA.replace("Ring", '"Ring"').replace("topology", "'topology'"),
        "---\n" + ASTRA + "...\n",
    ],
    ids=["over several lines", "quoted", "a document"],
)
def test_yaml_has_several_ways_to_say_it(text: str, tmp_path: Path) -> None:
    assert read(text, tmp_path).links == read(ASTRA, tmp_path).links


def test_one_dimension_needs_no_list(tmp_path: Path) -> None:
    machine = read("topology: Switch  # one\nnpus_count: 4\nbandwidth: 25.0\nlatency: [1.0]\n", tmp_path)
    assert (machine.hosts, machine.devices_per_host) == (1, 4)


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
        (BRIDGED.replace("NV4", "NV" + "9" * 5000), "GPU0 to GPU1"),
        (BRIDGED.replace("NV4\tX", "SYS\tX"), "both ways"),
        (XML_PCIE.replace('dev="1"', 'dev="0"'), "two GPUs"),
        (ASTRA.replace("[ 8, 4 ]", "[ 8 ]"), "npus_count"),
        (ASTRA.replace("[ 8, 4 ]", "[ 8, -4 ]"), "npus_count"),
        (ASTRA.replace("[ 8, 4 ]", "[ 8, 4000000000000 ]"), "npus_count"),
        (ASTRA.replace("[ 8, 4 ]", f"[ 8, {'9' * 5000} ]"), "npus_count"),
        (ASTRA.replace("[ 8, 4 ]", "[ 1000000, 1000000 ]"), "npus_count"),
        (ASTRA.replace("50.0", "1e308"), "bandwidth"),
        (ASTRA.replace("50.0", "1e-300"), "bandwidth"),
        (ASTRA.replace("500.0", "1e300"), "latency"),
        (ASTRA.replace("[ 8, 4 ]", "[ 8, 4 "), "line"),
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
