"""Exact traffic between two layouts, its name as a collective, and its time on the links.

Per element with holders H, needers N, and for partials one contributor chosen per part (d parts): |N - H| copies, or (d
- 1) + |N| - [some needer contributes] messages. Who sends them to whom is the rule of the format
(`planner.format.senders`); what every rank receives and sends by it is counted (`planner.format.loads`), region by
region, never element by element. A contribution has the bytes of a record of the fold, which may be more than those of
an element of the result.

A link moves what the busiest rank receives or sends, whichever is more; what crosses islands or hosts takes the link
between them. Where several transfers one after another take less than one (`paths`), the price is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from ...records import Width
from ...space import Region
from ..format.folds import Source
from ..format.loads import IN, complete_loads
from ..format.senders import Groups, levels_of
from ..machine import COLLECTIVES, Link, Machine, Scope
from . import paths
from .layouts import Layout, Layouts, Mesh, relate


Busiest = tuple[int, ...]
"""Per level what the busiest rank receives, or sends."""


@dataclass(frozen=True)
class Move:
    """A transfer between two layouts: elements and bytes that ranks receive in all, its name, its time.

    ``busiest``: the bytes that its time is of, received or sent by the busiest rank.
    """

    elements: int
    nbytes: int
    busiest: int
    kind: str
    seconds: float


class _Fold(NamedTuple):
    """Elements, and bytes that ranks receive in all; per level those of the busiest."""

    elements: int
    nbytes: int
    busiest: Busiest


NOTHING = Move(0, 0, 0, "local", 0.0)
DETOURS = 2  # of a path, and of each of its halves
MOST_RANKS = 16  # among which detours are looked for: what each rank has on the way is different pieces


class Traffic:
    """Prices transfers on one mesh of a machine, cached by layout pair."""

    def __init__(self, mesh: Mesh, machine: Machine, devices: Sequence[int] | None = None) -> None:
        """``devices``: of every rank; the first ones by default."""
        self.mesh, self.machine = mesh, machine
        self.devices = tuple(range(mesh.size)) if devices is None else tuple(devices)
        self._shared = any(link.shared_by > 1 for link in machine.links)
        self._links: dict[tuple[Scope, tuple[int, ...]], Link] = {}
        self._moves: dict[tuple[int, int, Width], Move] = {}
        self._loads: dict[tuple[int, int], tuple[Busiest, Busiest]] = {}
        self._folds: dict[tuple[int, int, Width], _Fold] = {}
        self._paths: dict[tuple[int, int, Width], tuple[Layout, ...]] = {}
        self._layouts = Layouts(mesh)
        self._keep: list[Layout] = []
        self._times: dict[tuple[str, tuple[int, ...], tuple[int, ...]], float] = {}

    @cached_property
    def levels(self) -> tuple[tuple[Scope, ...], Groups]:
        """How near the devices of the ranks are to one another, and the links that connect them."""
        return levels_of(self.machine.reaches, self.devices)

    @cached_property
    def _widest(self) -> tuple[int, ...]:
        """Per level the ranks of its largest group."""
        return tuple(max(map(of.count, set(of))) for of in self.levels[1])

    def prime(self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width) -> None:
        """What the times of all these transfers are asked of, found out at once."""
        relate(haves, needs)
        self._keep += [*haves, *needs]
        for have in dict.fromkeys(haves):
            if have.parts is None:
                self._count(have, [need for need in dict.fromkeys(needs) if (id(have), id(need)) not in self._loads])
            else:
                new = [need for need in dict.fromkeys(needs) if (id(have), id(need), width) not in self._folds]
                self._fold(have, new, width)

    def _count(self, have: Layout, needs: Sequence[Layout]) -> None:
        needs = [need for need in needs if have.pair(need).missing]
        if needs:
            counts = complete_loads(have.spread, [need.spread for need in needs], self.levels[1])
            for need, (received, sent) in zip(needs, counts.max(axis=3).tolist(), strict=True):
                self._loads[id(have), id(need)] = tuple(received), tuple(sent)

    def move(self, have: Layout, need: Layout, width: Width) -> Move:
        """All that completes ``need`` from ``have``, on the cheapest path: its transfers one after another."""
        direct, path = self.direct(have, need, width), self.path(have, need, width)
        if len(path) == 2:
            return direct
        steps = [self.direct(a, b, width) for a, b in pairwise(path)]
        return replace(direct, busiest=sum(s.busiest for s in steps), seconds=sum(s.seconds for s in steps))

    def path(self, have: Layout, need: Layout, width: Width) -> tuple[Layout, ...]:
        """The layouts between which transfers take what ranks have to what they need: these two, or others between."""
        key = (id(have), id(need), width)
        if key not in self._paths:
            self._paths[key] = self._shortest(have, need, width, DETOURS if self.mesh.size <= MOST_RANKS else 0)
        return self._paths[key]

    def _shortest(self, have: Layout, need: Layout, width: Width, detours: int) -> tuple[Layout, ...]:
        best: tuple[Layout, ...] = (have, need)
        direct = self.direct(have, need, width)
        if not detours or direct.seconds <= self._least(have, need, width):
            return best
        took = direct.seconds
        for regions in self._between(have, need, width, first=detours == DETOURS):
            if paths.different(regions, have, need):
                mid = self._layouts.of(need.shape, regions)
                before = self._shortest(have, mid, width, detours - 1)
                after = self._shortest(mid, need, width, detours if have.parts is not None else detours - 1)
                found = (*before[:-1], *after)
                seconds = sum(self.direct(a, b, width).seconds for a, b in pairwise(found))
                if seconds < took:
                    best, took = found, seconds
        return best

    def _least(self, have: Layout, need: Layout, width: Width) -> float:
        """What a path of two transfers or more takes at least: two starts, and what the busiest rank lacks."""
        start, rate = self._quickest
        lacking = 0 if have.parts is not None else have.pair(need).busiest * width.complete
        return start + max(start, lacking / rate)

    @cached_property
    def _quickest(self) -> tuple[float, float]:
        """What a transfer takes at least, in seconds, and the bytes a second of the fastest link."""
        links = self.machine.links
        starts = [link.latency_s for link in links]
        starts += [curve.seconds(0) for link in links for curve in link.curve]
        return min(starts), max(link.gb_per_s for link in links) * 1e9

    def _between(self, have: Layout, need: Layout, width: Width, *, first: bool) -> Iterator[list[Region]]:
        """What ranks may have on the way; on halves of a path (not ``first``) levels are seen to."""
        groups = self.levels[1]
        if have.parts is not None:
            if len(groups) > 1 and need.total > need.everything.size:
                yield paths.folded(have, need, packed=width.packed)
            return
        if first and any(self._busiest(have, need)[1:]):
            yield from paths.by_levels(have, need, groups)
        if self._one_sided(have, need):
            yield from paths.spread(have, need)

    def direct(self, have: Layout, need: Layout, width: Width) -> Move:
        """The one transfer that completes ``need`` from ``have``."""
        key = (id(have), id(need), width)
        if key not in self._moves:
            self._keep += [have, need]
            self._moves[key] = (
                self._partial(have, need, width) if have.parts is not None else self._complete(have, need, width)
            )
        return self._moves[key]

    def _complete(self, have: Layout, need: Layout, width: Width) -> Move:
        if have is need or not have.pair(need).missing:
            return NOTHING
        busiest = tuple(elements * width.complete for elements in self._busiest(have, need))
        kind, total = complete_kind(have, need), have.pair(need).missing
        receivers = tuple(rank for rank, lack in enumerate(have.missing(need)) if lack) if self._shared else ()
        return Move(total, total * width.complete, sum(busiest), kind, self._seconds(kind, busiest, receivers))

    def _busiest(self, have: Layout, need: Layout) -> Busiest:
        return tuple(map(max, *self._counted(have, need)))

    def _one_sided(self, have: Layout, need: Layout) -> bool:
        """Some rank has clearly more to send than any has to receive."""
        return any(sent > 1.25 * received for received, sent in zip(*self._counted(have, need), strict=True))

    def _counted(self, have: Layout, need: Layout) -> tuple[Busiest, Busiest]:
        """What the busiest ranks receive, and send."""
        if (id(have), id(need)) not in self._loads:
            self._count(have, [need])
        return self._loads[id(have), id(need)]

    def _partial(self, have: Layout, need: Layout, width: Width) -> Move:
        key = (id(have), id(need), width)
        if key not in self._folds:
            self._fold(have, [need], width)
        fold, kind = self._folds[key], partial_kind(need)
        receivers = tuple(rank for rank, region in enumerate(need.regions) if region) if self._shared else ()
        seconds = self._seconds(kind, fold.busiest, receivers)
        return Move(fold.elements, fold.nbytes, sum(fold.busiest), kind, seconds)

    def _fold(self, have: Layout, needs: Sequence[Layout], width: Width) -> None:
        assert have.parts is not None
        source = Source(have.spread, have.parts, self.levels[1], records=width.packed)
        for need, loads in zip(needs, source.loads([need.spread for need in needs]), strict=True):
            nbytes = loads.nbytes(width)
            busiest = tuple(nbytes.max(axis=(0, 2)).tolist())
            self._folds[id(have), id(need), width] = _Fold(loads.moved, int(nbytes[IN].sum()), busiest)

    def _seconds(self, kind: str, busiest: Busiest, receivers: tuple[int, ...]) -> float:
        """What each level takes, one after another; the link of each as the ranks that receive at once have it."""
        key = (kind, busiest, receivers)
        if key not in self._times:
            self._times[key] = self._timed(*key)
        return self._times[key]

    def _timed(self, kind: str, busiest: Busiest, receivers: tuple[int, ...]) -> float:
        collective = kind if kind in COLLECTIVES else None
        seconds = 0.0
        for scope, ranks, nbytes in zip(self.levels[0], self._widest, busiest, strict=True):
            if nbytes:
                seconds += self._link(scope, receivers).seconds(nbytes, collective, ranks)
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
