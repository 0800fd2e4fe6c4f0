"""The waits that order the lanes: a reader after its writers, and a new tenant of memory after the old one's last
touch.

Vector clocks over lanes leave out every wait that lane order and earlier waits already imply.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import product

from ..strategy.layouts import Layout
from .memory import Arena
from .sides import Ranks, classes, held_by
from .steps import Slot, Step, Steps

Clock = dict[str, int]
_Written = tuple[int, str, Layout]
"""What a step wrote: its position, its lane, and what of the slot."""


class _Meetings:
    """Which layouts have an element in common, asked once of each pair: layers that repeat share theirs."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], bool] = {}  # by identity: the steps keep their layouts

    def of(self, one: Layout, other: Layout) -> bool:
        key = id(one), id(other)
        if key not in self.known:
            self.known[key] = one.meets(other)
        return self.known[key]


class _Owners:
    """Which slot last lived at each address: disjoint segments sorted by start."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.segments: list[tuple[int, int, Slot]] = []

    def claim(self, lo: int, hi: int, slot: Slot) -> list[Slot]:
        """Give [lo, hi) to a slot; returns the slots that lived there before."""
        begin = max(0, bisect_right(self.starts, lo) - 1)
        end = bisect_right(self.starts, hi - 1)
        if begin == end or (end == begin + 1 and self.segments[begin][1] <= lo):  # nobody ever lived there
            self.segments.insert(end, (lo, hi, slot))
            self.starts.insert(end, lo)
            return []
        touched = self.segments[begin:end]
        old = [owner for a, b, owner in touched if a < hi and lo < b]
        kept = []
        for a, b, owner in touched:
            if b <= lo or a >= hi:
                kept.append((a, b, owner))
            else:
                kept += [(x, y, owner) for x, y in ((a, lo), (hi, b)) if x < y]
        merged = sorted([*kept, (lo, hi, slot)], key=lambda segment: segment[0])
        self.segments[begin:end] = merged
        self.starts[begin:end] = [segment[0] for segment in merged]
        return old


def waits_of(steps: Steps, arena: Arena) -> list[tuple[int, ...]]:
    """Per step the positions of the steps it waits for, on whichever of its ranks there is need to."""
    found: list[set[int]] = [set() for _ in steps.steps]
    meetings = _Meetings()
    for ranks, mine in product(classes(steps), arena.apart.values() or [arena]):
        for position, needed in _waits_on(ranks, steps, mine, meetings):
            found[position].update(needed)
    return [tuple(sorted(needed)) for needed in found]


def _waits_on(ranks: Ranks, steps: Steps, arena: Arena, meetings: _Meetings) -> Iterator[tuple[int, list[int]]]:
    """Position and waits of every step on a class of ranks that run the same steps."""
    owners, inherited = _Owners(), dict[int, Clock]()
    last_touch: dict[int, Clock] = {}
    writers: dict[int, list[_Written]] = {}
    clocks: dict[int, Clock] = {}
    lane_clock: dict[str, Clock] = {}
    sizes = {id(life.slot): life.nbytes if held_by(life.slot, ranks) else 0 for life in arena.lifetimes}
    for life in arena.lifetimes:
        if life.first < 0:
            inherited[id(life.slot)] = _claim(life.slot, owners, arena, sizes, last_touch)
    for position, step in enumerate(steps.steps):
        on, mine = step.lane, step.ranks
        if mine is not None and ranks.isdisjoint(mine):
            continue
        wanted: Clock = {}
        for slot, layout, write in step.touched:
            key = id(slot)
            if key not in inherited:
                inherited[key] = _claim(slot, owners, arena, sizes, last_touch)
            if write:
                _merge(wanted, inherited[key])
            else:
                _merge_writers(wanted, writers.get(key, ()), layout, meetings)
        clock = dict(lane_clock.get(on, {}))
        needed = []
        for at, lane in sorted([(at, lane) for lane, at in wanted.items() if lane != on], reverse=True):
            if clock.get(lane, -1) < at:
                needed.append(at)
                _merge(clock, clocks[at])
        yield position, needed
        clock[on] = position
        clocks[position] = clock
        lane_clock[on] = clock
        _touch(step, position, last_touch, writers)


def _claim(slot: Slot, owners: _Owners, arena: Arena, sizes: dict[int, int], last_touch: dict[int, Clock]) -> Clock:
    """Everything the previous tenants of a slot's memory did, as the last position per lane."""
    lo = arena.offsets[id(slot)]
    before: Clock = {}
    if sizes[id(slot)]:
        for old in owners.claim(lo, lo + sizes[id(slot)], slot):
            _merge(before, last_touch.get(id(old), {}))
    return before


def _merge_writers(clock: Clock, written: Sequence[_Written], need: Layout, meetings: _Meetings) -> None:
    """Adds the last positions, per lane, of the writes that a read needs."""
    for position, lane, layout in written:
        if meetings.of(layout, need) and clock.get(lane, -1) < position:
            clock[lane] = position


def _touch(step: Step, position: int, last_touch: dict[int, Clock], writers: dict[int, list[_Written]]) -> None:
    lane = step.lane
    for slot, layout, write in step.touched:
        last_touch.setdefault(id(slot), {})[lane] = position
        if write:
            writers.setdefault(id(slot), []).append((position, lane, layout))


def _merge(clock: Clock, other: Clock) -> None:
    for lane, position in other.items():
        if clock.get(lane, -1) < position:
            clock[lane] = position
