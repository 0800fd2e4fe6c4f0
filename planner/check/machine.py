"""The embedded machine, read strictly: what the proofs use of it, and that the rest is a machine at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from . import shapes
from .case import Memory

MOST = 1 << 62
FURTHEST = 1e300
_DEVICE = ("name", "launch_overhead_s", "peak", "tiers", "overlap", "paces")
_PACE = ("ranks", "start_s", "copy", "curves", "operations")
_TIER = ("name", "capacity_bytes", "read_gb_per_s", "write_gb_per_s", "shared_per_host")
_LINK = ("kind", "gb_per_s", "latency_s", "scope", "curve")
_CURVE = ("collective", "ranks", "points")
_SCOPES = ("island", "host", "cluster")
_MACHINE = ("name", "description", "device", "hosts", "devices_per_host", "links")
# Fields that are there where they say something.
_MACHINE_MORE, _LINK_MORE, _PACE_MORE = ("devices_per_island", "others"), ("shared_by",), ("shapes",)
_CURVE_MORE = {"operations": ("start_s",), "shapes": ("window",)}
_DEVICE_MORE, _WORKSPACE = ("workspaces",), ("kernel", "nbytes", "of_result")


@dataclass(frozen=True)
class Hardware:
    """How many devices there are and what their memories hold; the tier that devices compute in comes first.

    ``sizes``: of every tier what it holds, for the first kind of devices and for each of the others; ``shared``: those
    that a host's devices share. ``others``: per other kind the ranges of its devices.
    """

    hosts: int
    devices_per_host: int
    sizes: Mapping[str, tuple[int, ...]]
    shared: frozenset[str]
    others: tuple[tuple[tuple[int, int], ...], ...] = ()

    @property
    def devices(self) -> int:
        return self.hosts * self.devices_per_host

    def memories(self, devices: Iterable[int]) -> dict[str, Memory]:
        """Every tier as these devices have it."""
        kinds = [self.kind(device) for device in devices]
        return {
            name: Memory(tuple(sizes[kind] for kind in kinds), name in self.shared)
            for name, sizes in self.sizes.items()
        }

    def kind(self, device: int) -> int:
        """The number of a device's description: 0 of the first, k of the k-th of the others."""
        found = [k for k, mine in enumerate(self.others, start=1) if any(a <= device < b for a, b in mine)]
        return found[0] if found else 0


def read(machine: Mapping[str, Any]) -> Hardware | list[str]:
    """The hardware, or what is wrong with its description."""
    faults = list(_faults(machine))
    if faults:
        return faults
    others = machine.get("others", [])
    tiers = machine["device"]["tiers"]
    every = [tiers, *(other["device"]["tiers"] for other in others)]
    sizes = {tier["name"]: tuple(mine[k]["capacity_bytes"] for mine in every) for k, tier in enumerate(tiers)}
    shared = frozenset(tier["name"] for tier in tiers if tier["shared_per_host"])
    ranges = tuple(tuple((first, end) for first, end in other["ranges"]) for other in others)
    return Hardware(machine["hosts"], machine["devices_per_host"], sizes, shared, ranges)


def _faults(machine: Mapping[str, Any]) -> Iterator[str]:
    yield from _fields(machine, _MACHINE, "machine", _MACHINE_MORE)
    yield from _texts(machine, ("name", "description"), "machine")
    for name in ("hosts", "devices_per_host"):
        yield from _whole(machine.get(name), 1, f"machine.{name}")
    links = machine.get("links")
    for k, link in enumerate(links if isinstance(links, list) else ()):
        yield from _link_faults(link, f"machine.links[{k}]")
    if not isinstance(links, list):
        yield "machine.links is not a list"
    yield from _device_faults(machine.get("device"), "machine.device")
    if not any(True for name in ("hosts", "devices_per_host") for _ in _whole(machine.get(name), 1, "")):
        yield from _island_faults(machine, links if isinstance(links, list) else [])
        yield from _other_faults(machine)


