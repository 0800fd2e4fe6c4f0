"""Exact traffic between two layouts, its name as a collective, and its time on the links.

Per element with holders H, needers N, and for partials one contributor chosen per part (d parts): |N - H| copies, or (d
- 1) + |N| - [some needer contributes] messages. Who sends them to whom is the rule of the format
(`planner.format.senders`); what every rank receives and sends by it is counted (`planner.format.loads`), region by
region, never element by element. A contribution has the bytes of a record of the fold, which may be more than those of
an element of the result.

A link moves what the busiest rank receives or sends, whichever is more; what crosses islands or hosts takes the link
between them. Where several transfers one after another take less than one, the price is theirs: between plain layouts
any others may be on the way (`ways`), else such as lie within what is needed (`paths`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...records import Width
from ...space import Region
from ..format.loads import loads_of
from ..format.senders import Groups, levels_of
from ..machine import COLLECTIVES, Link, Machine, Scope
from . import paths
from .at_once import MOST_RANKS, AtOnce, one_sided
from .columns import Ints
from .counted import Busiest, Counts
from .kinds import partial_kind
from .layouts import Layout, Layouts, relate
from .least import Least
from .mesh import Mesh
from .pairs import Related
from .ways import Ways

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Move:
    """A transfer between two layouts: elements and bytes that ranks receive in all, its name, its time.

    ``busiest``: the bytes that its time is of, received or sent by the busiest rank. ``levels``: of one transfer these
    by level; ``receivers``: the ranks that receive, on machines whose devices have links together.
    """

    elements: int
    nbytes: int
    busiest: int
    kind: str
    seconds: float
    levels: Busiest = ()
    receivers: tuple[int, ...] = ()


class Stream(NamedTuple):
    """What a transfer takes of one level: seconds by itself, and seconds in which bytes stream over a link that several
    devices have together.

    ``users``: by the share of a link that devices have together how many of them receive over it; none where they have
    none together.
    """

    alone_s: float
    shared_s: float
    users: Mapping[tuple[Link, int], int]


NOTHING = Move(0, 0, 0, "local", 0.0)
DETOURS = 2  # of a path, and of each of its halves


class Traffic:
    """Prices transfers on one mesh of a machine, cached by layout pair."""

    def __init__(
        self, mesh: Mesh, machine: Machine, devices: Sequence[int] | None = None, *, frugal: bool = False
    ) -> None:
        """``devices``: of every rank; the first ones by default.

        ``frugal``: no path moves more bytes than one transfer.
        """
        self.frugal = frugal
        self.mesh, self.machine = mesh, machine
        self.devices = tuple(range(mesh.size)) if devices is None else tuple(devices)
        self.shared = any(link.shared_by > 1 for link in machine.links)
        self._links: dict[tuple[Scope, tuple[int, ...]], Link] = {}
        self._moves: dict[tuple[int, int, Width], Move] = {}
        self._costs: dict[tuple[tuple[Layout, ...], tuple[Layout, ...], Width], tuple[Floats, Ints]] = {}
        self._rows: dict[tuple[Layout, Width], list[tuple[Mapping[Layout, int], Floats, Ints]]] = {}
        self._paths: dict[tuple[int, int, Width], tuple[Layout, ...]] = {}
        self._layouts = Layouts(mesh)
        self._keep: list[Layout] = []
        self._times: dict[tuple[str, tuple[int, ...], tuple[int, ...]], float] = {}

    @property
    def pathless(self) -> bool:
        """Whether no paths over plain layouts are looked for."""
        return self.frugal

    @cached_property
    def ways(self) -> Ways:
        """The paths to plain layouts."""
        return Ways(self)

    @cached_property
    def levels(self) -> tuple[tuple[Scope, ...], Groups]:
        """How near the devices of the ranks are to one another, and the links that connect them."""
        return levels_of(self.machine.reaches, self.devices)

    @cached_property
    def at_once(self) -> AtOnce:
        """The prices of many pairs."""
        return AtOnce(self)

    @cached_property
    def floor(self) -> Least:
        """What transfers take at least, by what ranks lack alone."""
        return Least(self)

    @cached_property
    def counts(self) -> Counts:
        """What transfers move."""
        return Counts(self.levels[1])

    @cached_property
    def _widest(self) -> tuple[int, ...]:
        """Per level the ranks of its largest group."""
        return tuple(max(map(of.count, set(of))) for of in self.levels[1])

    def costs(self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width) -> tuple[Floats, Ints]:
        """[have, need] seconds and bytes of these transfers, each on its cheapest path. Each layout is there once."""
        key = tuple(haves), tuple(needs), width
        if key not in self._costs:
            related = relate(haves, needs)
            seconds, nbytes = self._table(haves, needs, width, related)
            for k, have in enumerate(haves):
                self._rows.setdefault((have, width), []).append((related.numbers, seconds[k], nbytes[k]))
            self._costs[key] = seconds, nbytes
        return self._costs[key]

    def cost(self, have: Layout, need: Layout, width: Width) -> tuple[float, int]:
        """Seconds and bytes of a transfer on its cheapest path."""
        for numbers, seconds, nbytes in self._rows.get((have, width), ()):
            if need in numbers:
                return float(seconds[numbers[need]]), int(nbytes[numbers[need]])
        move = self.move(have, need, width)
        return move.seconds, move.nbytes

    def _table(
        self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width, related: Related
    ) -> tuple[Floats, Ints]:
        """[have, need] seconds and bytes of all these transfers."""
        if self.shared:
            return self._one_by_one(haves, needs, width)
        seconds, nbytes, least = self.at_once.found(haves, needs, width, related)
        for i, j in np.argwhere(least < seconds).tolist():
            seconds[i, j] = self.move(haves[i], needs[j], width).seconds
        return seconds, nbytes

    @property
    def near(self) -> bool:
        """Whether all ranks are."""
        return len(self.levels[1]) == 1

    @property
    def by_pair(self) -> bool:
        """Whether paths are looked for one pair of layouts after another."""
        return not self.near and not self.shared and self.mesh.size <= MOST_RANKS

    def at_least(self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width) -> tuple[Floats, Any]:
        """[have, need] seconds on the cheapest path, or no more than that; and whether it is so many. It takes little
        time where all ranks are near, or paths are looked for by pair. Each layout is there once.
        """
        related = relate(haves, needs)
        if self.near:
            least = self.floor.seconds(haves, needs, width, related)
            return least, least == 0
        seconds, _, least = self.at_once.found(haves, needs, width, related)
        return least, least == seconds

    def _one_by_one(self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width) -> tuple[Floats, Ints]:
        moves = [[self.move(have, need, width) for need in needs] for have in haves]
        shape = len(haves), len(needs)
        seconds = np.array([[move.seconds for move in row] for row in moves], dtype=np.float64).reshape(shape)
        return seconds, np.array([[move.nbytes for move in row] for row in moves], dtype=np.int64).reshape(shape)

    def move(self, have: Layout, need: Layout, width: Width) -> Move:
        """All that completes ``need`` from ``have``, on the cheapest path: its transfers one after another."""
        direct, path = self.direct(have, need, width), self.path(have, need, width)
        if len(path) == 2:
            return direct
        steps = [self.direct(a, b, width) for a, b in pairwise(path)]
        busiest, nbytes = (sum(getattr(step, name) for step in steps) for name in ("busiest", "nbytes"))
        return replace(direct, nbytes=nbytes, busiest=busiest, seconds=sum(step.seconds for step in steps))

    def path(self, have: Layout, need: Layout, width: Width) -> tuple[Layout, ...]:
        """The layouts between which transfers take what ranks have to what they need: these two, or others between."""
        key = (id(have), id(need), width)
        if key not in self._paths:
            plain = self.ways.path(have, need, width)
            detours = DETOURS if self._few(have, need) else 0
            self._paths[key] = plain or self._shortest(have, need, width, detours)
        return self._paths[key]

    def _few(self, have: Layout, need: Layout) -> bool:
        """Whether detours are looked for among the ranks that have or need anything."""
        if self.mesh.size <= MOST_RANKS or have.ranks is None or need.ranks is None:
            return self.mesh.size <= MOST_RANKS
        return len({*have.ranks, *need.ranks}) <= MOST_RANKS

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
        start, rate = self.quickest
        lacking = 0 if have.parts is not None else have.pair(need).busiest * width.complete
        return start + max(start, lacking / rate)

    @cached_property
    def quickest(self) -> tuple[float, float]:
        """What a transfer takes at least, in seconds, and the bytes a second of the fastest link."""
        links = self.machine.links
        starts = [link.latency_s for link in links]
        starts += [curve.seconds(0) for link in links for curve in link.curve]
        return min(starts, default=0.0), max((link.gb_per_s for link in links), default=inf) * 1e9

    def _between(self, have: Layout, need: Layout, width: Width, *, first: bool) -> Iterator[list[Region]]:
        """What ranks may have on the way; on halves of a path (not ``first``) levels are seen to."""
        groups = self.levels[1]
        if have.parts is not None:
            if len(groups) > 1 and need.total > need.everything.size:
                yield paths.folded(have, need, packed=width.packed)
            return
        if first and self._crosses(have, need):
            yield from paths.by_levels(have, need, groups)
        if one_sided(self.counts.moved(have, need)):
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
        total = 0 if have is need else have.pair(need).missing
        if not total:
            return NOTHING
        moved = self.counts.moved(have, need)
        busiest = tuple(elements * width.complete for elements in map(max, moved.received, moved.sent))
        receivers = tuple(rank for rank, lack in enumerate(have.missing(need)) if lack) if self.shared else ()
        seconds = self.seconds_of(moved.kind, busiest, receivers)
        return Move(total, total * width.complete, sum(busiest), moved.kind, seconds, busiest, receivers)

    def _crosses(self, have: Layout, need: Layout) -> bool:
        """Whether anything comes from beyond the nearest ranks."""
        moved = self.counts.moved(have, need)
        return any(map(max, moved.received[1:], moved.sent[1:]))

    def _partial(self, have: Layout, need: Layout, width: Width) -> Move:
        if need.parts is not None:
            return self._larger(have, need, width)
        fold = self.counts.folded(have, need, width)
        receivers = tuple(rank for rank, region in enumerate(need.regions) if region) if self.shared else ()
        seconds = self.seconds_of(fold.kind, fold.busiest, receivers)
        return Move(fold.elements, fold.nbytes, sum(fold.busiest), fold.kind, seconds, fold.busiest, receivers)

    def _larger(self, have: Layout, need: Layout, width: Width) -> Move:
        """Of parts that are folded to larger ones, in groups."""
        groups = self.levels[1]
        loads = loads_of(have.regions, need.regions, groups, have.parts, records=width.packed, onward=need.parts)
        busiest, kind = tuple((loads.records * width.partial).max(axis=(0, 2)).tolist()), partial_kind(need)
        receivers = tuple(rank for rank, region in enumerate(need.regions) if region) if self.shared else ()
        seconds = self.seconds_of(kind, busiest, receivers)
        return Move(loads.moved, loads.moved * width.partial, sum(busiest), kind, seconds, busiest, receivers)

    def seconds_of(self, kind: str, busiest: Busiest, receivers: tuple[int, ...]) -> float:
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

    def streams(self, move: Move) -> Iterator[Stream]:
        """What one transfer takes, level by level."""
        collective, devices = move.kind if move.kind in COLLECTIVES else None, [self.devices[r] for r in move.receivers]
        for scope, ranks, nbytes in zip(self.levels[0], self._widest, move.levels, strict=bool(move.levels)):
            if nbytes:
                own, link = self._link(scope, move.receivers), self.machine.nearest(scope, devices)
                seconds = own.seconds(nbytes, collective, ranks)
                streaming = nbytes / (own.gb_per_s * 1e9) if link.shared_by > 1 else 0.0
                users = Counter((link, device // link.shared_by) for device in devices) if streaming else {}
                yield Stream(seconds - streaming, streaming, users)

    def _link(self, scope: Scope, receivers: tuple[int, ...]) -> Link:
        """As each of the ranks that receive at once has it."""
        key = (scope, receivers if self.shared else ())
        if key not in self._links:
            self._links[key] = self.machine.link_of(scope, [self.devices[rank] for rank in key[1]])
        return self._links[key]
