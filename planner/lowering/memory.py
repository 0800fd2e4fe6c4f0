"""Static offsets: every slot gets one place in its tier for as long as some step touches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from ..solvers.pack import Buffer, Packing, minimize_peak, pack
from .replacements import Pair, replacements
from .sides import Ranks, groups, within
from .steps import MoveStep, Slot, Steps

ALIGN = 256


@dataclass(frozen=True)
class Lifetime:
    """Steps first..last touch the slot; -1 from before the run, len(steps) to after it."""

    slot: Slot
    first: int
    last: int
    nbytes: int


def lifetimes(steps: Steps) -> list[Lifetime]:
    """One per slot, in order of the slots."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, step in enumerate(steps.steps):
        for slot, _, _ in step.touched:
            first.setdefault(id(slot), position)
            last[id(slot)] = position
    found = []
    for slot in steps.slots:
        begin = -1 if slot.initial is not None else first.get(id(slot), -1)
        end = len(steps.steps) if slot.keep else last.get(id(slot), begin)
        found.append(Lifetime(slot, begin, end, slot.layout.storage_size * slot.itemsize))
    return found


@dataclass(frozen=True)
class Arena:
    """Offsets by slot identity, and the bytes the arena needs. ``over``: the slot whose place another one takes."""

    offsets: dict[int, int]
    peak: int
    lifetimes: list[Lifetime]
    over: dict[int, Slot]


# How many steps a buffer that a transfer touches keeps its place after its last use, where memory allows: reuse at
# once would make the next transfer wait for the computation it is meant to hide behind.
LINGER = (24, 8, 0)
# Runs of the search where the quick orders do not do. A run takes about a millisecond; most that succeed do so early.
RUNS = 64


def place(steps: Steps, capacity: int) -> Arena:
    """Resident slots at the bottom, one after another; the others packed above by lifetime (`planner.solvers.pack`).
    Groups of ranks that compute side by side have places of their own, at the same addresses.

    States that are updated in their place take no other. The peak may exceed the capacity; the caller decides what to
    do about it.
    """
    alive = lifetimes(steps)
    moved = {id(slot) for step in steps.steps if isinstance(step, MoveStep) for slot in (step.source, step.target)}
    found = replacements(steps)
    follows = {id(slot) for chain in found.chains for slot in chain[1:]}
    places = [life for life in alive if id(life.slot) not in follows]
    sides = groups(steps)
    arena = _side_by_side(places, sides, len(steps.steps), capacity, moved, found.pairs) if len(sides) > 1 else None
    if arena is None or arena.peak > capacity:
        together = packed(places, len(steps.steps), capacity, moved, found.pairs)
        arena = together if arena is None or together.peak <= arena.peak else arena
    offsets = dict(arena.offsets)
    for chain in found.chains:
        offsets |= {id(slot): offsets[id(chain[0])] for slot in chain}
    return Arena(offsets, arena.peak, alive, {**arena.over, **found.over})


def _side_by_side(
    alive: list[Lifetime],
    sides: list[Ranks],
    end: int,
    capacity: int,
    moved: set[int],
    pairs: Mapping[int, Pair],
) -> Arena:
    """Each group of ranks packed for itself, as a slot takes no room on ranks that store nothing of it.

    Slots on ranks of several groups, or of none, lie below the others on all ranks, for the whole run.
    """
    mine = [[life for life in alive if within(life.slot, ranks)] for ranks in sides]
    inside = {id(life.slot) for lives in mine for life in lives}
    common = [Lifetime(life.slot, -1, end, life.nbytes) for life in alive if id(life.slot) not in inside]
    offsets: dict[int, int] = {}
    over: dict[int, Slot] = {}
    peak = 0
    for lives in mine:
        here = {id(life.slot) for life in lives}
        arena = packed(
            [*common, *lives],
            end,
            capacity,
            moved,
            {slot: pair for slot, pair in pairs.items() if slot in here and id(pair.over) in here},
        )
        offsets |= arena.offsets
        over |= arena.over
        peak = max(peak, arena.peak)
    return Arena(offsets, peak, alive, over)


def packed(
    alive: list[Lifetime], end: int, capacity: int, moved: set[int], pairs: Mapping[int, Pair] | None = None
) -> Arena:
    """Quick orders first; where they need more than there is, though no instant does, the search of the packing solver.

    ``end`` is the number of steps; ``moved`` the slots, by identity, that transfers touch; ``pairs`` the slots, by that
    of the result, whose place a result may take.
    """
    arena = None
    for linger in LINGER if moved else (0,):
        packing = _Packing(alive, end, linger, moved, pairs or {})
        arena = packing.placed(minimize_peak)
        if arena.peak <= capacity:
            return arena
    assert arena is not None
    within = packing.placed(lambda buffers: _searched(buffers, capacity - packing.base))
    return within if within.peak <= capacity else arena


def _searched(buffers: list[Buffer], capacity: int) -> Packing:
    """A packing within the capacity if so many runs find one, the quick orders' own otherwise."""
    found = pack(buffers, capacity, time_limit=inf, runs=RUNS) if capacity > 0 else None
    return found if found is not None and found.status == "packed" else minimize_peak(buffers)


class _Packing:
    """Resident slots at the bottom; above them the others, ``linger`` steps longer alive where transfers touch them."""

    def __init__(
        self, alive: list[Lifetime], end: int, linger: int, moved: set[int], pairs: Mapping[int, Pair]
    ) -> None:
        self.alive = alive
        self.resident = [life for life in alive if life.first < 0 and life.last == end]
        self.moving = [life for life in alive if not (life.first < 0 and life.last == end)]
        self.base = sum(_aligned(life.nbytes) for life in self.resident)
        self.over = {id(life.slot): pairs[id(life.slot)].over for life in self.moving if _settled(life, pairs, linger)}
        staying = moved - {id(slot) for slot in self.over.values()}
        numbers = {id(life.slot): str(k) for k, life in enumerate(self.moving)}
        self.buffers = [
            Buffer(
                numbers[id(life.slot)],
                life.first,
                min(end, life.last + (linger if id(life.slot) in staying else 0)) + 1,
                _aligned(max(life.nbytes, 1)),
                alignment=ALIGN,
                reuses=numbers[id(self.over[id(life.slot)])] if id(life.slot) in self.over else None,
            )
            for life in self.moving
        ]

    def placed(self, solve: Callable[[list[Buffer]], Packing]) -> Arena:
        offsets: dict[int, int] = {}
        base = 0
        for life in self.resident:
            offsets[id(life.slot)] = base
            base += _aligned(life.nbytes)
        packing = solve(self.buffers) if self.buffers else None
        for buffer, life in zip(self.buffers, self.moving, strict=True):
            assert packing is not None
            offsets[id(life.slot)] = base + packing.offsets[buffer.name]
        over = {new: old for new, old in self.over.items() if offsets[new] == offsets[id(old)]}
        peak = max((offsets[id(life.slot)] + life.nbytes for life in self.alive), default=0)
        return Arena(offsets, peak, self.alive, over)


def _settled(life: Lifetime, pairs: Mapping[int, Pair], linger: int) -> bool:
    return id(life.slot) in pairs and pairs[id(life.slot)].settled(linger)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN
