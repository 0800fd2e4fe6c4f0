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
from ..machine import COLLECTIVES, Link, Machine, Scope
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


@dataclass(frozen=True)
class Level:
    """Ranks in the groups that links of a scope connect: all of them, those of a host, those of an island."""

    scope: Scope
    groups: tuple[tuple[int, ...], ...]


class Traffic:
    """Prices transfers on one mesh of a machine, cached by layout pair."""

    def __init__(self, mesh: Mesh, machine: Machine, devices: Sequence[int] | None = None) -> None:
        """``devices``: of every rank; the first ones by default."""
        self.mesh, self.machine = mesh, machine
        self.devices = tuple(range(mesh.size)) if devices is None else tuple(devices)
        self._shared = any(link.shared_by > 1 for link in machine.links)
        self._links: dict[tuple[Scope, tuple[int, ...]], Link] = {}
        self._moves: dict[tuple[int, int, Width], Move] = {}
        self._keep: list[Layout] = []

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """All ranks together first, then the groups within which a nearer link connects, the widest first."""
        found: dict[tuple[tuple[int, ...], ...], Scope] = {}
        for scope, size in reversed(self.machine.reaches):
            groups: dict[int, list[int]] = {}
            for rank, device in enumerate(self.devices):
                groups.setdefault(device // size, []).append(rank)
            found[tuple(map(tuple, groups.values()))] = scope
        return tuple(Level(scope, groups) for groups, scope in found.items())

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
        around = [max(have.around(level.groups).missing(need)) * size for level in self.levels[1:]]
        receivers = tuple(rank for rank, lack in enumerate(missing) if lack)
        seconds = self._seconds(kind, [*around, busiest * size], receivers)
        return Move(total, total * size, busiest, kind, seconds, busiest * size)

    def _partial(self, have: Layout, need: Layout, width: Width) -> Move:
        total, results = have.moved(need), need.total - need.everything.size
        nbytes = (total - results) * width.partial + results * width.complete
        receivers = tuple(rank for rank, region in enumerate(need.regions) if region)
        kind = partial_kind(need)
        busiest = -(-total // max(1, len(receivers)))
        received = -(-nbytes // max(1, len(receivers)))
        seconds = self._seconds(kind, [received] * len(self.levels), receivers)
        return Move(total, nbytes, busiest, kind, seconds, received)

    def _seconds(self, kind: str, cumulated: Sequence[int], receivers: tuple[int, ...]) -> float:
        """Time for the busiest rank to receive its bytes. ``cumulated``: per level those from outside of the groups of
        the next one, all of them at last; what crosses groups takes the link that connects them.
        """
        collective = kind if kind in COLLECTIVES else None
        seconds, before, ranks = 0.0, 0, self.mesh.size
        for level, nbytes in zip(self.levels, cumulated, strict=True):
            if nbytes > before and any(len(group) > 1 for group in level.groups):
                seconds += self._link(level.scope, receivers).seconds(nbytes - before, collective, ranks)
                before, ranks = nbytes, 2
        return seconds

    def _link(self, scope: Scope, receivers: tuple[int, ...]) -> Link:
        """As each of the ranks that receive at once has it."""
        key = (scope, receivers if self._shared else ())
        if key not in self._links:
            self._links[key] = self.machine.link_of(scope, [self.devices[rank] for rank in key[1]])
        return self._links[key]


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
