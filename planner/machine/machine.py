"""The machine model: plain frozen data, so that a plan can embed the machine it was made for.

Units stand in the field names. Rates are what the hardware sustains, not what it is sold as; the planner's certified
bounds hold for the machine as described here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import log2
from typing import Literal

from ...errors import UsageError, close_match
from .shapes import ShapeTable
from .timing import Points, Timing
from .units import parse_bytes

Scope = Literal["island", "host", "cluster"]
SCOPES: tuple[Scope, ...] = ("island", "host", "cluster")
"""How far a link reaches, the nearest first."""

KERNEL_CLASSES = ("elementwise", "reduce", "matmul", "conv", "attention", "gather", "sort")
READ = "read"
"""What has a curve as kernel classes have: the elements that a point reads of one operand in several places."""
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce", "shift", "sends")

# Where a rate is not given, the next kernel class is asked, and in each class first the next wider type.
_NEXT_CLASS = {"conv": "matmul", "attention": "matmul"}
_WIDER = {
    "bool": "int8",
    "uint8": "int8",
    "int8": "int32",
    "uint16": "int32",
    "int16": "int32",
    "uint32": "int64",
    "int32": "int64",
    "int64": "f64",
    "f8e4m3": "f16",
    "f8e5m2": "f16",
    "bf16": "f32",
    "f16": "f32",
    "f32": "f64",
}
# Floats of as many bits, which processors compute at one rate.
_TWINS = {"bf16": "f16", "f16": "bf16"}


class MachineError(UsageError):
    """A machine that is not known, not well described, or asked for something it does not have."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Sustained arithmetic of one kernel class in one dtype: 10^12 operations per second, a multiply-add counts two."""

    kernel: str
    dtype: str
    tflops: float


@dataclass(frozen=True, slots=True)
class Tier:
    """A memory. `capacity_bytes` is for one device, or for all devices of a host together where `shared_per_host`.

    In the tier that compute uses (the first of a device), the rates are those of kernels streaming operands, bytes read
    and written both counted. In the tiers behind it, `read_gb_per_s` is a device fetching from the tier and
    `write_gb_per_s` a device storing to it, each while all devices of the host do the same. GB are 10^9 bytes.
    """

    name: str
    capacity_bytes: int
    read_gb_per_s: float
    write_gb_per_s: float
    shared_per_host: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A measured kind of transfer, most of them collectives, on `ranks` devices: `points` of (bytes that each rank
    receives, those bytes / time in GB/s).

    For V bytes in all, each of P ranks receives (P-1)/P V in an all-gather or reduce-scatter and 2(P-1)/P V in an
    all-reduce, so the rate is what NCCL's tests call bus bandwidth.
    """

    collective: str
    ranks: int
    points: tuple[tuple[int, float], ...]

    def seconds(self, received_bytes: float) -> float:
        """Time, linear between the points, flat below the first and with the last slope beyond the last."""
        xs = [size for size, _ in self.points]
        ts = [size / (rate * 1e9) for size, rate in self.points]
        if received_bytes <= xs[0]:
            return ts[0]
        right = min(max(bisect_left(xs, received_bytes), 1), len(xs) - 1)
        slope = (ts[right] - ts[right - 1]) / (xs[right] - xs[right - 1])
        return ts[right - 1] + slope * (received_bytes - xs[right - 1])


@dataclass(frozen=True, slots=True)
class Link:
    """How devices reach one another: all pairs of an island (`scope` "island"), of a host ("host") or of the machine
    ("cluster").

    `gb_per_s` is what one device can receive and, at the same time, send while all others do the same (10^9 bytes); no
    transfer is modelled faster. Where `shared_by` is above 1, so many devices next to one another have it together, as
    GPUs behind one PCIe switch do: those of them that receive at once divide it. `latency_s` is the fixed cost of one
    message or collective.
    """

    kind: str
    gb_per_s: float
    latency_s: float
    scope: Scope
    curve: tuple[Curve, ...] = ()
    shared_by: int = 1

    def users(self, devices: Iterable[int]) -> int:
        """How many of these devices have the busiest share of it together: 1 where it is not shared."""
        return max(Counter(device // self.shared_by for device in devices).values(), default=1)

    def among(self, users: int) -> Link:
        """The link as each of so many users at once has it."""
        return self if users == 1 else replace(self, gb_per_s=self.gb_per_s / users, shared_by=1)

    def seconds(self, received_bytes: float, collective: str | None = None, ranks: int = 2) -> float:
        """Time in which the busiest rank has received its bytes: 0 for none, else latency + bytes / bandwidth.

        Where `collective` has measured curves, the one with the nearest number of ranks (by ratio) is used instead;
        never below bytes / bandwidth.
        """
        if received_bytes <= 0:
            return 0.0
        streaming = received_bytes / (self.gb_per_s * 1e9)
        measured = [curve for curve in self.curve if curve.collective == collective]
        if not measured:
            return self.latency_s + streaming
        nearest = min(measured, key=lambda curve: (abs(log2(curve.ranks / ranks)), curve.ranks))
        return max(streaming, nearest.seconds(received_bytes))


@dataclass(frozen=True, slots=True)
class WorkCurve:
    """A measured kernel class in a dtype: `points` of (operations of one task, seconds beyond its start); for READ of
    (elements that its points read, seconds).
    """

    kernel: str
    dtype: str
    points: Points


@dataclass(frozen=True, slots=True)
class OperationCurve:
    """A measured operation of a program, named by `ProgramGraph.digest`: `points` of (index points of one task, seconds
    beyond its start). It comes before all that is known of its class. `start_s`: what its tasks take to start, where
    that is not what all do: one that is done within another's kernel has no start of its own.
    """

    operation: str
    points: Points
    start_s: float | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a device is while `ranks` devices of its host, it among them, are at work: they may share cores.

    `start_s` is the fixed cost of a task; `copy` has points of (bytes that a kernel reads and writes, seconds). A task
    takes no less than the curve of its class says, and no less than the table of its shape, where there is one.
    """

    ranks: int
    start_s: float
    copy: Points
    curves: tuple[WorkCurve, ...] = ()
    operations: tuple[OperationCurve, ...] = ()
    shapes: tuple[ShapeTable, ...] = ()

    def own(self, digest: str) -> OperationCurve | None:
        """What was measured of an operation itself."""
        return next((curve for curve in self.operations if curve.operation == digest), None)


