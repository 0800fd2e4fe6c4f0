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
from .layouts import Layout, Mesh, relate


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
        self._times: dict[tuple[str, tuple[int, ...], tuple[int, ...]], float] = {}

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

    def prime(self, haves: Sequence[Layout], needs: Sequence[Layout]) -> None:
        """What the times of all these transfers are asked of, found out at once."""
        relate(haves, needs)
        for level in self.levels[1:]:
            relate([have.around(level.groups) for have in haves if have.parts is None], needs)

    def _complete(self, have: Layout, need: Layout, width: Width) -> Move:
        if have is need:
            return Move(0, 0, 0, "local", 0.0)
        pair = have.pair(need)
        total, busiest = pair.missing, pair.busiest
        if not total:
            return Move(0, 0, 0, "local", 0.0)
        kind, size = complete_kind(have, need), width.complete
        around = [have.around(level.groups).pair(need).busiest * size for level in self.levels[1:]]
        receivers = tuple(rank for rank, lack in enumerate(have.missing(need)) if lack) if self._shared else ()
        seconds = self._seconds(kind, [*around, busiest * size], receivers)
        return Move(total, total * size, busiest, kind, seconds, busiest * size)

    def _partial(self, have: Layout, need: Layout, width: Width) -> Move:
        total, results = have.moved(need), need.total - need.everything.size
        nbytes = (total - results) * width.partial + results * width.complete
        receivers = tuple(rank for rank, region in enumerate(need.regions) if region) if self._shared else ()
        kind = partial_kind(need)
        busiest, received = (-(-amount // max(1, need.holders)) for amount in (total, nbytes))
        seconds = self._seconds(kind, [received] * len(self.levels), receivers)
        return Move(total, nbytes, busiest, kind, seconds, received)

    def _seconds(self, kind: str, cumulated: Sequence[int], receivers: tuple[int, ...]) -> float:
        """Time for the busiest rank to receive its bytes. ``cumulated``: per level those from outside of the groups of
        the next one, all of them at last; what crosses groups takes the link that connects them.
        """
        key = (kind, tuple(cumulated), receivers)
        if key not in self._times:
            self._times[key] = self._timed(*key)
        return self._times[key]

    def _timed(self, kind: str, cumulated: Sequence[int], receivers: tuple[int, ...]) -> float:
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


def complete_kind(have: Layout, need: Layout) -> str:
    """What a library would call the transfer of complete data."""
    pair = have.pair(need)
    if have.holders == 1:
        return "broadcast" if pair.alike else "sends"
    if pair.alike and have.disjoint and pair.lacking == len(need.regions):
        return "all_gather"
    if have.disjoint and need.disjoint and need.total == have.total:
        return "all_to_all"
    if need.part_count == 1 and pair.inside:
        return "shift" if have.near(need) else "all_gather"
    return "sends"


def partial_kind(need: Layout) -> str:
    """What a library would call the transfer that folds partial data."""
    if need.holders == 1:
        return "reduce"
    if need.disjoint:
        return "reduce_scatter"
    return "all_reduce"