def _island_faults(machine: Mapping[str, Any], links: list[Any]) -> Iterator[str]:
    """Islands are equal parts of a host, or whole hosts, where there are any."""
    hosts, per_host, size = machine["hosts"], machine["devices_per_host"], machine.get("devices_per_island")
    if size is None:
        if any(isinstance(link, Mapping) and link.get("scope") == "island" for link in links):
            yield "machine.links reach over islands, and there are none"
        return
    wrong = [*_whole(size, 1, "machine.devices_per_island")]
    if not wrong and per_host % size and (size % per_host or hosts * per_host % size):
        wrong = [f"machine.devices_per_island is {size}, neither a part of the {per_host} of a host nor whole hosts"]
    yield from wrong


def _other_faults(machine: Mapping[str, Any]) -> Iterator[str]:
    """Devices that are not like the first: each described once, with memories of the same names."""
    others, count = machine.get("others", []), machine["hosts"] * machine["devices_per_host"]
    taken: list[tuple[int, int]] = []
    if not isinstance(others, list):
        yield "machine.others is not a list"
        return
    for k, other in enumerate(others):
        at = f"machine.others[{k}]"
        yield from _fields(other, ("device", "ranges"), at)
        if not isinstance(other, Mapping):
            continue
        wrong = list(_device_faults(other.get("device"), f"{at}.device"))
        yield from wrong
        if not wrong and isinstance(machine.get("device"), Mapping) and not _alike(machine["device"], other["device"]):
            yield f"{at}.device has not the memories and the overlap of machine.device"
        ranges = _ranges(other.get("ranges"), count)
        if ranges is None:
            yield f"{at}.ranges is not a list of pairs (first, behind the last) of devices"
            return
        taken += ranges
    if any(a[1] > b[0] for a, b in pairwise(sorted(taken))):
        yield "machine.others describe a device twice"


