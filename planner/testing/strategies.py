"""Machines and plans drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from ...program import Program
from ...testing import partitions, programs
from ...testing.choices import Choices
from ..interface import Plan
from ..machine import DeviceModel, Link, Machine, OtherDevices, Tier, load_machine, machine_names
from ..search.explicit import plan_partitions

Draw = Callable[[st.SearchStrategy[Any]], Any]

PACES = (1.0, 0.1, 10.0)


def machines(most_devices: int = 4) -> st.SearchStrategy[Machine]:
    """Machines of 2 to ``most_devices`` devices: the described ones with other numbers of devices and hosts, faster or
    slower memories and links, some of them with devices of two kinds, islands, or links that two devices share; with
    transfers beside compute or not.

    Every machine has memory for the programs of `tapestry.testing.programs`; ask less of it by `Machine.with_memory`.
    """
    return _machines(most_devices)


@st.composite
def _machines(draw: Draw, most_devices: int) -> Machine:
    ch = Choices(draw)
    base = load_machine(ch.pick(sorted(machine_names())))
    between_hosts = any(link.scope == "cluster" for link in base.links)
    hosts = ch.integer(1, 2) if between_hosts and most_devices > 1 else 1
    # The description of one GPU has no links: it stays one device.
    most = most_devices // hosts if base.links else 1
    per_host, device = ch.integer(max(1, min(2 // hosts, most)), max(1, most)), _device(ch, base.device)
    links = tuple(_link(ch, link) for link in base.links)
    islands = per_host > 2 and per_host % 2 == 0 and ch.chance(30)
    if islands:
        links = (*links, replace(links[0], kind="near", scope="island", gb_per_s=4 * links[0].gb_per_s, shared_by=1))
    return replace(
        base,
        hosts=hosts,
        devices_per_host=per_host,
        links=links,
        device=device,
        devices_per_island=2 if islands else 0,
        others=_others(ch, device, hosts * per_host) if hosts * per_host > 1 and ch.chance(30) else (),
    )


def _others(ch: Choices, device: DeviceModel, count: int) -> tuple[OtherDevices, ...]:
    """The last devices are of another speed."""
    pace = ch.pick(PACES[1:])
    peak = tuple(replace(rate, tflops=rate.tflops * pace) for rate in device.peak)
    tiers = tuple(_tier(ch, tier) for tier in device.tiers)
    other = replace(device, peak=peak, tiers=tiers, launch_overhead_s=device.launch_overhead_s * ch.pick(PACES))
    return (OtherDevices(other, ((ch.integer(1, count - 1), count),)),)


def _link(ch: Choices, link: Link) -> Link:
    """Without what was measured of it, which says nothing of a link that is faster or slower."""
    rate, latency, together = link.gb_per_s * ch.pick(PACES), link.latency_s * ch.pick(PACES), ch.pick((1, 1, 2))
    return replace(link, gb_per_s=rate, latency_s=latency, shared_by=together, curve=())


def _device(ch: Choices, device: DeviceModel) -> DeviceModel:
    tiers = tuple(_tier(ch, tier) for tier in device.tiers)
    return replace(device, tiers=tiers, overlap=ch.chance(70) if device.overlap else False, paces=())


def _tier(ch: Choices, tier: Tier) -> Tier:
    pace = ch.pick(PACES)
    return replace(tier, read_gb_per_s=tier.read_gb_per_s * pace, write_gb_per_s=tier.write_gb_per_s * pace)


def plans(
    program: Program | None = None, machine: st.SearchStrategy[Machine] | None = None, ranks: int = 4
) -> st.SearchStrategy[Plan]:
    """Plans of a program (one of `tapestry.testing.programs` if not given) on drawn machines, for 1 to ``ranks`` ranks.

    Every operation is cut in some way, not the best: what is drawn covers what a planner would never choose. A plan is
    a right one: `Plan.check` accepts it, and `Plan.run` computes what the reference does.
    """
    return _plans(program, machine if machine is not None else machines(ranks), ranks)


@st.composite
def _plans(draw: Draw, program: Program | None, machine: st.SearchStrategy[Machine], ranks: int) -> Plan:
    found = draw(machine)
    chosen = program if program is not None else draw(programs(wide=True))
    count = draw(st.integers(1, min(ranks, found.device_count)))
    return plan_partitions(chosen, found, draw(partitions(chosen, count)))
