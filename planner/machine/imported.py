"""Machines from what other tools say of links: `nvidia-smi topo -m`, NCCL's topology, ASTRA-sim's network.

None of them says what devices compute or hold: that is taken from a machine that is known.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from pathlib import Path

from .errors import MachineError
from .links import SCOPES, Link
from .machine import Machine
from .matrix import Fabric, read_matrix
from .nccl import read_nccl
from .network import read_network
from .nominal import nominal


def imported(path: Path, devices_from: Machine) -> Machine:
    """The machine that a file describes, its devices those of another. MachineError: the file, and what is wrong."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "not UTF-8 text"
        raise MachineError(f"cannot be read: {reason}", where=str(path)) from cause
    name = re.sub("[^A-Za-z0-9]+", "-", path.stem).strip("-") or "imported"
    if text.lstrip().startswith("<"):
        return _on_one_host(read_nccl(text, str(path)), name, devices_from)
    if "npus_count" in text:
        return _network(text, str(path), name, devices_from)
    if "GPU0" in text:
        return _on_one_host(read_matrix(text, str(path)), name, devices_from)
    raise MachineError(
        "neither a topology of NCCL, nor of nvidia-smi topo -m, nor a network of ASTRA-sim",
        where=str(path),
        hint="these begin with <system, or have a column GPU0, or say npus_count",
    )


def _on_one_host(fabric: Fabric, name: str, known: Machine) -> Machine:
    """Islands are what NVLink joins, or else what one PCIe switch does; all others go through the host."""
    count, near = fabric.count, fabric.nvlink_island
    links: list[Link] = []
    latency = known.links[0].latency_s if known.links else nominal().latency_s
    if near > 1:
        links.append(Link("nvlink", fabric.nvlink_gb_per_s, latency, "host" if near == count else "island"))
    elif 1 < fabric.switch < count:
        near = fabric.switch
        links.append(Link("pcie switch", fabric.pcie_gb_per_s, latency, "island"))
    if near < count:
        up = Link("pcie", fabric.pcie_gb_per_s, latency, "host", shared_by=max(1, fabric.switch))
        across = Link("processors", fabric.processors_gb_per_s, latency, "host", shared_by=fabric.processor)
        narrower = fabric.processor < count and across.gb_per_s / across.shared_by < up.gb_per_s / up.shared_by
        links.append(across if narrower else up)
    dropped = fabric.nvlinks and fabric.nvlink_island == 1
    said = "says, without its NVLinks (they join no equal groups of neighbours)" if dropped else "says"
    return replace(
        known,
        name=name,
        description=f"{count} GPUs of one host, linked as {fabric.source} {said}; devices of {known.name}",
        hosts=1,
        devices_per_host=count,
        devices_per_island=near if 1 < near < count else 0,
        links=tuple(links),
        others=(),
    )


def _network(text: str, file: str, name: str, known: Machine) -> Machine:
    """The first dimension of a network is a host, or an island where there are three."""
    dims = [dim for dim in read_network(text, file) if dim.count > 1]
    if len(dims) > 3:
        counts = [dim.count for dim in dims]
        raise MachineError(
            f"a network of {len(dims)} dimensions",
            where=file,
            sides={"npus_count": str(counts)},
            hint="islands, hosts and the network between them are three: put two of them together",
        )
    scopes = SCOPES[1:] if len(dims) < 3 else SCOPES  # of one dimension the host alone
    counts = [dim.count for dim in dims]
    inside = counts if len(dims) < 2 else counts[:-1]
    links = [Link(dim.kind, dim.gb_per_s, dim.latency_s, scope) for dim, scope in zip(dims, scopes, strict=False)]
    return replace(
        known,
        name=name,
        description=f"{prod(counts)} devices in a network of ASTRA-sim; devices of {known.name}",
        hosts=prod(counts) // prod(inside),
        devices_per_host=prod(inside),
        devices_per_island=counts[0] if len(dims) == 3 else 0,
        links=tuple(links),
        others=(),
    )
