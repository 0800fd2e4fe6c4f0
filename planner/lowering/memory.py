"""Static offsets: every slot gets one place in its tier for as long as some step touches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from ..solvers.pack import Buffer, Packing, minimize_peak, pack
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
    """Offsets by slot identity, and the bytes the arena needs."""

    offsets: dict[int, int]
    peak: int
    lifetimes: list[Lifetime]


# How many steps a buffer that a transfer touches keeps its place after its last use, where memory allows: reuse at
# once would make the next transfer wait for the computation it is meant to hide behind.
LINGER = (24, 8, 0)
# Runs of the search where the quick orders do not do. A run takes about a millisecond; most that succeed do so early.
RUNS = 64


def place(steps: Steps, capacity: int) -> Arena:
    """Resident slots at the bottom, one after another; the others packed above by lifetime (`planner.solvers.pack`).

    The peak may exceed the capacity; the caller decides what to do about it.
    """
    alive = lifetimes(steps)
    moved = {id(slot) for step in steps.steps if isinstance(step, MoveStep) for slot in (step.source, step.target)}
    return packed(alive, len(steps.steps), capacity, moved)


def packed(alive: list[Lifetime], end: int, capacity: int, moved: set[int]) -> Arena:
    """Quick orders first; where they need more than there is, though no instant does, the search of the packing solver.

    ``end`` is the number of steps; ``moved`` the slots, by identity, that transfers touch.
    """
    for linger in LINGER if moved else (0,):
        arena = _placed(alive, end, linger, moved, minimize_peak)
        if arena.peak <= capacity:
            return arena
    within = _placed(alive, end, 0, moved, lambda buffers: _searched(buffers, capacity - _resident(alive, end)))
    return within if within.peak <= capacity else arena


def _searched(buffers: list[Buffer], capacity: int) -> Packing:
    """A packing within the capacity if so many runs find one, the quick orders' own otherwise."""
    found = pack(buffers, capacity, time_limit=inf, runs=RUNS) if capacity > 0 else None
    return found if found is not None and found.status == "packed" else minimize_peak(buffers)


def _resident(alive: list[Lifetime], end: int) -> int:
    return sum(_aligned(life.nbytes) for life in alive if life.first < 0 and life.last == end)


def _placed(
    alive: list[Lifetime], end: int, linger: int, moved: set[int], solve: Callable[[list[Buffer]], Packing]
) -> Arena:
    offsets: dict[int, int] = {}
    base = 0
    moving = []
    for life in alive:
        if life.first < 0 and life.last == end:
            offsets[id(life.slot)] = base
            base += _aligned(life.nbytes)
        else:
            moving.append(life)
    buffers = []
    for k, life in enumerate(moving):
        last = min(end, life.last + (linger if id(life.slot) in moved else 0))
        buffers.append(Buffer(str(k), life.first, last + 1, _aligned(max(life.nbytes, 1)), alignment=ALIGN))
    packing = solve(buffers) if buffers else None
    for k, life in enumerate(moving):
        assert packing is not None
        offsets[id(life.slot)] = base + packing.offsets[str(k)]
    return Arena(offsets, max((offsets[id(life.slot)] + life.nbytes for life in alive), default=0), alive)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN
