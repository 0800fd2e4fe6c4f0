"""What work and moves take on the embedded machine, priced by code of the checker's own.

A shard of an operation: max(points * operations a point / rate, bytes / bandwidth) + start, with the bytes of all
elements that it reads and writes; where the machine was measured (`paces`, the one with the nearest number of ranks at
work), its curves instead of its rates and no less than its table of shapes says, and the operation's own curve and
start if it has them. A transfer: the busiest rank's bytes on the link that reaches all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import log2, sqrt
from typing import Any

from ...blocks import BLOCKS, flops_of_block
from ...expr import FUNCTIONS, MONOIDS, Call, Read, walk
from ...program import Block, Operation, Program
from . import shapes

# Which rate stands in where a kernel class has none of a type: its wider types, then the class it is nearest to.
WIDER = {
    "bool": "int8", "uint8": "int8", "int8": "int32", "uint16": "int32", "int16": "int32", "uint32": "int64",
    "int32": "int64", "int64": "f64", "f8e4m3": "f16", "f8e5m2": "f16", "bf16": "f32", "f16": "f32", "f32": "f64",
}  # fmt: skip
AS_WIDE = {"bf16": "f16", "f16": "bf16"}
NEAREST = {"conv": "matmul", "attention": "matmul", "slopes": "attention"}
BY_WIDTH = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64",
    "f8e4m3", "f8e5m2", "bf16", "f16", "f32", "f64",
)  # fmt: skip


class Unpriced(Exception):
    """The machine does not say what something takes; the text says what."""


Part = tuple[list[list[float]], float]
"""Measured points of (size, seconds), and a size."""


class Rates:
    """The rates of one machine, so many ranks of it at work, on one of the kinds of devices that it has."""

    def __init__(self, machine: Mapping[str, Any], ranks: int, kind: int = 0) -> None:
        device = machine["others"][kind - 1]["device"] if kind else machine["device"]
        paces = sorted(device["paces"], key=lambda pace: pace["ranks"])
        pace = min(paces, key=lambda pace: abs(log2(pace["ranks"] / ranks)), default=None)
        self.overlap = bool(device["overlap"])
        self.start_s = float(device["launch_overhead_s"] if pace is None else pace["start_s"])
        self._copies = pace["copy"] if pace is not None else []
        self._curves = {} if pace is None else {(c["kernel"], c["dtype"]): c["points"] for c in pace["curves"]}
        self._shapes = [] if pace is None else sorted(pace.get("shapes", []), key=lambda table: table.get("window", 0))
        measured = [] if pace is None else pace["operations"]
        self._own = {one["operation"]: one["points"] for one in measured}
        self._own_starts = {one["operation"]: float(one["start_s"]) for one in measured if "start_s" in one}
        self._bytes_per_s = float(device["tiers"][0]["read_gb_per_s"]) * 1e9
        self._peak = {(peak["kernel"], peak["dtype"]): float(peak["tflops"]) * 1e12 for peak in device["peak"]}
        self._tiers = {tier["name"]: tier for tier in device["tiers"]}
        self._links: list[Mapping[str, Any]] = machine["links"]
        per_host, islands = machine["devices_per_host"], machine.get("devices_per_island", 0)
        sizes = {"host": (per_host, 1), "cluster": (per_host * machine["hosts"], 2)}
        sizes |= {"island": (islands, 0)} if islands else {}
        # How many devices next to one another links of a scope connect, the fewest first.
        self.reach: list[tuple[str, tuple[int, int]]] = sorted(sizes.items(), key=lambda each: each[1])

    def work(self, op: Operation, program: Program, points: int, nbytes: int, touched: Sequence[int]) -> float:
        """Seconds of one shard, its start included; none for no points. ``touched``: elements that it writes, then
        those that it reads of each operand.

        A scan takes no more steps than it touches elements.
        """
        if not points:
            return 0.0
        if op.scan is not None and self.own(op, program) is None:
            points = min(points, sum(touched))
        return self._beyond_start(op, program, points, nbytes, touched) + self.start(op, program)

    def start(self, op: Operation, program: Program) -> float:
        """Of a task of an operation: its own where the machine says so, else that of all."""
        return self._own_starts.get(self.own(op, program) or "", self.start_s)

    def own(self, op: Operation, program: Program) -> str | None:
        """What the machine calls an operation that was measured itself."""
        name = program.graph.digest(op) if self._own else ""
        return name if name in self._own else None

    def _beyond_start(self, op: Operation, program: Program, points: int, nbytes: int, touched: Sequence[int]) -> float:
        own = self.own(op, program)
        if own is not None:
            return seconds_at(self._own[own], points)
        kernel, dtype, counting = _class(op), _dtype(op, program), -(-points // op.idle)
        arithmetic = seconds_at(self._curve(kernel, dtype), float(counting * _flops(op)))
        copied = seconds_at(self._copies, nbytes) if self._copies else nbytes / self._bytes_per_s
        tables = self._tables(kernel, dtype) or self._tables(kernel, AS_WIDE.get(dtype, dtype))
        shaped = shapes.seconds_of(tables, op, counting, touched) if tables and not shapes.few_queries(op) else 0.0
        if shaped and kernel == "matmul":
            shaped += self._laid_out(op, program, touched)
        places = _places(op) if kernel in ("elementwise", "reduce") else 0
        reading = seconds_at(self._curves["read", dtype], counting * places) if self._reads(dtype, places) else 0.0
        return max(arithmetic, copied, shaped, reading)

    def _laid_out(self, op: Operation, program: Program, touched: Sequence[int]) -> float:
        """Seconds of writing out windows as a matrix: of reading and writing the elements that are in them, at half the
        rate of a copy, by a kernel that has a start of its own."""
        found = shapes.rows_of_windows(op)
        if found is None or not found[1]:
            return 0.0
        nbytes = 2 * touched[1 + op.operands.index(found[0])] * program.tensor(found[0]).itemsize
        return self.start_s + 2 * (seconds_at(self._copies, nbytes) if self._copies else nbytes / self._bytes_per_s)

    def _tables(self, kernel: str, dtype: str) -> list[Mapping[str, Any]]:
        """Of shapes, those for smaller windows first; the slopes of attention are as attention where they have none."""
        like = kernel == "slopes" and all(table["kernel"] != kernel for table in self._shapes)
        wanted = ("attention" if like else kernel, dtype)
        return [table for table in self._shapes if (table["kernel"], table["dtype"]) == wanted]

    def _reads(self, dtype: str, places: int) -> bool:
        """Whether it was measured what reading several elements of one operand takes, and points do."""
        return places > 0 and ("read", dtype) in self._curves

    def _curve(self, kernel: str, dtype: str) -> list[list[float]]:
        """Measured seconds over operations, or a rate as one point, of the nearest class and type that has one."""
        classes = [kernel]
        while classes[-1] != "elementwise":
            classes.append(NEAREST.get(classes[-1], "elementwise"))
        for name in classes:
            for width in _widths(dtype):
                if (name, width) in self._curves:
                    measured: list[list[float]] = self._curves[name, width]
                    return measured
                if (name, width) in self._peak:
                    return [[1.0, 1 / self._peak[name, width]]]
        raise Unpriced(f"machine.device.peak has no rate for {kernel} in {dtype}, nor for elementwise in f64")

    def parts(self, op: Operation, program: Program, points: int, nbytes: int) -> tuple[Part, Part]:
        """What the arithmetic of so many points takes, or what was measured of the operation, and what so many bytes
        take: (seconds over sizes, the size)."""
        own = self.own(op, program)
        if own is not None:
            return (self._own[own], float(points)), ([[1.0, 0.0]], 0.0)
        operations = float(-(-points // op.idle) * _flops(op))
        copies = self._copies or [[1.0, 1 / self._bytes_per_s]]
        return (self._curve(_class(op), _dtype(op, program)), operations), (copies, float(nbytes))

    def each(self, op: Operation, program: Program) -> float:
        """Seconds of one point of an operation at the best rate; 0 where operations were measured themselves."""
        return 0.0 if self._own else float(_flops(op)) * never_below(self._curve(_class(op), _dtype(op, program)), 1.0)

    def copy(self, nbytes: int, source: str, target: str) -> float:
        """Seconds between tiers: the slower one's rate."""
        rate = min(self._tiers[source]["read_gb_per_s"], self._tiers[target]["write_gb_per_s"])
        return nbytes / (float(rate) * 1e9)

    def link(self, scope: str, receiving: Iterable[int] = ()) -> tuple[Mapping[str, Any], float]:
        """The fastest link among devices of an island, a host or the machine, with its bytes a second for each of the
        devices that receive: where some have it together, they divide it."""
        chosen = tuple(receiving)
        reach = dict(self.reach)
        reaching = [link for link in self._links if reach.get(link["scope"], (0, 0)) >= reach[scope]]
        if not reaching:
            raise Unpriced(f"machine.links has no link within one {scope}")
        rates = [float(link["gb_per_s"]) * 1e9 / _users(link, chosen) for link in reaching]
        fastest = max(range(len(rates)), key=rates.__getitem__)
        return reaching[fastest], rates[fastest]

    def streamed(self, nbytes: int, scope: str, receiving: Sequence[int]) -> tuple[float, Counter[Hashable]]:
        """Of receiving so many bytes the seconds over a link that devices have together, and how many of those that
        receive have which share of it, by the numbers of link and share; no seconds where they have none together.
        """
        link, rate = self.link(scope, receiving)
        if link.get("shared_by", 1) == 1 or not nbytes:
            return 0.0, Counter()
        number = next(k for k, other in enumerate(self._links) if other is link)
        return nbytes / rate, Counter((number, device // link["shared_by"]) for device in receiving)

    def receive(self, nbytes: int, kind: str, ranks: int, scope: str, receiving: Iterable[int]) -> float:
        """Seconds in which a rank has received so many bytes; a measured collective takes what its curve says."""
        if nbytes <= 0:
            return 0.0
        link, rate = self.link(scope, receiving)
        streamed = nbytes / rate
        curves = [curve for curve in link["curve"] if curve["collective"] == kind]
        if not curves:
            return float(link["latency_s"]) + streamed
        nearest = min(curves, key=lambda curve: (abs(log2(curve["ranks"] / ranks)), curve["ranks"]))
        return max(streamed, _on_curve(nearest["points"], nbytes))


def _users(link: Mapping[str, Any], receiving: Iterable[int]) -> int:
    """Most devices that have one share of a link together."""
    shares = Counter(device // link.get("shared_by", 1) for device in receiving)
    return max(shares.values(), default=1)


def seconds_at(points: list[list[float]], size: float) -> float:
    """Seconds at a size, linear between the measured points, at the first's rate below and the last's rate beyond."""
    (x0, t0), *_ = points
    if size <= x0:
        return size * t0 / x0
    for x1, t1 in points:
        if size <= x1:
            share = (size - x0) / (x1 - x0)
            return (1 - share) * t0 + share * t1
        x0, t0 = x1, t1
    return size * t0 / x0


def never_below(points: list[list[float]], size: float) -> float:
    """What sizes that come to this one take together at least: at the best rate of any point."""
    return size * min(t / x for x, t in points)


def least_weighed(part: Part, start: float, weight: float, load: float) -> float:
    """Over all shares p of a size, above 0 and up to 1, the least of (weight p + load) (start + seconds(p size)) / p.

    Between two measured points seconds are c + s p: there the least is at an end, or at p = sqrt(load (start + c) /
    (weight s)).
    """
    points, size = part
    shares = [x / size for x, _ in points if x < size]
    corners = [(0.0, 0.0), *((p, seconds_at(points, p * size)) for p in (*shares, 1.0))]
    (_, _), (p0, t0), *_ = corners
    found = [load * t0 / p0] if not start else []
    for (p, t), (q, u) in pairwise(corners):
        found.append((weight * q + load) * (start + u) / q)
        s = (u - t) / (q - p)
        c = start + t - s * p
        if c > 0 and s > 0 and weight > 0 and p < (at := sqrt(load * c / (weight * s))) < q:
            found.append((weight * at + load) * (c + s * at) / at)
    return min(found)


def _on_curve(points: list[list[float]], nbytes: int) -> float:
    """Seconds, linear between the measured points: flat below the first, on with the last slope beyond the last."""
    measured = [(size, size / (rate * 1e9)) for size, rate in points]
    if nbytes <= measured[0][0] or len(measured) == 1:
        return measured[0][1]
    right = next((k for k in range(1, len(measured)) if nbytes <= measured[k][0]), len(measured) - 1)
    (x0, t0), (x1, t1) = measured[right - 1], measured[right]
    return t0 + (t1 - t0) / (x1 - x0) * (nbytes - x0)


def _dtype(op: Operation, program: Program) -> str:
    """A block computes in the type of its first operand, all else in the widest of its operands."""
    dtypes = [program.tensor(name).dtype for name in op.operands] or [program.tensor(op.output).dtype]
    return dtypes[0] if isinstance(op.body, Block) else max(dtypes, key=BY_WIDTH.index)


def _flops(op: Operation) -> int | Fraction:
    if isinstance(op.body, Block):
        return flops_of_block(op, op.body.kernel)
    calls = sum(FUNCTIONS[node.function].flops for node in walk(op.body) if isinstance(node, Call))
    return max(1, calls + (MONOIDS[op.monoid].flops if op.monoid is not None else 0))


def _widths(dtype: str) -> Iterator[str]:
    """A type and those whose rates stand for its own, the nearest first."""
    width: str | None = dtype
    while width is not None:
        yield width
        if width in AS_WIDE:
            yield AS_WIDE[width]
        width = WIDER.get(width)


def _places(op: Operation) -> int:
    """How many elements a point reads, of operands of which it reads more than two."""
    if isinstance(op.body, Block):
        return 0
    read: dict[str, set[object]] = {}
    for each in op.reads:
        read.setdefault(each.tensor, set()).add(each.index)
    return sum(len(places) for places in read.values() if len(places) > 2)


def _class(op: Operation) -> str:
    """Of rates: a block's own; a fold of products whose factors share the folded dimensions is a product of matrices,
    with windows that share elements a convolution."""
    if isinstance(op.body, Block):
        return BLOCKS[op.body.kernel].rate
    if not op.reduce_dims:
        return "elementwise"
    body = op.body
    product = isinstance(body, Call) and body.function == "multiply" and all(isinstance(a, Read) for a in body.args)
    folded = set(op.reduce_dims)
    dims_of = [[row.dims for row in read.index] for read in op.reads]
    if op.monoid != "sum" or not product or not all(any(folded & dims for dims in rows) for rows in dims_of):
        return "reduce"
    windowed = any(len(dims) > 1 for rows in dims_of for dims in rows)
    return "conv" if windowed and shapes.rows_of_windows(op) is None else "matmul"
