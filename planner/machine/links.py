"""Links between devices, with measured curves of the transfers that people have names for."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log2
from typing import Literal

Scope = Literal["island", "host", "cluster"]
SCOPES: tuple[Scope, ...] = ("island", "host", "cluster")
"""How far a link reaches, the nearest first."""

COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast", "reduce", "shift", "sends")


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
