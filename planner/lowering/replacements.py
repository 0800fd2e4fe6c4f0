"""Results in the place of operands: which slots may share one, found before they have offsets.

A task that reads a slot for the last time, and of it only the element that it writes, needs no second slot for its
result where both store the same. What a state becomes is followed from its start to its new value: where every step of
the way is such a task, one slot is enough for all of it. So it is where the new value comes after the last use of the
old one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .steps import ComputeStep, MoveStep, Slot, Steps


@dataclass(frozen=True)
class Pair:
    """The slot that a result may replace, at which step, and the last step before it that sent from the slot (-1)."""

    over: Slot
    at: int
    sent: int

    def settled(self, steps: int) -> bool:
        """Nothing was sent from the slot in the last so many steps: to wait for that would cost time."""
        return self.sent < 0 or self.at - self.sent > steps


@dataclass(frozen=True)
class Replacements:
    """``pairs``: by the identity of a result's slot. ``chains``: a state's slot and those that follow one another in
    its place, the last of which holds the new value. No slot of a chain is in a pair. ``over``: by the identity of a
    slot of a chain the one before, where the same task reads that one.
    """

    pairs: Mapping[int, Pair]
    chains: tuple[tuple[Slot, ...], ...]
    over: Mapping[int, Slot]


def replacements(steps: Steps) -> Replacements:
    """All that are possible; whether a pair shares a place is decided where slots are placed."""
    ends = {id(slot) for slot in (*steps.outputs.values(), *steps.states.values())}
    starts = {slot.tensor.name: slot for slot in steps.slots if slot.initial is not None}
    aims = [(starts[name], new) for name, new in steps.states.items() if id(starts[name]) not in ends]
    last = steps.used[1]
    states = {id(old) for old, _ in aims}
    writes = Counter(id(step.write) for step in steps.steps if isinstance(step, ComputeStep))
    sent: dict[int, int] = {}
    pairs: dict[int, Pair] = {}
    origins: dict[int, dict[int, Slot]] = {}
    written: dict[int, int] = {}
    for at, step in enumerate(steps.steps):
        if isinstance(step, MoveStep):
            sent[id(step.source)] = at
            written.setdefault(id(step.target), at)
            continue
        written.setdefault(id(step.write), at)
        if writes[id(step.write)] > 1:  # it is there since the first piece, and what the last one reads dies then
            continue
        dying = [slot for slot in _exchanged(step) if last[id(slot)] == at and id(slot) not in ends]
        free = [Pair(slot, at, sent.get(id(slot), -1)) for slot in dying if not slot.keep]
        if free:
            pairs[id(step.write)] = min(free, key=lambda pair: pair.sent)
        for slot in dying:
            for state in (id(slot),) if id(slot) in states else origins.get(id(slot), ()):
                origins.setdefault(id(step.write), {}).setdefault(state, slot)
    after = {(id(old), id(new)) for old, new in aims if last.get(id(old), -1) < written.get(id(new), -1)}
    chains = _chains([aim for aim in aims if _alike(*aim)], origins, after)
    chained = {id(slot) for chain in chains for slot in chain}
    over = {
        id(new): old for chain in chains for old, new in pairwise(chain) if old in origins.get(id(new), {}).values()
    }
    return Replacements({key: pair for key, pair in pairs.items() if key not in chained}, chains, over)


def _exchanged(step: ComputeStep) -> list[Slot]:
    """The slots of which a task reads only the elements that it writes, where an element is the same bytes in both."""
    return [step.reads[k] for k in step.op.read_in_place if _alike(step.reads[k], step.write)]


def _alike(slot: Slot, other: Slot) -> bool:
    if slot.record is not None or other.record is not None or slot.tensor.dtype != other.tensor.dtype:
        return False
    return slot.layout.storage_size > 0 and slot.layout.stored_like(other.layout)


def _chains(
    aims: Sequence[tuple[Slot, Slot]], origins: Mapping[int, Mapping[int, Slot]], after: Container[tuple[int, int]]
) -> tuple[tuple[Slot, ...], ...]:
    """From every state to its new value, where there is a way. A new value of two states takes the place of one."""
    found: list[tuple[Slot, ...]] = []
    taken: set[int] = set()
    for old, new in aims:
        if id(new) in taken:
            continue
        if id(old) in origins.get(id(new), {}):
            way = [new]
            while way[-1] is not old:
                way.append(origins[id(way[-1])][id(old)])
            found.append(tuple(reversed(way)))
        elif (id(old), id(new)) in after:
            found.append((old, new))
        else:
            continue
        taken.add(id(new))
    return tuple(found)
