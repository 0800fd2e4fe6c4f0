"""Buffers that share one place, as one thing to place.

An output placed in its dying input moves with it, so the two have one offset. Chains of such pairs make a group: a flat
bottom at one offset, and a top that varies over time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm

from .bounds import pin_conflict
from .problem import Buffer


@dataclass(frozen=True, slots=True)
class Group:
    """Indices of buffers at one common offset, its alignment (least common multiple), its pin."""

    members: tuple[int, ...]
    alignment: int
    offset: int | None


def reuse_pairs(buffers: Sequence[Buffer]) -> list[tuple[int, int]]:
    """(input, output) indices where sharing makes a difference: both hold something and are alive together."""
    index = {b.name: i for i, b in enumerate(buffers)}
    declared = ((index[b.reuses], i) for i, b in enumerate(buffers) if b.reuses is not None)
    return [(i, o) for i, o in declared if buffers[o].size and buffers[i].size and buffers[i].meets(buffers[o])]


def grouped(
    buffers: Sequence[Buffer], shared: Sequence[tuple[int, int]], capacity: int | None = None
) -> list[Group] | None:
    """The groups that the `shared` pairs make, or None where they contradict each other.

    They do where a group holds two pins, or two buffers alive together that are not a declared pair, or where a pin
    that reaches a buffer through its group puts it onto another pinned one or beyond the capacity.
    """
    root = list(range(len(buffers)))
    members = [[i] for i in root]
    for a, b in shared:
        ra, rb = root[a], root[b]
        if ra == rb:
            continue
        for i in members[rb]:
            root[i] = ra
        members[ra] += members[rb]
        members[rb] = []
    groups = [g for m in members if m and (g := _group(buffers, m)) is not None]
    complete = len(groups) == sum(bool(m) for m in members)
    return groups if complete and not (shared and _pins_clash(buffers, groups, capacity)) else None


def _pins_clash(buffers: Sequence[Buffer], groups: Sequence[Group], capacity: int | None) -> bool:
    pinned = [
        replace(buffers[i], offset=g.offset, alignment=1) for g in groups if g.offset is not None for i in g.members
    ]
    return pin_conflict(pinned, capacity) is not None


def _group(buffers: Sequence[Buffer], members: list[int]) -> Group | None:
    pins = {buffers[i].offset for i in members} - {None}
    if len(pins) > 1:
        return None
    group = Group(tuple(members), lcm(*(buffers[i].alignment for i in members)), next(iter(pins), None))
    if group.offset is not None and group.offset % group.alignment:
        return None
    return group if len(members) == 1 or _compatible([buffers[i] for i in members]) else None


def _compatible(members: list[Buffer]) -> bool:
    """Whether every two members alive together are a declared pair, by a sweep over their starts."""
    live: list[Buffer] = []
    for b in sorted(members, key=lambda b: b.lower):
        live = [a for a in live if a.upper > b.lower]
        if any(a.reuses != b.name and b.reuses != a.name for a in live):
            return False
        live.append(b)
    return True


def share_greedily(buffers: Sequence[Buffer]) -> list[tuple[int, int]]:
    """As many pairs as go together, the largest outputs first."""
    chosen: list[tuple[int, int]] = []
    group_of: dict[int, list[int]] = {}
    for a, b in sorted(reuse_pairs(buffers), key=lambda p: (-buffers[p[1]].size, p)):
        both = group_of.get(a, [a]) + group_of.get(b, [b])
        merged = _group(buffers, both)
        if merged is None or (merged.offset is not None and grouped(buffers, [*chosen, (a, b)]) is None):
            continue
        chosen.append((a, b))
        group_of.update(dict.fromkeys(both, both))
    return chosen
