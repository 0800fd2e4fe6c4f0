"""The packaged H200 machines from one that `tapestry machine probe --device cupy -o probed.toml` wrote on two of them.

    python benchmarks/machines.py probed.toml [--four links.toml] [--into planner/machines]

One and two GPUs are as probed. Four take their links from what the same command wrote on four, with
``--devices-from h200``. Eight of them, and two hosts of eight, take over what a GPU computes; their links, and
host memory and disk while eight GPUs use them, are as they were measured by hand (`BY_HAND`).
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from gpu_rows import ROOT  # type: ignore[import-not-found, unused-ignore]

from tapestry.planner import load_machine
from tapestry.planner.machine import Curve, DeviceModel, Machine
from tapestry.planner.machine.write import machine_toml

PROBED = """Written by `tapestry machine probe --device cupy` on two NVIDIA H200 SXM; the description says when.
Each task was measured by itself, in a CUDA graph, under sustained load. Rates are the best of the curves; host memory
is read and written by one GPU alone. Assumed and not measured: the disk.
Operations are those of the examples but llama: its tasks are done together otherwise on one GPU than on two."""
FOUR = """What a GPU computes is as in the machine h200x2. The links were written by `tapestry machine probe` with
`--device cupy --devices-from h200` on four NVIDIA H200 SXM of one host, each kind of transfer between two of them and
between all four. Host memory is read by all four at once, pinned (36.9 GB/s a GPU; one alone 55.4), and taken to be
written as quickly. Not measured: that, and the disk."""
SLOPES = """
The slopes of attention were measured by shape on 2026-11-27, on one NVIDIA H100 SXM, whose processor is the same."""
EIGHT = """What a GPU computes was written by `tapestry machine probe --device cupy`, on the date of the machine h200x2.
The rest was measured by hand on H200 SXM, CUDA 13.0, torch 2.11: host memory 27.5 GB/s a GPU, pinned, all eight at once
(one alone 55.4; 101 in both directions); disk 3.4 read and 1.4 to 2.2 write a host, an eighth for each device.
NVLink 4 is sold as 450 GB/s a direction. NCCL, multicast off, as bus bandwidth (bytes that a rank receives, over time):
  all-reduce, 8 GPUs   24 / 165 / 312 GB/s for 1 / 16 / 256 MiB; 8 KiB take about 80 us
  all-reduce, 2 GPUs   13 / 136 / 267 GB/s for the same sizes
  all-gather, 8 GPUs   84 / 255 GB/s for shards of 1 / 16 MiB
