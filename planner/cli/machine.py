"""`tapestry machine list | show | probe | import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...printable import columns
from ..machine import DeviceModel, Machine, format_bytes, load_machine, machine_names, machine_to_json
from ..machine.imported import imported
from ..machine.write import machine_toml
from .guard import guarded
from .options import Force
from .probe import probe
from .talk import put, put_file, put_json

app = typer.Typer(help="Machine models: list them, show one, measure this computer.", no_args_is_help=True)
app.command()(probe)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("list")
@guarded
def list_machines(json: Json = False) -> None:
    """The machines that come with Tapestry."""
    machines = [load_machine(name) for name in machine_names()]
    if json:
        put_json({"machines": {machine.name: machine.description for machine in machines}})
    else:
        put(columns([[machine.name, machine.description] for machine in machines]))


@app.command("show")
@guarded
def show_machine(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A packaged machine, or a TOML file.")],
    json: Json = False,
) -> None:
    """One machine: its devices, memories and links."""
    machine = load_machine(name)
    if json:
        put_json(machine_to_json(machine))
    else:
        put(_text(machine))


@app.command("import")
@guarded
def import_machine(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="nvidia-smi topo -m, NCCL's XML, or ASTRA-sim's YAML.")],
    devices_from: Annotated[str, typer.Option(metavar="NAME|FILE", help="What the devices are.")] = "h200",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="F", help="The machine file; stdout without.")
    ] = None,
    force: Force = False,
) -> None:
    """A machine from what other tools say of links: the table of `nvidia-smi topo -m`, the XML that NCCL writes to
    NCCL_TOPO_DUMP_FILE, a network of ASTRA-sim. None of them says what devices compute and hold: another machine does.
    """
    machine = imported(file, load_machine(devices_from))
    comment = "Written by tapestry machine import. What links carry is nominal where the topology does not say it\n"
    comment += f"(planner/machine/nominal.toml has the sources); the devices are those of {devices_from}."
    text = machine_toml(machine, comment)
    if output is None:
        put(text.rstrip())
    else:
        put_file(output, text, force=force)


def _text(machine: Machine) -> str:
    hosts = "1 host" if machine.hosts == 1 else f"{machine.hosts} hosts"
    size = machine.devices_per_island
    islands = f", in islands of {size}" if size else ""
    alike = not machine.others
    what = machine.device.name if alike else "devices"
    parts = [f"{machine.name}: {machine.description}\n{hosts} x {machine.devices_per_host} x {what}{islands}"]
    if alike:
        parts[0] += f", {machine.device.launch_overhead_s * 1e6:g} us to start a kernel"
        parts += _device(machine.device)
    for device in () if alike else machine.devices:
        numbers = _numbers([k for k in range(machine.device_count) if machine.device_of(k) == device])
        parts.append(f"{device.name}, {device.launch_overhead_s * 1e6:g} us to start a kernel: devices {numbers}")
        parts += _device(device)
    parts.append("links\n" + (columns(_links(machine), indent="  ") if machine.links else "  none: one device"))
    return "\n\n".join(parts)


def _numbers(devices: list[int]) -> str:
    """Ascending numbers, those next to one another together.

    >>> _numbers([0, 1, 4, 5, 6, 9])
    '0-1, 4-6, 9'
    """
    runs: list[list[int]] = []
    for number in devices:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _device(device: DeviceModel) -> list[str]:
    rates = columns(_rates(device), indent="  ")
    found = [
        "memory\n" + columns(_tiers(device), indent="  "),
        f"sustained rates (10^12 operations a second, a multiply-add counts two)\n{rates}",
    ]
    return found + ([f"measured, by ranks at work\n{columns(_paces(device), indent='  ')}"] if device.paces else [])


def _tiers(device: DeviceModel) -> list[list[str]]:
    return [
        [
            tier.name,
            format_bytes(tier.capacity_bytes) + (" a host, shared" if tier.shared_per_host else " a device"),
            f"read {tier.read_gb_per_s:g} GB/s",
            f"write {tier.write_gb_per_s:g} GB/s",
        ]
        for tier in device.tiers
    ]


def _rates(device: DeviceModel) -> list[list[str]]:
    return [[rate.kernel, rate.dtype, f"{rate.tflops:g}"] for rate in device.peak]


def _paces(device: DeviceModel) -> list[list[str]]:
    return [
        [
            f"{pace.ranks} at work",
            f"{pace.start_s * 1e6:.3g} us to start a task",
            f"{len(pace.curves)} curves of kernels",
            f"{len(pace.operations)} of single operations",
            *([f"{len(pace.shapes)} tables of shapes"] if pace.shapes else []),
        ]
        for pace in device.paces
    ]


def _links(machine: Machine) -> list[list[str]]:
    reach = {"island": "inside an island", "host": "inside a host", "cluster": "between all devices"}
    return [
        [
            link.kind,
            reach[link.scope],
            f"{link.gb_per_s:g} GB/s "
            + (f"for {link.shared_by} devices together" if link.shared_by > 1 else "a device")
            + " and direction",
            f"{link.latency_s * 1e6:g} us",
            f"{len(link.curve)} measured curves" if link.curve else "",
        ]
        for link in machine.links
    ]