@dataclass(frozen=True, slots=True)
class KernelWorkspace:
    """Memory that kernels of a class work in beside what a task reads and writes: `nbytes`, and `of_result` bytes for
    each byte of the result.
    """

    kernel: str
    nbytes: int
    of_result: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """One device: sustained rates, the fixed cost of starting a kernel, and its memories, the compute tier first.

    Where it was measured, `paces` say more than rates and launch overhead do: a plan on n ranks goes by the pace whose
    number of ranks is the nearest by ratio. `overlap`: transfers run beside compute; without it a device does one thing
    at a time. `workspaces`: the classes of kernels that want memory of their own; none of the others does.
    """

    name: str
    launch_overhead_s: float
    peak: tuple[Rate, ...]
    tiers: tuple[Tier, ...]
    overlap: bool = True
    paces: tuple[Pace, ...] = ()
    workspaces: tuple[KernelWorkspace, ...] = ()

    def pace(self, ranks: int) -> Pace | None:
        """How fast it is with so many ranks at work; None where only rates are known."""
        return min(self.paces, key=lambda pace: (abs(log2(pace.ranks / ranks)), pace.ranks), default=None)

    def start_s(self, ranks: int, digest: str = "") -> float:
        """The fixed cost of a task; ``digest``: of the operation, which may have a start of its own."""
        pace = self.pace(ranks)
        own = None if pace is None or not digest else pace.own(digest)
        if own is not None and own.start_s is not None:
            return own.start_s
        return self.launch_overhead_s if pace is None else pace.start_s

    def work(self, kernel: str, dtype: str, ranks: int) -> Timing:
        """Seconds over the operations of a task, its start left out. Fallback as in `ops_per_s`; where a class and
        dtype was measured with so many ranks at work, the measurement counts.
        """
        pace = self.pace(ranks)
        measured = {} if pace is None else {(curve.kernel, curve.dtype): curve.points for curve in pace.curves}
        known = {(rate.kernel, rate.dtype): rate.tflops for rate in self.peak}
        for candidate in _fallbacks(kernel, dtype):
            if candidate in measured:
                return Timing(measured[candidate])
            if candidate in known:
                return Timing.at_rate(known[candidate] * 1e12)
        return Timing.at_rate(self.ops_per_s(kernel, dtype))

    def shaped(self, kernel: str, dtype: str, ranks: int) -> ShapeTable | None:
        """Seconds of a kernel class in this very dtype, or else in one of as many bits, by the shape of a task; None
        where shapes were not measured."""
        pace = self.pace(ranks)
        tables = {} if pace is None else {(table.kernel, table.dtype): table for table in pace.shapes}
        return tables.get((kernel, dtype)) or tables.get((kernel, _TWINS.get(dtype, dtype)))

    def reading(self, dtype: str, ranks: int) -> Timing | None:
        """Seconds over elements of this very dtype that points read in several places; None where not measured."""
        pace = self.pace(ranks)
        curves = () if pace is None else pace.curves
        return next((Timing(c.points) for c in curves if (c.kernel, c.dtype) == (READ, dtype)), None)

    def copying(self, ranks: int) -> Timing:
        """Seconds over the bytes that a kernel reads and writes in the compute tier."""
        pace = self.pace(ranks)
        rate = Timing.at_rate(self.compute_tier.read_gb_per_s * 1e9)
        return rate if pace is None or not pace.copy else Timing(pace.copy)

    def operation(self, digest: str, ranks: int) -> Timing | None:
        """Seconds over the points of a measured operation, its start left out; None where it was not measured."""
        pace = self.pace(ranks)
        own = None if pace is None else pace.own(digest)
        return None if own is None else Timing(own.points)

    def ops_per_s(self, kernel: str, dtype: str) -> float:
        """Operations per second of a kernel class in a dtype (a multiply-add counts two).

        Fallback order: the class in ever wider types (bool, int8, int32, int64, f64; bf16 and f16, either first, f32,
        f64), then the next class (conv and attention: matmul; any other: elementwise) in the same order of types.
        """
        known = {(rate.kernel, rate.dtype): rate.tflops for rate in self.peak}
        for candidate in _fallbacks(kernel, dtype):
            if candidate in known:
                return known[candidate] * 1e12
        raise MachineError(
            f"no rate for {kernel}.{dtype}", where=self.name, hint="give elementwise.f64_tflops at least"
        )

    def workspace_bytes(self, kernel: str, result_bytes: int) -> int:
        """Bytes that a task of a kernel class wants to work in, whose result takes so many."""
        found = (one for one in self.workspaces if one.kernel == kernel)
        return next((one.nbytes + int(one.of_result * result_bytes) for one in found), 0)

    @property
    def compute_tier(self) -> Tier:
        return self.tiers[0]

    def tier(self, name: str) -> Tier:
        for tier in self.tiers:
            if tier.name == name:
                return tier
        known = [tier.name for tier in self.tiers]
        raise MachineError(f"no memory tier {name!r}", where=self.name, hint=close_match(name, known))