def _ranges(value: object, count: int) -> list[tuple[int, int]] | None:
    """Pairs of numbers of devices, the second behind the last."""
    found: list[tuple[int, int]] = []
    for pair in value if isinstance(value, list) else [None]:
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(end) is int for end in pair):
            return None
        if not 0 <= pair[0] < pair[1] <= count:
            return None
        found.append((pair[0], pair[1]))
    return found


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Memories of the same names in the same order, shared alike; both overlap, or neither."""

    def facts(device: Mapping[str, Any]) -> object:
        tiers = device.get("tiers")
        known = [tier for tier in tiers if isinstance(tier, Mapping)] if isinstance(tiers, list) else []
        return device.get("overlap"), [(tier.get("name"), tier.get("shared_per_host")) for tier in known]

    return facts(one) == facts(other)


def _link_faults(link: object, at: str) -> Iterator[str]:
    yield from _fields(link, _LINK, at, _LINK_MORE)
    yield from _rate(link, "gb_per_s", at)
    yield from _time(link, "latency_s", at)
    if not isinstance(link, Mapping):
        return
    yield from _texts(link, ("kind", "scope"), at)
    if "shared_by" in link:
        yield from _whole(link["shared_by"], 1, f"{at}.shared_by")
    if link.get("scope") not in _SCOPES:
        yield f"{at}.scope is none of {', '.join(_SCOPES)}"
    curves = link.get("curve")
    if not isinstance(curves, list):
        yield f"{at}.curve is not a list"
        return
    for k, curve in enumerate(curves):
        yield from _curve_faults(curve, f"{at}.curve[{k}]")


def _curve_faults(curve: object, at: str) -> Iterator[str]:
    """Two points or more, of bytes and GB/s, of which bytes and times increase."""
    yield from _fields(curve, _CURVE, at)
    if not isinstance(curve, Mapping):
        return
    yield from _texts(curve, ("collective",), at)
    yield from _whole(curve.get("ranks"), 2, f"{at}.ranks")
    points = curve.get("points")
    pairs = [p for p in points if isinstance(p, list) and len(p) == 2] if isinstance(points, list) else []
    numbers = [(_finite(size), _finite(rate)) for size, rate in pairs]
    known = [(size, size / rate) for size, rate in numbers if size is not None and rate is not None and rate > 0]
    upward = all(a < c and b <= d for (a, b), (c, d) in pairwise(known))
    if not isinstance(points, list) or len(known) != len(points) or len(points) < 2 or not upward or known[0][0] < 0:
        yield f"{at}.points is not two pairs or more of bytes and GB/s, bytes and times increasing"


def _device_faults(device: object, at: str) -> Iterator[str]:
    yield from _fields(device, _DEVICE, at, _DEVICE_MORE)
    if not isinstance(device, Mapping):
        return
    yield from _time(device, "launch_overhead_s", at)
    yield from _texts(device, ("name",), at)
    if type(device.get("overlap")) is not bool:
        yield f"{at}.overlap is not true or false"
    paces = device.get("paces")
    for k, pace in enumerate(paces if isinstance(paces, list) else ()):
        yield from _pace_faults(pace, f"{at}.paces[{k}]")
    if not isinstance(paces, list):
        yield f"{at}.paces is not a list"
    else:
        yield from _named_once([pace.get("ranks") for pace in paces if isinstance(pace, Mapping)], f"{at}.paces")
    yield from _workspace_faults(device.get("workspaces", []), f"{at}.workspaces")
    rates, tiers = device.get("peak"), device.get("tiers")
    if not isinstance(rates, list) or not isinstance(tiers, list) or not tiers:
        yield f"{at} has no lists of rates (peak) and of memories (tiers)"
        return
    for k, rate in enumerate(rates):
        yield from _fields(rate, ("kernel", "dtype", "tflops"), f"{at}.peak[{k}]")
        yield from _rate(rate, "tflops", f"{at}.peak[{k}]")
        yield from _texts(rate, ("kernel", "dtype"), f"{at}.peak[{k}]")
    yield from _named_once([(r.get("kernel"), r.get("dtype")) for r in rates if isinstance(r, Mapping)], f"{at}.peak")
    for k, tier in enumerate(tiers):
        yield from _tier_faults(tier, f"{at}.tiers[{k}]")
    yield from _named_once([tier.get("name") for tier in tiers if isinstance(tier, Mapping)], f"{at}.tiers")


def _workspace_faults(workspaces: object, at: str) -> Iterator[str]:
    """What classes of kernels want, each once."""
    if not isinstance(workspaces, list):
        yield f"{at} is not a list"
        return
    for k, one in enumerate(workspaces):
        yield from _fields(one, _WORKSPACE, f"{at}[{k}]")
        yield from _texts(one, ("kernel",), f"{at}[{k}]")
        if isinstance(one, Mapping):
            yield from _whole(one.get("nbytes"), 0, f"{at}[{k}].nbytes")
            yield from _time(one, "of_result", f"{at}[{k}]")
    yield from _named_once([one.get("kernel") for one in workspaces if isinstance(one, Mapping)], at)


def _pace_faults(pace: object, at: str) -> Iterator[str]:
    """What was measured with some ranks at work: a start, and curves of (size, seconds)."""
    yield from _fields(pace, _PACE, at, _PACE_MORE)
    if not isinstance(pace, Mapping):
        return
    yield from _whole(pace.get("ranks"), 1, f"{at}.ranks")
    yield from _time(pace, "start_s", at)
    copies, lists = pace.get("copy"), [pace.get("curves"), pace.get("operations"), pace.get("shapes", [])]
    if copies != []:
        yield from _points_faults(copies, f"{at}.copy")
    if not all(isinstance(curves, list) for curves in lists):
        yield f"{at} has no lists of curves, operations and shapes"
        return
    by_class = ("kernel", "dtype")
    for name, keys, held in (
        ("curves", by_class, ("points",)),
        ("operations", ("operation",), ("points",)),
        ("shapes", by_class, (*shapes.AXES, "seconds")),
    ):
        every = pace.get(name, [])
        curves = [curve for curve in every if isinstance(curve, Mapping)]
        for k, curve in enumerate(every):
            yield from _fields(curve, (*keys, *held), f"{at}.{name}[{k}]", _CURVE_MORE.get(name, ()))
        for k, curve in enumerate(curves):
            here = f"{at}.{name}[{k}]"
            yield from _texts(curve, keys, here)
            if name == "operations" and "start_s" in curve:
                yield from _time(curve, "start_s", here)
            yield from (
                shapes.faults(curve, here)
                if name == "shapes"
                else _points_faults(curve.get("points"), f"{here}.points")
            )
        apart = (*keys, "window")
        yield from _named_once([tuple(str(curve.get(key)) for key in apart) for curve in curves], f"{at}.{name}")


def _points_faults(points: object, at: str) -> Iterator[str]:
    """One point or more, of sizes above 0 that increase and seconds above 0 that do not fall."""
    pairs = [p for p in points if isinstance(p, list) and len(p) == 2] if isinstance(points, list) else []
    numbers = [(size, took) for size, took in (map(_finite, pair) for pair in pairs) if size and took]
    above = all(size > 0 and took > 0 for size, took in numbers)
    upward = all(a < c and b <= d for (a, b), (c, d) in pairwise(numbers))
    if not isinstance(points, list) or not points or len(numbers) != len(points) or not above or not upward:
        yield f"{at} is not one pair or more of a size and seconds, sizes increasing and seconds not falling"


def _tier_faults(tier: object, at: str) -> Iterator[str]:
    yield from _fields(tier, _TIER, at)
    if isinstance(tier, Mapping):
        yield from _whole(tier.get("capacity_bytes"), 0, f"{at}.capacity_bytes")
        yield from _rate(tier, "read_gb_per_s", at)
        yield from _rate(tier, "write_gb_per_s", at)
        yield from _texts(tier, ("name",), at)
        if type(tier.get("shared_per_host")) is not bool:
            yield f"{at}.shared_per_host is not true or false"


def _fields(value: object, names: tuple[str, ...], at: str, more: tuple[str, ...] = ()) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{at} is not an object"
    elif set(value) - set(more) != set(names):
        odd = sorted(map(str, (set(value) - set(more)) ^ set(names)))
        yield f"{at} has the fields {', '.join(names)}; missing or unknown: {', '.join(odd)}"


def _texts(holder: object, names: tuple[str, ...], at: str) -> Iterator[str]:
    if isinstance(holder, Mapping):
        yield from (f"{at}.{name} is not a text" for name in names if not isinstance(holder.get(name), str))


def _named_once(names: list[object], at: str) -> Iterator[str]:
    for name in names:
        if names.count(name) > 1:
            yield f"{at} names {name!r} twice"
            return


def _whole(value: object, least: int, at: str) -> Iterator[str]:
    if type(value) is not int or not least <= value <= MOST:
        yield f"{at} is {value!r}, not a whole number from {least} to {MOST}"


def _rate(holder: object, name: str, at: str) -> Iterator[str]:
    value = _number(holder, name)
    if value is None or value <= 0:
        yield f"{at}.{name} is not a number above 0"


def _time(holder: object, name: str, at: str) -> Iterator[str]:
    value = _number(holder, name)
    if value is None or value < 0:
        yield f"{at}.{name} is not a number of 0 or more"


def _number(holder: object, name: str) -> float | None:
    """A finite number, which true and false are not."""
    return _finite(holder.get(name)) if isinstance(holder, Mapping) else None


def _finite(value: object) -> float | None:
    if type(value) not in (int, float) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= FURTHEST else None  # what is no number is not below anything
