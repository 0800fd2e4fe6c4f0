"""`tapestry machine list | show | probe`."""

from __future__ import annotations

from typing import Annotated

import typer

from ...printable import columns
from ..machine import Machine, format_bytes, load_machine, machine_names, machine_to_json
from .guard import guarded
from .probe import probe
from .talk import put, put_json

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


def _text(machine: Machine) -> str:
    hosts = "1 host" if machine.hosts == 1 else f"{machine.hosts} hosts"
    return "\n\n".join(
        [
            f"{machine.name}: {machine.description}\n{hosts} x {machine.devices_per_host} x {machine.device.name}, "
            f"{machine.device.launch_overhead_s * 1e6:g} us to start a kernel",
            "memory\n" + columns(_tiers(machine), indent="  "),
            "sustained rates (10^12 operations a second, a multiply-add counts two)\n"
            + columns(_rates(machine), indent="  ")
            + (
                f"\n\nmeasured, by ranks at work\n{columns(_paces(machine), indent='  ')}"
                if machine.device.paces
                else ""
            ),
            "links\n" + (columns(_links(machine), indent="  ") if machine.links else "  none: one device"),
        ]
    )


def _tiers(machine: Machine) -> list[list[str]]:
    return [
        [
            tier.name,
            format_bytes(tier.capacity_bytes) + (" a host, shared" if tier.shared_per_host else " a device"),
            f"read {tier.read_gb_per_s:g} GB/s",
            f"write {tier.write_gb_per_s:g} GB/s",
        ]
        for tier in machine.device.tiers
    ]


def _rates(machine: Machine) -> list[list[str]]:
    return [[rate.kernel, rate.dtype, f"{rate.tflops:g}"] for rate in machine.device.peak]


def _paces(machine: Machine) -> list[list[str]]:
    return [
        [
            f"{pace.ranks} at work",
            f"{pace.start_s * 1e6:.3g} us to start a task",
            f"{len(pace.curves)} curves of kernels",
            f"{len(pace.operations)} of single operations",
        ]
        for pace in machine.device.paces
    ]


def _links(machine: Machine) -> list[list[str]]:
    reach = {"host": "inside a host", "cluster": "between all devices"}
    return [
        [
            link.kind,
            reach[link.scope],
            f"{link.gb_per_s:g} GB/s a device and direction",
            f"{link.latency_s * 1e6:g} us",
            f"{len(link.curve)} measured curves" if link.curve else "",
        ]
        for link in machine.links
    ]
