"""Machine files: TOML, checked key by key. One mistake, one message: file, table, key, what was expected."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import cast

from ...dtypes import DTYPES
from ...errors import close_match
from .device import KERNEL_CLASSES, READ, DeviceModel, KernelWorkspace, OperationCurve, Pace, Rate, Tier, WorkCurve
from .errors import MachineError
from .links import COLLECTIVES, SCOPES, Curve, Link, Scope
from .machine import Machine, OtherDevices
from .shapes import SHAPED, ShapeTable
from .timing import Points
from .toml_table import TomlTable, parse_toml, read_toml

_PACKAGED = resources.files(__package__.rpartition(".")[0]).joinpath("machines")
_TIERS = ("hbm", "host", "disk")
_RATE_SCALE = {"tflops": 1.0, "gflops": 1e-3}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def machine_names() -> list[str]:
    """The machines that come with the package, sorted."""
    return sorted(entry.name.removesuffix(".toml") for entry in _PACKAGED.iterdir() if entry.name.endswith(".toml"))


def load_machine(name_or_path: str | Path) -> Machine:
    """A packaged machine by name, or one described in a TOML file.

    Text that ends in .toml or holds a path separator is a path. Raises MachineError, which names the file, the table,
    the key and what was expected; for an unknown name it lists the known ones.
    """
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text or "\\" in text:
        return _machine(read_toml(Path(text), MachineError))
    if text not in machine_names():
        hint = f"{close_match(text, machine_names())}; a file of your own is given by its path, ending in .toml"
        raise MachineError(f"no machine {text!r}", hint=hint)
    packaged = _PACKAGED.joinpath(f"{text}.toml").read_text(encoding="utf-8")
    return _machine(parse_toml(packaged, f"{text}.toml", MachineError))


def _machine(table: TomlTable) -> Machine:
    name = table.text("name")
    if not _NAME.fullmatch(name):
        raise table.error("name", "letters, digits, '.', '_' and '-'", name)
    hosts, per_host = table.integer("hosts", least=1), table.integer("devices_per_host", least=1)
    device, others = _devices(table, hosts, per_host)
    machine = Machine(
        name=name,
        description=table.text("description"),
        device=device,
        hosts=hosts,
        devices_per_host=per_host,
        links=tuple(_link(link) for link in table.tables("links")),
        devices_per_island=_island(table, hosts, per_host),
        others=others,
    )
    table.close()
    _connected(machine, table)
    return machine


def _devices(table: TomlTable, hosts: int, per_host: int) -> tuple[DeviceModel, tuple[OtherDevices, ...]]:
    """One table: what every device is. Several, [[device]], each with a count: the devices in their order, of the
    machine or of each host."""
    if not table.holds_tables("device"):
        return _device(table.table("device")), ()
    tables = table.tables("device")
    counts = [each.integer("count", least=1) for each in tables]
    found = [_device(each) for each in tables]
    if sum(counts) not in (per_host, hosts * per_host):
        wanted = " or ".join(str(count) for count in dict.fromkeys((per_host, hosts * per_host)))
        raise table.error("device", f"counts that add up to {wanted}, the devices of a host or of all", sum(counts))
    for device, each in zip(found, tables, strict=True):
        if [tier.name for tier in device.tiers] != [tier.name for tier in found[0].tiers]:
            raise each.error(
                "tiers", "the same tiers as the first device has, in its order", [t.name for t in device.tiers]
            )
        if device.overlap != found[0].overlap:
            raise each.error("overlap", "what it is for the first device", device.overlap)
    ranges: dict[DeviceModel, list[tuple[int, int]]] = {}
    first = 0
    while first < hosts * per_host:
        for device, count in zip(found, counts, strict=True):
            ranges.setdefault(device, []).append((first, first + count))
            first += count
    return found[0], tuple(OtherDevices(d, tuple(mine)) for d, mine in ranges.items() if d != found[0])


def _island(table: TomlTable, hosts: int, per_host: int) -> int:
    """Devices of an island, 0 where there are none."""
    if "devices_per_island" not in table:
        return 0
    size = table.integer("devices_per_island", least=1)
    if per_host % size and (size % per_host or hosts * per_host % size):
        raise table.error("devices_per_island", f"a part of the {per_host} devices of a host, or whole hosts", size)
    return size


def _connected(machine: Machine, table: TomlTable) -> None:
    """Every pair of devices has a link."""
    scopes = {link.scope for link in machine.links}
    if "island" in scopes and not machine.devices_per_island:
        raise table.error(
            "devices_per_island", "how many devices an island has, as a link has the scope 'island'", None
        )
    reach = {scope: size for scope, size in machine.reaches if scope in scopes}
    if max(reach.values(), default=1) < machine.device_count:
        if machine.hosts > 1:
            raise table.error("links", f"one link with scope 'cluster' for {machine.hosts} hosts", sorted(scopes))
        expected = f"a link between the {machine.devices_per_host} devices of a host"
        raise table.error("links", expected, sorted(scopes))


def _device(table: TomlTable) -> DeviceModel:
    tiers = tuple(_tier(tier) for tier in table.tables("tiers"))
    names = [tier.name for tier in tiers]
    if not tiers or len(set(names)) < len(names):
        raise table.error("tiers", "at least one tier, each name once", names)
    if tiers[0].shared_per_host:
        raise table.error("tiers.0", "the tier that compute uses, each device its own", "shared_per_host = true")
    device = DeviceModel(
        name=table.text("name"),
        launch_overhead_s=table.number("launch_overhead_us", least=0.0) * 1e-6,
        peak=_rates(table.table("peak")),
        tiers=tiers,
        overlap=table.flag("overlap", default=True),
        paces=tuple(_pace(pace) for pace in table.tables("at_work")),
        workspaces=tuple(_workspace(one) for one in table.tables("workspaces")),
    )
    table.close()
    ranks = [pace.ranks for pace in device.paces]
    if len(set(ranks)) < len(ranks):
        raise table.error("at_work", "each number of ranks once", ranks)
    kernels = [one.kernel for one in device.workspaces]
    if len(set(kernels)) < len(kernels):
        raise table.error("workspaces", "each kernel class once", kernels)
    return device


def _workspace(table: TomlTable) -> KernelWorkspace:
    found = KernelWorkspace(
        kernel=table.choice("kernel", KERNEL_CLASSES),
        nbytes=table.integer("bytes", least=0),
        of_result=table.number("of_result", least=0.0) if "of_result" in table else 0.0,
    )
    table.close()
    return found


def _pace(table: TomlTable) -> Pace:
    curves, operations, tables = (table.tables(key) for key in ("curves", "operations", "shapes"))
    pace = Pace(
        ranks=table.integer("ranks", least=1),
        start_s=table.number("start_us", least=0.0) * 1e-6,
        copy=_seconds(table, "copied_bytes_and_us") if "copied_bytes_and_us" in table else (),
        curves=tuple(_work_curve(curve) for curve in curves),
        operations=tuple(_operation_curve(curve) for curve in operations),
        shapes=tuple(_shapes(shapes) for shapes in tables),
    )
    table.close()
    classes = [(curve.kernel, curve.dtype) for curve in pace.curves]
    names = [curve.operation for curve in pace.operations]
    kernels = [f"{kernel}.{dtype}" for kernel, dtype in classes]
    shapes = [f"{found.kernel}.{found.dtype}" + f".{found.window}" * bool(found.window) for found in pace.shapes]
    for key, named in (("curves", kernels), ("operations", names), ("shapes", shapes)):
        if len(set(named)) < len(named):
            raise table.error(key, "one curve each", named)
    return pace


def _work_curve(table: TomlTable) -> WorkCurve:
    kernel, dtype = table.choice("kernel", (*KERNEL_CLASSES, READ)), table.choice("dtype", tuple(DTYPES))
    curve = WorkCurve(kernel, dtype, _seconds(table, "operations_and_us"))
    table.close()
    return curve


def _shapes(table: TomlTable) -> ShapeTable:
    kernel, dtype = table.choice("kernel", SHAPED), table.choice("dtype", tuple(DTYPES))
    rows, columns, folded = (table.sizes(key) for key in ("rows", "columns", "folded"))
    seconds = tuple(us * 1e-6 for us in table.numbers("us", len(rows) * len(columns) * len(folded)))
    window = table.integer("window", least=1) if "window" in table else 0
    found = ShapeTable(kernel, dtype, rows, columns, folded, seconds, window)
    table.close()
    fall = found.fall()
    if fall is not None:
        raise table.error("us", "times that fall along no axis", "less at rows {}, columns {}, folded {}".format(*fall))
    return found


def _operation_curve(table: TomlTable) -> OperationCurve:
    start_s = table.number("start_us", least=0.0) * 1e-6 if "start_us" in table else None
    curve = OperationCurve(table.text("digest"), _seconds(table, "points_and_us"), start_s)
    if "name" in table:  # for people: which operation of which program it was
        table.text("name")
    table.close()
    return curve


def _seconds(table: TomlTable, key: str) -> Points:
    return tuple((size, us * 1e-6) for size, us in table.rising(key))


def _rates(table: TomlTable) -> tuple[Rate, ...]:
    rates = [rate for kernel in table.keys_in(KERNEL_CLASSES) for rate in _rates_of(kernel, table.table(kernel))]
    table.close(KERNEL_CLASSES)
    if not any(rate.kernel == "elementwise" and rate.dtype == "f64" for rate in rates):
        raise table.error("elementwise.f64_tflops", "a rate, because every other falls back to it", None)
    return tuple(rates)


def _rates_of(kernel: str, table: TomlTable) -> list[Rate]:
    spelled = {f"{dtype}_{unit}": (dtype, scale) for dtype in DTYPES for unit, scale in _RATE_SCALE.items()}
    rates = {}
    for key in table.keys_in(tuple(spelled)):
        dtype, scale = spelled[key]
        if dtype in rates:
            raise table.error(key, f"one rate for {dtype}", "two")
        rates[dtype] = Rate(kernel, dtype, table.number(key, above=0.0) * scale)
    table.close(tuple(f"{dtype}_tflops" for dtype in DTYPES))
    return list(rates.values())


def _tier(table: TomlTable) -> Tier:
    tier = Tier(
        name=table.choice("name", _TIERS),
        capacity_bytes=round(table.number("capacity_gb", above=0.0) * 1e9),
        read_gb_per_s=table.number("read_gb_per_s", above=0.0),
        write_gb_per_s=table.number("write_gb_per_s", above=0.0),
        shared_per_host=table.flag("shared_per_host", default=False),
    )
    table.close()
    return tier


def _link(table: TomlTable) -> Link:
    link = Link(
        kind=table.text("kind"),
        gb_per_s=table.number("gb_per_s", above=0.0),
        latency_s=table.number("latency_us", least=0.0) * 1e-6,
        scope=cast("Scope", table.choice("scope", SCOPES)),
        curve=tuple(_curve(curve) for curve in table.tables("curves")),
        shared_by=table.integer("shared_by", least=1) if "shared_by" in table else 1,
    )
    table.close()
    return link


def _curve(table: TomlTable) -> Curve:
    curve = Curve(
        collective=table.choice("collective", COLLECTIVES),
        ranks=table.integer("ranks", least=2),
        points=table.points("received_bytes_and_gb_per_s"),
    )
    table.close()
    times = [size / rate for size, rate in curve.points]
    if len(times) < 2 or times != sorted(times) or len({size for size, _ in curve.points}) < len(times):
        raise table.error("received_bytes_and_gb_per_s", "two points or more, bytes and times increasing", curve.points)
    return curve
