"""One device: its memories, and what its tasks take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log2

from ...errors import close_match
from .errors import MachineError
from .shapes import Between, ShapeTable, about
from .timing import Points, Timing

KERNEL_CLASSES = ("elementwise", "reduce", "matmul", "conv", "attention", "slopes", "gather", "sort")
READ = "read"
"""What has a curve as kernel classes have: the elements that a point reads of one operand in several places."""

# Where a rate is not given, the next kernel class is asked, and in each class first the next wider type.
_NEXT_CLASS = {"conv": "matmul", "attention": "matmul", "slopes": "attention"}
# The classes of which tables of shapes, and memory to work in, are those of the next class where there are none.
_LIKE_NEXT = ("slopes",)
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

    def shaped(self, kernel: str, dtype: str, ranks: int, places: int = 0) -> ShapeTable | Between | None:
        """Seconds of a kernel class in this very dtype, or else in one of as many bits, by the shape of a task; None
        where shapes were not measured. ``places``: of a window, of convolutions.
        """
        pace = self.pace(ranks)
        tables = [] if pace is None else [table for table in pace.shapes if table.kernel == kernel]
        if not tables and kernel in _LIKE_NEXT:
            return self.shaped(_NEXT_CLASS[kernel], dtype, ranks, places)
        mine = [table for table in tables if table.dtype == dtype]
        return about(mine or [table for table in tables if table.dtype == _TWINS.get(dtype, dtype)], places)

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
        f64), then the next class (slopes: attention; conv and attention: matmul; any other: elementwise) in the same
        order of types.
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
        known = {one.kernel: one for one in self.workspaces}
        found = known.get(kernel) or (known.get(_NEXT_CLASS[kernel]) if kernel in _LIKE_NEXT else None)
        return 0 if found is None else found.nbytes + int(found.of_result * result_bytes)

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