def _fallbacks(kernel: str, dtype: str) -> Iterable[tuple[str, str]]:
    stage: str | None = kernel
    while stage is not None:
        for width in _widths(dtype):
            yield stage, width
        stage = _NEXT_CLASS.get(stage, "elementwise" if stage != "elementwise" else None)


def _widths(dtype: str) -> Iterable[str]:
    width: str | None = dtype
    while width is not None:
        yield width
        if width in _TWINS:
            yield _TWINS[width]
        width = _WIDER.get(width)


@dataclass(frozen=True, slots=True)
class OtherDevices:
    """Devices of a machine that are not like its first: `ranges` of their numbers, each (first, behind the last)."""

    device: DeviceModel
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """`hosts` hosts of `devices_per_host` devices, numbered host by host; `device` is what those are that no `others`
    name.

    Where `devices_per_island` is not 0, so many devices next to one another are an island, within which links of that
    scope connect: a part of a host, or several hosts.
    """

    name: str
    description: str
    device: DeviceModel
    hosts: int
    devices_per_host: int
    links: tuple[Link, ...]
    devices_per_island: int = 0
    others: tuple[OtherDevices, ...] = ()

    @property
    def device_count(self) -> int:
        return self.hosts * self.devices_per_host

    def device_of(self, number: int) -> DeviceModel:
        """What a device is."""
        return self.devices[self.kind_of(number)]

    def kind_of(self, number: int) -> int:
        """As which of ``others`` a device is described, counted from 1; 0: as none of them."""
        found = (k for k, other in enumerate(self.others, 1) if any(a <= number < b for a, b in other.ranges))
        return next(found, 0)

    @property
    def devices(self) -> tuple[DeviceModel, ...]:
        """The different devices there are, the first device first."""
        return (self.device, *(other.device for other in self.others))

    def of_one_kind(self, device: DeviceModel) -> Machine:
        """The same machine if all its devices were such."""
        return replace(self, device=device, others=()) if self.others else self

    def host_of(self, device: int) -> int:
        if not 0 <= device < self.device_count:
            raise MachineError(
                f"no device {device}", where=self.name, sides={"devices": f"0 to {self.device_count - 1}"}
            )
        return device // self.devices_per_host

    @property
    def reaches(self) -> tuple[tuple[Scope, int], ...]:
        """The scopes there are, by how many devices next to one another they take in, the fewest first."""
        sizes: dict[Scope, int] = {"host": self.devices_per_host, "cluster": self.device_count}
        if self.devices_per_island:
            sizes["island"] = self.devices_per_island
        return tuple(sorted(sizes.items(), key=lambda each: (each[1], SCOPES.index(each[0]))))

    def link_among(self, devices: Iterable[int], users: Iterable[int] | None = None) -> Link:
        """The fastest link that connects every pair of two or more devices, as it is for each of them while ``users``
        (all of them by default) receive at once."""
        group = set(devices)
        for device in group:
            self.host_of(device)
        scope = next(scope for scope, size in self.reaches if len({device // size for device in group}) == 1)
        found = self.link_of(scope, group if users is None else users)
        if len(group) < 2:
            raise MachineError(f"no link among devices {sorted(group)}", where=self.name)
        return found

    def link_of(self, scope: Scope, users: Iterable[int] = ()) -> Link:
        """The fastest link that connects all devices of an island, a host or the machine, as it is for each of them
        while ``users`` receive."""
        chosen = tuple(users)
        found = self.nearest(scope, chosen)
        return found.among(found.users(chosen))

    def nearest(self, scope: Scope, users: Iterable[int] = ()) -> Link:
        """The same link as it is when nobody uses it."""
        chosen = tuple(users)
        wide = {name: place for place, (name, _) in enumerate(self.reaches)}
        reaching = [link for link in self.links if wide.get(link.scope, -1) >= wide[scope]]
        if not reaching:
            raise MachineError(f"no link among devices of one {scope}", where=self.name)
        return max(reaching, key=lambda link: link.gb_per_s / link.users(chosen))

    def capacity_bytes(self, tier: str, number: int = 0) -> int:
        """What a device may use of a tier: all of its own, or its equal share of one the host's devices share."""
        found = self.device_of(number).tier(tier)
        return found.capacity_bytes // (self.devices_per_host if found.shared_per_host else 1)

    def with_memory(self, budgets: Mapping[str, int | str]) -> Machine:
        """The same machine with other capacities: {"hbm": "3.5GiB", "host": 0}, per device or per host as the tier is.

        A budget may exceed the hardware: that asks what more memory would buy. It is that of every device.
        """
        sizes = {self.device.tier(name).name: parse_bytes(size) for name, size in budgets.items()}
        others = tuple(replace(other, device=_with_memory(other.device, sizes)) for other in self.others)
        return replace(self, device=_with_memory(self.device, sizes), others=others)


def _with_memory(device: DeviceModel, sizes: Mapping[str, int]) -> DeviceModel:
    tiers = (replace(tier, capacity_bytes=sizes.get(tier.name, tier.capacity_bytes)) for tier in device.tiers)
    return replace(device, tiers=tuple(tiers))
