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
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...records import Width
from ...space import Region
from ..format.folds import Source
from ..format.loads import IN, complete_loads, loads_of
from ..format.senders import Groups, levels_of
from ..machine import COLLECTIVES, Link, Machine, Scope
from . import paths
from .columns import Ints
from .kinds import complete_kind, partial_kind
from .layouts import Layout, Layouts, relate
from .mesh import Mesh
from .pairs import Facts
from .ways import Ways

Floats = NDArray[np.float64]
Busiest = tuple[int, ...]
"""Per level what the busiest rank receives, or sends."""


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
        self._loads: dict[tuple[int, int], tuple[Busiest, Busiest]] = {}
        self._folds: dict[tuple[int, int, Width], _Fold] = {}
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
    def _widest(self) -> tuple[int, ...]:
        """Per level the ranks of its largest group."""
        return tuple(max(map(of.count, set(of))) for of in self.levels[1])

    def costs(self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width) -> tuple[Floats, Ints]:
        """[have, need] seconds and bytes of these transfers, each on its cheapest path. Each layout is there once."""
        key = tuple(haves), tuple(needs), width
        if key not in self._costs:
            related = relate(haves, needs)
            seconds = np.zeros((len(haves), len(needs)))
            nbytes = np.zeros((len(haves), len(needs)), dtype=np.int64)
            for k, have in enumerate(haves):
                seconds[k], nbytes[k] = self._row(have, needs, width, related.of(k))
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

    def _row(self, have: Layout, needs: Sequence[Layout], width: Width, facts: Facts) -> tuple[Floats, Ints]:
        """Of all transfers from one layout."""
        if self.shared:
            return self._one_by_one(have, needs, width)
        if have.parts is not None:
            seconds, nbytes = self._folds_of(have, needs, width)
        else:
            seconds, nbytes = self._moves_of(have, needs, width, facts)
        for place, least in self.ways.seconds(have, needs, width).items():
            seconds[place] = least
        return seconds, nbytes

    def _folds_of(self, have: Layout, needs: Sequence[Layout], width: Width) -> tuple[Floats, Ints]:
        """Of a partial layout, but for paths between plain layouts."""
        folds = self._fold(have, needs, width)
        seconds = np.array([self.seconds_of(partial_kind(n), f.busiest, ()) for n, f in zip(needs, folds, strict=True)])
        if len(self.levels[1]) > 1 and self.mesh.size <= MOST_RANKS:
            for place, need in enumerate(needs):
                handed_on = need.total > need.everything.size and self.ways.number(need, width) is None
                if handed_on and seconds[place] > 2 * self._quickest[0]:
                    seconds[place] = self.move(have, need, width).seconds
        return seconds, np.array([fold.nbytes for fold in folds], dtype=np.int64)

    def _moves_of(self, have: Layout, needs: Sequence[Layout], width: Width, facts: Facts) -> tuple[Floats, Ints]:
        """Of a complete layout, but for paths to plain layouts."""
        seconds, nbytes = np.zeros(len(needs)), facts.missing.astype(np.int64) * width.complete
        moving = [k for k in np.flatnonzero(facts.missing).tolist() if self.ways.number(needs[k], width) is None]
        start, rate = self._quickest
        for place, loads in zip(moving, self._count(have, [needs[k] for k in moving]), strict=True):
            busiest = tuple(elements * width.complete for elements in map(max, *loads))
            seconds[place] = self.seconds_of(complete_kind(have, needs[place], facts.pair(place)), busiest, ())
            if self.mesh.size <= MOST_RANKS and (any(busiest[1:]) or _one_sided(loads)):
                least = int(facts.busiest[place]) * width.complete / rate
                if seconds[place] > start + max(start, least):
                    seconds[place] = self.move(have, needs[place], width).seconds
        return seconds, nbytes

    def _one_by_one(self, have: Layout, needs: Sequence[Layout], width: Width) -> tuple[Floats, Ints]:
        moves = [self.move(have, need, width) for need in needs]
        return np.array([m.seconds for m in moves]), np.array([m.nbytes for m in moves], dtype=np.int64)

    def _count(self, have: Layout, needs: Sequence[Layout]) -> list[tuple[Busiest, Busiest]]:
        """What the busiest ranks receive, and send, by level; of layouts that lack something."""
        new = [need for need in needs if (id(have), id(need)) not in self._loads]
        if new:
            self._keep += [have, *new]
            counts = complete_loads(have.spread, [need.spread for need in new], self.levels[1])
            for need, (received, sent) in zip(new, counts.max(axis=3).tolist(), strict=True):
                self._loads[id(have), id(need)] = tuple(received), tuple(sent)
        return [self._loads[id(have), id(need)] for need in needs]

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
            detours = DETOURS if self.mesh.size <= MOST_RANKS else 0
            self._paths[key] = plain or self._shortest(have, need, width, detours)
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
        return min(starts, default=0.0), max((link.gb_per_s for link in links), default=inf) * 1e9

    def _between(self, have: Layout, need: Layout, width: Width, *, first: bool) -> Iterator[list[Region]]:
        """What ranks may have on the way; on halves of a path (not ``first``) levels are seen to."""
        groups = self.levels[1]
        if have.parts is not None:
            if len(groups) > 1 and need.total > need.everything.size:
                yield paths.folded(have, need, packed=width.packed)
            return
        if first and any(self._busiest(have, need)[1:]):
            yield from paths.by_levels(have, need, groups)
        if _one_sided(*self._count(have, [need])):
            yield from paths.spread(have, need)

    def directly(self, have: Layout, needs: Sequence[Layout], width: Width) -> Floats:
        """Seconds of one transfer to each of some layouts."""
        if have.parts is not None:
            self._fold(have, needs, width)  # all at once
        else:
            relate([have], needs)
            self._count(have, [need for need in needs if have.pair(need).missing])
        return np.array([self.direct(have, need, width).seconds for need in needs])

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
        pair = have.pair(need)
        kind, total = complete_kind(have, need, pair), pair.missing
        receivers = tuple(rank for rank, lack in enumerate(have.missing(need)) if lack) if self.shared else ()
        seconds = self.seconds_of(kind, busiest, receivers)
        return Move(total, total * width.complete, sum(busiest), kind, seconds, busiest, receivers)

    def _busiest(self, have: Layout, need: Layout) -> Busiest:
        (found,) = self._count(have, [need])
        return tuple(map(max, *found))

    def _partial(self, have: Layout, need: Layout, width: Width) -> Move:
        if need.parts is not None:
            return self._larger(have, need, width)
        (fold,), kind = self._fold(have, [need], width), partial_kind(need)
        receivers = tuple(rank for rank, region in enumerate(need.regions) if region) if self.shared else ()
        seconds = self.seconds_of(kind, fold.busiest, receivers)
        return Move(fold.elements, fold.nbytes, sum(fold.busiest), kind, seconds, fold.busiest, receivers)

    def _larger(self, have: Layout, need: Layout, width: Width) -> Move:
        """Of parts that are folded to larger ones, in groups."""
        groups = self.levels[1]
        loads = loads_of(have.regions, need.regions, groups, have.parts, records=width.packed, onward=need.parts)
        busiest, kind = tuple((loads.records * width.partial).max(axis=(0, 2)).tolist()), partial_kind(need)
        receivers = tuple(rank for rank, region in enumerate(need.regions) if region) if self.shared else ()
        seconds = self.seconds_of(kind, busiest, receivers)
        return Move(loads.moved, loads.moved * width.partial, sum(busiest), kind, seconds, busiest, receivers)

    def _fold(self, have: Layout, needs: Sequence[Layout], width: Width) -> list[_Fold]:
        assert have.parts is not None
        new = [need for need in needs if (id(have), id(need), width) not in self._folds]
        if new:
            self._keep += [have, *new]
            source = Source(have.spread, have.parts, self.levels[1], records=width.packed)
            loads = source.loads([need.spread for need in new])
            nbytes = loads.nbytes(width)
            received, busiest = nbytes[:, IN].sum(axis=(1, 2)).tolist(), nbytes.max(axis=(1, 3)).tolist()
            moved = (loads.elements + loads.records)[:, IN].sum(axis=(1, 2)).tolist()
            for need, elements, total, most in zip(new, moved, received, busiest, strict=True):
                self._folds[id(have), id(need), width] = _Fold(elements, total, tuple(most))
        return [self._folds[id(have), id(need), width] for need in needs]

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


def _one_sided(loads: tuple[Busiest, Busiest]) -> bool:
    """Some rank has clearly more to send than any has to receive."""
    return any(sent > 1.25 * received for received, sent in zip(*loads, strict=True))