Bytes received per rank: all-reduce of V: 2 x 7/8 V; all-gather of shards of V: 7 V. The host waited for each of these.
Of the same all-reduces on two GPUs, asked for one after another, 1 and 16 MiB take 40.0 and 97.8 us, not 80.7 and
123.4: the curves are what was measured by hand less 33 us, the mean of what that waiting costs. Carried over and not
measured on more than two: a reduce-scatter takes what an all-gather of as many bytes takes (on two GPUs, of 33 MB, 171
us each), and four GPUs take what the nearest measured number takes. Other transfers take the least fixed part, then 332
GB/s at most."""
NETWORK = """
Between hosts, not measured: one 400 Gb/s adapter a host (NVIDIA ConnectX-7 data sheet), 50 GB/s a direction for eight
devices, each given its share of 6.25; a latency of 62 us, the fixed part by hand, and a few microseconds of network."""


# Measured by hand: (collective, ranks, [(bytes that a rank receives, seconds)]); of these seconds the host waited some.
WAITED_S = 33e-6
BY_HAND = (
    ("all_reduce", 8, ((14336, 75.45e-6), (1835008, 76.46e-6), (29360128, 177.94e-6), (469762048, 1505.6e-6))),
    ("all_reduce", 2, ((1048576, 80.66e-6), (16777216, 123.36e-6), (268435456, 1005.4e-6))),
    ("all_gather", 8, ((7340032, 87.38e-6), (117440512, 460.55e-6))),
)
HOST_BYTES = 503 << 30  # of the host of four
AT_ONCE_GB_PER_S = 36.9  # of host memory, a GPU, while four copy
LINK_GB_PER_S, LEAST_S = 332.0, 62e-6  # the best rate beyond the fixed part, and the least fixed part


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probed", type=Path)
    parser.add_argument("--four", type=Path, help="a machine of four, whose links were probed; else as known")
    parser.add_argument("--into", type=Path, default=ROOT / "planner" / "machines")
    options = parser.parse_args()
    probed, names = load_machine(options.probed), names_in(options.probed)
    apart = {digest for digest, name in names.items() if not name.startswith("llama.")}
    probed = replace(probed, device=knowing(probed.device, apart))
    probed = replace(probed, links=tuple(replace(link, kind="nvlink") for link in probed.links))
    when = probed.description.rpartition("probed on ")[2]
    one = f"NVIDIA H200 SXM (141 GB{{}}), probed on {when}"
    made = {
        "h200": replace(probed, description=f"one {one.format('')}", devices_per_host=1, links=()),
        "h200x2": replace(probed, description=f"two {one.format(' each')}, NVLink between them"),
        "h200x8": with_device(load_machine("h200x8"), probed),
        "h200x8-2node": with_device(load_machine("h200x8-2node"), probed),
    }
    comments = {"h200": PROBED, "h200x2": PROBED, "h200x4": FOUR}
    made["h200x4"] = of_four(probed, load_machine(options.four or "h200x4"))
    for name, machine in made.items():
        comment = comments.get(name, EIGHT + NETWORK * name.endswith("2node")) + SLOPES
        text = machine_toml(replace(machine, name=name), comment, names)
        (options.into / f"{name}.toml").write_text(text, encoding="utf-8")


def of_four(probed: Machine, linked: Machine) -> Machine:
    """Four of the GPUs that were probed, with links as measured on four; each has its share of the host's memory while
    all of them copy."""
    rates = {"read_gb_per_s": AT_ONCE_GB_PER_S, "write_gb_per_s": AT_ONCE_GB_PER_S, "capacity_bytes": HOST_BYTES}
    tiers = [replace(tier, **rates) if tier.name == "host" else tier for tier in probed.device.tiers]
    when = linked.description.rpartition("probed on ")[2]
    return Machine(
        "h200x4", f"four NVIDIA H200 SXM (141 GB each), NVLink between them, probed on {when}",
        replace(probed.device, tiers=tuple(tiers)), 1, 4, tuple(replace(link, kind="nvlink") for link in linked.links),
    )  # fmt: skip


def names_in(path: Path) -> dict[str, str]:
    """What the measured operations of a machine file are called, by their digest."""
    device = tomllib.loads(path.read_text(encoding="utf-8"))["device"]
    found = [own for pace in device.get("at_work", []) for own in pace.get("operations", [])]
    return {own["digest"]: own["name"] for own in found if "name" in own}


def knowing(device: DeviceModel, digests: Collection[str]) -> DeviceModel:
    """A device with only some of the operations that were measured of themselves."""
    paces = []
    for pace in device.paces:
        kept = tuple(own for own in pace.operations if own.operation in digests)
        paces.append(replace(pace, operations=kept))
    return replace(device, paces=tuple(paces))


def with_device(machine: Machine, probed: Machine) -> Machine:
    """A machine whose devices compute as the probed ones do, by kernel class; the rest is its own."""
    near = replace(probed.device.compute_tier, capacity_bytes=machine.device.compute_tier.capacity_bytes)
    inside = replace(
        machine.links[0], gb_per_s=LINK_GB_PER_S, latency_s=LEAST_S - WAITED_S, curve=tuple(_without_waiting())
    )
    device = replace(knowing(probed.device, ()), tiers=(near, *machine.device.tiers[1:]))
    return replace(machine, device=device, links=(inside, *machine.links[1:]))


def _without_waiting() -> Iterator[Curve]:
    """The curves by hand less what the host waited; a reduce-scatter takes what an all-gather takes."""
    for collective, ranks, points in BY_HAND:
        curve = Curve(collective, ranks, tuple((size, size / (took - WAITED_S) / 1e9) for size, took in points))
        yield curve
        if collective == "all_gather":
            yield replace(curve, collective="reduce_scatter")


if __name__ == "__main__":
    main()
