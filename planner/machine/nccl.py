"""NCCL's topology (NCCL_TOPO_DUMP_FILE): processors, PCIe switches, GPUs and their NVLinks, as XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from .errors import MachineError
from .matrix import Fabric, blocks, nvlink_rate, pcie_rate
from .nominal import nominal

_SWITCH = "0x068000"  # the PCI class of an NVSwitch
_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}

Path = tuple[Element, ...]
"""From the processor down to a GPU's own device."""


def read_nccl(text: str, file: str) -> Fabric:
    """MachineError where the file is not such a topology."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise MachineError("a topology declares no entities", where=file)
    try:
        root = ET.fromstring(text)
    except ET.ParseError as cause:
        raise MachineError(f"not XML: {cause}", where=file) from cause
    if root.tag != "system":
        raise MachineError(
            f"the top is <{root.tag}>", where=file, sides={"expected": "<system>", "got": f"<{root.tag}>"}
        )
    gpus = sorted(((gpu, path) for path, gpu in _gpus(root)), key=lambda each: _number(each[0], "dev", file))
    if not gpus:
        raise MachineError("there is no <gpu>", where=file)
    numbers = [gpu.get("dev", "") for gpu, _ in gpus]
    if len(set(numbers)) < len(numbers):
        sides, hint = {"dev": ", ".join(numbers)}, "a topology is of one host"
        raise MachineError("two GPUs have one number", where=file, sides=sides, hint=hint)
    paths = [path for _, path in gpus]
    count = len(gpus)
    joined = _joined([gpu for gpu, _ in gpus], paths, file)
    island = blocks(count, lambda a, b: joined[a][b] > 0, apart=False)
    figures = nominal()
    return Fabric(
        "NCCL",
        count,
        any(map(any, joined)),
        island,
        nvlink_rate(joined, island, figures.nvlink_of(_number(gpus[0][0], "sm", file, 80))),
        blocks(count, lambda a, b: len(paths[a]) > 2 and paths[a][1] is paths[b][1]),
        min(
            (_lanes(device, file) for path in paths for device in path[1:] if _says_lanes(device)), default=pcie_rate()
        ),
        blocks(count, lambda a, b: paths[a][0] is paths[b][0]),
        figures.processors[_VENDORS.get(paths[0][0].get("vendor", ""), "other")],
    )


def _gpus(root: Element) -> Iterator[tuple[Path, Element]]:
    left: list[Path] = [(cpu,) for cpu in root.iter("cpu")]
    while left:
        path = left.pop()
        yield from ((path, child) for child in path[-1] if child.tag == "gpu")
        left += [(*path, child) for child in path[-1] if child.tag == "pci"]


def _joined(gpus: Sequence[Element], paths: Sequence[Path], file: str) -> list[list[int]]:
    """NVLinks between every two GPUs; those to a switch count to every GPU that has some."""
    place = {path[-1].get("busid"): k for k, path in enumerate(paths)}
    found = [[0] * len(gpus) for _ in gpus]
    switched: dict[int, int] = {}
    for k, gpu in enumerate(gpus):
        for link in gpu.iter("nvlink"):
            count, target = _number(link, "count", file), place.get(link.get("target", ""))
            if target is not None:
                found[k][target] += count
            elif link.get("tclass") == _SWITCH:
                switched[k] = switched.get(k, 0) + count
    for a, count in switched.items():
        for b, other in switched.items():
            found[a][b] += min(count, other) if a != b else 0
    return found


def _says_lanes(device: Element) -> bool:
    """Virtual machines have devices of no lanes, or of a speed that is not known."""
    speed = device.get("link_speed", "")
    return bool(speed) and not speed.startswith("Unknown") and device.get("link_width") != "0"


def _lanes(device: Element, file: str) -> float:
    """GB/s of a PCIe device: its lanes at their speed."""
    known, speed = nominal().pcie_lane, device.get("link_speed", "").removesuffix(" PCIe")
    if speed not in known:
        sides = {"expected": ", ".join(known), "got": speed}
        raise MachineError(f"link_speed of {device.get('busid')}", where=file, sides=sides)
    return known[speed] * _number(device, "link_width", file)


def _number(element: Element, name: str, file: str, default: int | None = None) -> int:
    text = element.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdecimal() or len(text) > 9:
        sides = {"expected": "a whole number", "got": "nothing" if text is None else repr(text)}
        raise MachineError(f"{name} of a <{element.tag}>", where=file, sides=sides)
    return int(text)
