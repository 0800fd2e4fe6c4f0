"""Ranks side by side: classes of ranks that run the same steps, and groups of ranks that compute nothing together."""

from __future__ import annotations

from collections.abc import Iterable

from .steps import ComputeStep, Slot, Steps

Ranks = frozenset[int]


def size_of(steps: Steps) -> int:
    """How many ranks there are."""
    return len(steps.slots[0].layout.regions) if steps.slots else 1


def classes(steps: Steps) -> list[Ranks]:
    """The ranks that run the same steps, together, by their first ranks: one class where every step is on all ranks."""
    return told_apart((step.ranks for step in steps.steps), size_of(steps))


def told_apart(sets: Iterable[tuple[int, ...] | None], size: int) -> list[Ranks]:
    """The ranks that are in the same ones of some sets (None: of all ranks), together, by their first ranks."""
    found: list[Ranks] = [frozenset(range(size))]
    for some in dict.fromkeys(ranks for ranks in sets if ranks is not None):
        members = frozenset(some)
        found = [part for ranks in found for part in (ranks & members, ranks - members) if part]
    return sorted(found, key=min)


def groups(steps: Steps) -> list[Ranks]:
    """Sets of ranks, such that each operation that leaves some idle is computed within one of them."""
    size = size_of(steps)
    computed = [step for step in steps.steps if isinstance(step, ComputeStep)]
    everywhere = {step.op.name for step in computed if step.ranks is None}
    pieces: dict[str, set[int]] = {}
    for step in computed:
        if step.ranks is not None and step.op.name not in everywhere:
            pieces.setdefault(step.op.name, set()).update(step.ranks)
    return joined(frozenset(ranks) for ranks in pieces.values() if len(ranks) < size)


def joined(sets: Iterable[Ranks]) -> list[Ranks]:
    """Sets that overlap made one, by their first ranks."""
    found: list[Ranks] = []
    for ranks in dict.fromkeys(sets):
        met = [other for other in found if not ranks.isdisjoint(other)]
        found = [other for other in found if other not in met] + [ranks.union(*met)]
    return sorted(found, key=min)


def held_by(slot: Slot, ranks: Ranks) -> bool:
    """Whether a slot stores something on some of these ranks."""
    return slot.layout.ranks is None or not ranks.isdisjoint(slot.layout.ranks)


def within(slot: Slot, ranks: Ranks) -> bool:
    """Whether a slot stores nothing on any other rank."""
    return slot.layout.ranks is not None and ranks.issuperset(slot.layout.ranks)
