"""Exact traffic between two layouts, its name as a collective, and its time on the links.

Per element with holders H, needers N, and for partials one contributor chosen per part (d parts): |N - H| copies, or (d
- 1) + |N| - [some needer contributes] messages. Summed over elements by counting regions, never by enumerating
elements:

    complete   sum over ranks of |N_r| - |N_r & H_r|
    partial    d |union of N| - |union of (N_r & H_r)| contributions, and sum of |N_r| - |union of N| results,
               where every part has every element; else sum over parts of |H_part & union of N| for the first term

A contribution has the bytes of a record of the fold, which may be more than those of an element of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...records import Width
from ..machine import COLLECTIVES, Link, Machine
from .layouts import Layout, Mesh


@dataclass(frozen=True)
class Move:
    """A transfer between two layouts: elements and bytes received in all, elements by the busiest rank, kind, time.

    ``received``: the bytes that its time is of, those of the busiest rank.
    """

    elements: int
    nbytes: int
    busiest: int
    kind: str
    seconds: float
    received: int = 0


class Traffic:
    """Prices transfers on one mesh of a machine, cached by layout pair."""

    def __init__(self, mesh: Mesh, machine: Machine, devices: Sequence[int] | None = None) -> None:
        """``devices``: of every rank; the first ones by default."""
        self.mesh, self.machine = mesh, machine
        self.devices = tuple(range(mesh.size)) if devices is None else tuple(devices)
        self._moves: dict[tuple[int, int, Width], Move] = {}
        self._keep: list[Layout] = []

    @cached_property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """Ranks by host."""
        found: dict[int, list[int]] = {}
        for rank, device in enumerate(self.devices):
            found.setdefault(self.machine.host_of(device), []).append(rank)
        return tuple(tuple(ranks) for ranks in found.values())

    def move(self, have: Layout, need: Layout, width: Width) -> Move:
        """The transfer that completes ``need`` from ``have``."""
        key = (id(have), id(need), width)
        if key not in self._moves:
            self._keep += [have, need]
            self._moves[key] = (
                self._partial(have, need, width) if have.parts is not None else self._complete(have, need, width)
            )
        return self._moves[key]

    def _complete(self, have: Layout, need: Layout, width: Width) -> Move:
        if have is need:
            return Move(0, 0, 0, "local", 0.0)
        missing = have.missing(need)
        total, busiest = sum(missing), max(missing)
        if not total:
            return Move(0, 0, 0, "local", 0.0)
        kind, size = complete_kind(have, need, missing), width.complete
        seconds = self._seconds(kind, busiest * size, self._crossing(have, need) * size)
        return Move(total, total * size, busiest, kind, seconds, busiest * size)

    def _crossing(self, have: Layout, need: Layout) -> int:
        """Most elements that a rank can only get from another host."""
        if len(self.hosts) == 1:
            return 0
        return max(have.around(self.hosts).missing(need))

    def _partial(self, have: Layout, need: Layout, width: Width) -> Move:
        total, results = have.moved(need), need.total - need.everything.size
        nbytes = (total - results) * width.partial + results * width.complete
        receivers = max(1, sum(bool(region) for region in need.regions))
        kind = partial_kind(need)
        busiest = -(-total // receivers)
        received = -(-nbytes // receivers)
        seconds = self._seconds(kind, received, received if len(self.hosts) > 1 else 0)
        return Move(total, nbytes, busiest, kind, seconds, received)

    def _seconds(self, kind: str, received: int, crossing: int) -> float:
        """Time for the busiest rank to receive its bytes; what crosses hosts takes the slower link."""
        collective = kind if kind in COLLECTIVES else None
        if not crossing:
            return self._link(self.hosts[0]).seconds(received, collective, self.mesh.size)
        network = self._link(range(self.mesh.size)).seconds(crossing, collective, self.mesh.size)
        inside = self._link(self.hosts[0]).seconds(received - crossing, collective) if len(self.hosts[0]) > 1 else 0.0
        return network + inside

    def _link(self, ranks: Sequence[int]) -> Link:
        return self.machine.link_among(self.devices[rank] for rank in ranks)


def complete_kind(have: Layout, need: Layout, missing: list[int]) -> str:
    """What a library would call the transfer of complete data."""
    needers = [region for region, lack in zip(need.regions, missing, strict=True) if lack]
    same = all(region is needers[0] or region == needers[0] for region in needers)
    holders = [rank for rank, region in enumerate(have.regions) if region]
    if len(holders) == 1:
        return "broadcast" if same else "sends"
    if same and have.disjoint and len(needers) == len(need.regions):
        return "all_gather"
    if have.disjoint and need.disjoint and need.total == have.total:
        return "all_to_all"
    if need.part_count == 1 and have.within(need):
        return "shift" if _neighbours_only(have, need) else "all_gather"
    return "sends"


def _neighbours_only(have: Layout, need: Layout) -> bool:
    """Every rank finds all it lacks on ranks one away."""
    size = len(have.regions)
    for rank, region in enumerate(need.regions):
        near = [r for r in (rank - 1, rank, rank + 1) if 0 <= r < size]
        if not region <= have.union(near):
            return False
    return True


def partial_kind(need: Layout) -> str:
    """What a library would call the transfer that folds partial data."""
    needers = [region for region in need.regions if region]
    if len(needers) == 1:
        return "reduce"
    if need.disjoint:
        return "reduce_scatter"
    return "all_reduce"
