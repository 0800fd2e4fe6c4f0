"""From buffers and groups to the arrays that the search reads."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import gcd

import numpy as np

from .groups import Group
from .problem import Buffer
from .tables import Instance, Ints


def sections(buffers: Iterable[Buffer]) -> list[int]:
    """Instants at which every maximal set of buffers alive together is alive: each last start before an end.

    >>> sections([Buffer("a", 0, 4, 1), Buffer("b", 1, 3, 1), Buffer("c", 5, 6, 1)])
    [1, 5]
    """
    events = sorted({(b.upper, 0) for b in buffers} | {(b.lower, 1) for b in buffers})
    return [at for (at, starts), (_, then_starts) in pairwise(events) if starts and not then_starts]


class _Item:
    """One group to place: the sections it is alive in, and its height in each."""

    def __init__(self, group: Group, buffers: Sequence[Buffer], instants: Sequence[int]) -> None:
        self.group = group
        members = [buffers[i] for i in group.members]
        spans = [(bisect_left(instants, b.lower), bisect_left(instants, b.upper), b.size) for b in members]
        self.first = min(first for first, _, _ in spans)
        self.last = max(last for _, last, _ in spans)
        self.heights = np.zeros(self.last - self.first, np.int64)
        for first, last, size in spans:
            part = self.heights[first - self.first : last - self.first]
            np.maximum(part, size, out=part)

    def highest(self, first: int, last: int) -> int:
        """The largest height in some of the sections."""
        return int(self.heights[first - self.first : last - self.first].max())

    def meets(self, other: "_Item") -> tuple[int, int]:
        """The sections both are alive in; empty where the second number is not above the first."""
        return max(self.first, other.first), min(self.last, other.last)


def arranged(buffers: Sequence[Buffer], groups: Sequence[Group], capacity: int) -> tuple[Instance, list[Group]]:
    """The instance of the groups that hold something and are not pinned, and these groups in its order."""
    solid = [g for g in groups if any(buffers[i].size for i in g.members)]
    instants = sections([buffers[i] for g in solid for i in g.members if buffers[i].size])
    items = [_Item(_without_empty(g, buffers), buffers, instants) for g in solid]
    free = sorted((t for t in items if t.group.offset is None), key=lambda t: (t.first, t.last, t.group.members))
    pinned = [t for t in items if t.group.offset is not None]
    return _layout(free, pinned, len(instants), _whole_units(buffers, groups, capacity)), [t.group for t in free]


def _without_empty(group: Group, buffers: Sequence[Buffer]) -> Group:
    return Group(tuple(i for i in group.members if buffers[i].size), group.alignment, group.offset)


def _whole_units(buffers: Sequence[Buffer], groups: Sequence[Group], capacity: int) -> int:
    """The capacity in whole multiples of what divides every size, pin and alignment: no settled item ends elsewhere."""
    numbers = [b.size for b in buffers] + [g.offset or 0 for g in groups]
    unit = gcd(*numbers, *(g.alignment for g in groups if g.alignment > 1))
    return capacity - capacity % unit if unit else capacity


def _layout(items: list[_Item], pinned: list[_Item], count: int, capacity: int) -> Instance:
    first, last = _ints(t.first for t in items), _ints(t.last for t in items)
    rows: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for i, t in enumerate(items):
        for s in range(t.first, t.last):
            rows[s].append((i, int(t.heights[s - t.first])))
    sec_at, (sec_item, sec_height) = _rows(rows, 2)
    adj_at, (adj_item, adj_rise) = _rows(_neighbours(items, first, last), 2)
    ban_at, (ban_low, ban_high) = _rows([_bans(t, pinned) for t in items], 2)
    pin_at, (pin_low, pin_high) = _rows([_pins(s, pinned) for s in range(count)], 2)
    return Instance(
        first=first,
        last=last,
        starts=np.searchsorted(first, np.arange(count + 1)).astype(np.int64),
        sec_at=sec_at,
        sec_item=sec_item,
        sec_height=sec_height,
        adj_at=adj_at,
        adj_item=adj_item,
        adj_rise=adj_rise,
        ban_at=ban_at,
        ban_low=ban_low,
        ban_high=ban_high,
        pin_at=pin_at,
        pin_low=pin_low,
        pin_high=pin_high,
        align=_ints(t.group.alignment for t in items),
        twins=_twins(items),
        capacity=_ints([capacity]),
    )


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _rows(rows: Sequence[Sequence[tuple[int, ...]]], width: int) -> tuple[Ints, list[Ints]]:
    """Rows one after another: where each begins, and the columns."""
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(r) for r in rows], dtype=np.int64)])
    flat = np.array([entry for row in rows for entry in row], np.int64).reshape(-1, width)
    return begins, [np.ascontiguousarray(flat[:, c]) for c in range(width)]


def _neighbours(items: list[_Item], first: Ints, last: Ints) -> list[list[tuple[int, int]]]:
    """Per item what it meets, and how far above its offset that lies when on top of it."""
    found = []
    for i, t in enumerate(items):
        others = np.flatnonzero((first < t.last) & (last > t.first)).tolist()
        flat = t.heights.min() == t.heights.max()
        height = int(t.heights[0])
        found.append([(j, height if flat else t.highest(*t.meets(items[j]))) for j in others if j != i])
    return found


def _bans(item: _Item, pinned: list[_Item]) -> list[tuple[int, int]]:
    """Open intervals of offsets at which the item would overlap a pinned one."""
    bans = []
    for p in pinned:
        a, b = item.meets(p)
        if a < b:
            assert p.group.offset is not None
            tops = p.heights[a - p.first : b - p.first]
            mine = item.heights[a - item.first : b - item.first]
            # In one section the interval is (pin - mine, pin + top). All hold the pin's offset, so their union is one.
            bans.append((p.group.offset - int(mine.max()), p.group.offset + int(tops.max())))
    return sorted(bans)


def _pins(section: int, pinned: list[_Item]) -> list[tuple[int, int]]:
    """What pinned items hold in a section, as disjoint intervals by falling offset."""
    held = []
    for p in pinned:
        if p.first <= section < p.last:
            assert p.group.offset is not None
            held.append((p.group.offset, p.group.offset + int(p.heights[section - p.first])))
    merged: list[tuple[int, int]] = []
    for low, high in sorted(held):
        if merged and low < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged[::-1]


def _twins(items: list[_Item]) -> Ints:
    """Equal numbers for flat items of one lifetime whose sizes keep each other's alignment."""
    classes: dict[tuple[int, ...], int] = {}
    twins = []
    for k, t in enumerate(items):
        size, align = int(t.heights[0]), t.group.alignment
        alike = t.heights.min() == t.heights.max() and size % align == 0
        twins.append(classes.setdefault((t.first, t.last, align) if alike else (-1, k), len(classes)))
    return _ints(twins)
