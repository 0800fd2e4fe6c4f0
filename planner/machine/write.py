"""A machine as a TOML file, which `load_machine` reads again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, product

from .device import DeviceModel, Pace, Tier
from .links import Curve, Link
from .machine import Machine
from .shapes import ShapeTable
from .timing import Points

DIGITS = 6


def machine_toml(machine: Machine, comment: str = "", names: Mapping[str, str] | None = None) -> str:
    """The text of a machine file. Numbers that are not whole have six digits.

    comment: for its head, where the figures come from. names: what the measured operations are called, by their digest.
    """
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    lines += [_entry("name", machine.name), _entry("description", machine.description)]
    lines += [_entry("hosts", machine.hosts), _entry("devices_per_host", machine.devices_per_host)]
    lines += [_entry("devices_per_island", machine.devices_per_island)] if machine.devices_per_island else []
    lines.append("")
    for device, count in _tables(machine):
        lines += _device(device, names or {}, count if machine.others else 0)
    for link in machine.links:
        lines += _link(link)
    return "\n".join(lines).rstrip() + "\n"


def _entry(key: str, value: str | float | bool) -> str:
    if isinstance(value, str | bool):
        return f"{key} = {json.dumps(value, ensure_ascii=False)}"
    return f"{key} = {_number(value)}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.{DIGITS}g}"


def _pairs(key: str, points: Iterable[tuple[float, float]]) -> str:
    return f"{key} = [{', '.join(f'[{_number(a)}, {_number(b)}]' for a, b in points)}]"


def _times(key: str, points: Points) -> str:
    return _pairs(key, [(int(size) if size == int(size) else size, seconds * 1e6) for size, seconds in points])


def _tables(machine: Machine) -> list[tuple[DeviceModel, int]]:
    """The devices in their order, so many of a kind next to one another; of one host where all hosts are alike."""
    if not machine.others:
        return [(machine.device, machine.device_count)]
    every = [machine.device_of(number) for number in range(machine.device_count)]
    host = every[: machine.devices_per_host]
    return [(kind, len(list(mine))) for kind, mine in groupby(host if every == host * machine.hosts else every)]


def _device(device: DeviceModel, names: Mapping[str, str], count: int) -> Iterator[str]:
    """``count``: how many there are next to one another, where not all are of this kind."""
    yield "[[device]]" if count else "[device]"
    if count:
        yield _entry("count", count)
    yield _entry("name", device.name)
    yield _entry("launch_overhead_us", device.launch_overhead_s * 1e6)
    yield _entry("overlap", device.overlap)
    yield ""
    yield "[device.peak]"
    for rate in device.peak:
        yield _entry(f"{rate.kernel}.{rate.dtype}_gflops", rate.tflops * 1e3)
    yield ""
    for tier in device.tiers:
        yield from _tier(tier)
    for one in device.workspaces:
        yield "[[device.workspaces]]"
        yield _entry("kernel", one.kernel)
        yield _entry("bytes", one.nbytes)
        if one.of_result:
            yield _entry("of_result", one.of_result)
        yield ""
    for pace in device.paces:
        yield from _pace(pace, names)


def _tier(tier: Tier) -> Iterator[str]:
    yield "[[device.tiers]]"
    yield _entry("name", tier.name)
    yield _entry("capacity_gb", tier.capacity_bytes / 1e9)
    yield _entry("read_gb_per_s", tier.read_gb_per_s)
    yield _entry("write_gb_per_s", tier.write_gb_per_s)
    yield _entry("shared_per_host", tier.shared_per_host)
    yield ""


def _pace(pace: Pace, names: Mapping[str, str]) -> Iterator[str]:
    yield "[[device.at_work]]"
    yield _entry("ranks", pace.ranks)
    yield _entry("start_us", pace.start_s * 1e6)
    if pace.copy:
        yield _times("copied_bytes_and_us", pace.copy)
    yield ""
    for curve in pace.curves:
        yield "[[device.at_work.curves]]"
        yield _entry("kernel", curve.kernel)
        yield _entry("dtype", curve.dtype)
        yield _times("operations_and_us", curve.points)
        yield ""
    for table in pace.shapes:
        yield from _shapes(table)
    for own in pace.operations:
        yield "[[device.at_work.operations]]"
        if own.operation in names:
            yield _entry("name", names[own.operation])
        yield _entry("digest", own.operation)
        if own.start_s is not None:
            yield _entry("start_us", own.start_s * 1e6)
        yield _times("points_and_us", own.points)
        yield ""


def _shapes(table: ShapeTable) -> Iterator[str]:
    """Seconds in a line for every pair of rows and columns."""
    yield "[[device.at_work.shapes]]"
    yield _entry("kernel", table.kernel)
    yield _entry("dtype", table.dtype)
    if table.window:
        yield _entry("window", table.window)
    for key, sizes in zip(("rows", "columns", "folded"), table.axes, strict=True):
        yield f"{key} = [{', '.join(map(str, sizes))}]"
    yield "us = ["
    deep = len(table.folded)
    for place, (rows, columns) in enumerate(product(table.rows, table.columns)):
        mine = table.seconds[place * deep : (place + 1) * deep]
        yield f"    {', '.join(_number(each * 1e6) for each in mine)},  # {rows} x {columns}"
    yield "]"
    yield ""


def _link(link: Link) -> Iterator[str]:
    yield "[[links]]"
    yield _entry("kind", link.kind)
    yield _entry("scope", link.scope)
    yield _entry("gb_per_s", link.gb_per_s)
    yield _entry("latency_us", link.latency_s * 1e6)
    if link.shared_by > 1:
        yield _entry("shared_by", link.shared_by)
    yield ""
    for curve in link.curve:
        yield from _curve(curve)


def _curve(curve: Curve) -> Iterator[str]:
    yield "[[links.curves]]"
    yield _entry("collective", curve.collective)
    yield _entry("ranks", curve.ranks)
    yield _pairs("received_bytes_and_gb_per_s", curve.points)
    yield ""
