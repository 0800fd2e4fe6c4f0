"""Static offsets: every slot gets one place in its tier for as long as some step touches it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple, Protocol

from ..solvers.pack import Buffer, Packing, max_live, minimize_peak, pack
from ..strategy.rooms import Room
from .replacements import Pair, Replacements
from .sides import Ranks, groups, within
from .steps import MoveStep, Slot, Steps

ALIGN = 256


class Lifetime(NamedTuple):
    """Steps first..last touch the slot; -1 from before the run, len(steps) to after it."""

    slot: Slot
    first: int
    last: int
    nbytes: int


def lifetimes(steps: Steps, ranks: tuple[int, ...] | None = None) -> list[Lifetime]:
    """One per slot, in order of the slots; with what the largest of some ranks stores (None: of all)."""
    first, last = steps.used
    found = []
    for slot in steps.slots:
        begin = -1 if slot.initial is not None else first.get(id(slot), -1)
        end = len(steps.steps) if slot.keep else last.get(id(slot), begin)
        stored = slot.layout.storage_size if ranks is None else slot.layout.stored_on(ranks)
        found.append(Lifetime(slot, begin, end, stored * slot.itemsize))
    return found


@dataclass(frozen=True)
class Arena:
    """Offsets by slot identity, and the bytes the arena needs. ``over``: the slot whose place another one takes.

    ``apart``: by kind of device the arenas of its ranks, where slots have places of their own there. Then the others
    are those of the first kind, and the peak is what the rank with the least memory would need, others as much more as
    they have.
    """

    offsets: dict[int, int]
    peak: int
    lifetimes: list[Lifetime]
    over: dict[int, Slot]
    apart: Mapping[int, Arena] = field(default_factory=dict)

    def on(self, kind: int) -> Arena:
        """The arena of ranks on devices of a kind."""
        return self.apart.get(kind, self)


class Hold(Protocol):
    """How long slots keep their places after their last use."""

    def until(self, life: Lifetime, *, replaced: bool) -> int:
        """The last step at which the place is kept. ``replaced``: whether a result takes it."""

    def settled(self, pair: Pair) -> bool:
        """Whether a result may take a place."""


@dataclass(frozen=True)
class Linger:
    """So many steps, if a transfer touches the slot (``moved``, by identity): reuse at once would make the next
    transfer wait for the computation that it is meant to hide behind.
    """

    steps: int
    moved: Set[int]

    def until(self, life: Lifetime, *, replaced: bool) -> int:
        return life.last + (self.steps if id(life.slot) in self.moved and not replaced else 0)

    def settled(self, pair: Pair) -> bool:
        return pair.settled(self.steps)


# How many steps what transfers touch keeps its place, where memory allows.
LINGER = (24, 8)
# Runs of the search where the quick orders do not do. A run takes about a millisecond; most that succeed do so early.
RUNS = 64


def place(
    steps: Steps, capacity: int, rooms: Sequence[Room] = (), unhindered: Hold | None = None, *, soon: bool = False
) -> Arena:
    """Resident slots at the bottom, one after another; the others packed above by lifetime (`planner.solvers.pack`).
    Groups of ranks that compute side by side have places of their own, at the same addresses; and so have devices that
    have more memory than others (``rooms``), at others, where what they store has no room in the least.

    States that are updated in their place take no other. The peak may exceed the capacity; the caller decides what to
    do about it. ``unhindered``: how long places are kept if that fits. ``soon``: the first places that fit will do.
    """
    alive = lifetimes(steps)
    moved = {id(slot) for step in steps.steps if isinstance(step, MoveStep) for slot in (step.source, step.target)}
    holds = [*([unhindered] if unhindered else []), *(Linger(count, moved) for count in (LINGER if moved else ()))]
    holds.append(Linger(0, moved))
    found = steps.replacements
    places = _places(alive, found)
    sides = groups(steps)
    arena = _side_by_side(places, sides, len(steps.steps), capacity, holds, found.pairs) if len(sides) > 1 else None
    if arena is None or arena.peak > capacity:
        together = packed(places, len(steps.steps), capacity, holds, found.pairs, soon=soon)
        arena = together if arena is None or together.peak <= arena.peak else arena
    if arena.peak > capacity and rooms:
        apart = _apart(steps, capacity, rooms, holds, found)
        arena = apart if apart.peak < arena.peak else arena
    return _with_chains(arena, alive, found)


def spread(steps: Steps) -> Arena:
    """A place of its own for every slot, but for states that are updated in theirs."""
    alive, found = lifetimes(steps), steps.replacements
    offsets, top = {}, 0
    for life in _places(alive, found):
        offsets[id(life.slot)] = top
        top += _aligned(life.nbytes)
    return _with_chains(Arena(offsets, top, alive, {}), alive, found)


def _with_chains(arena: Arena, alive: list[Lifetime], found: Replacements) -> Arena:
    """The arena with the slots that follow others in their place."""
    offsets = dict(arena.offsets)
    for chain in found.chains:
        offsets |= {id(slot): offsets[id(chain[0])] for slot in chain}
    apart = {kind: _with_chains(mine, mine.lifetimes, found) for kind, mine in arena.apart.items()}
    return Arena(offsets, arena.peak, arena.lifetimes if apart else alive, {**arena.over, **found.over}, apart)


def _apart(steps: Steps, capacity: int, rooms: Sequence[Room], holds: Sequence[Hold], found: Replacements) -> Arena:
    """The ranks of each kind of device packed for themselves. A result takes an operand's place on all or on none."""
    pairs = found.pairs
    while True:
        arenas = {}
        for room in rooms:
            alive = lifetimes(steps, room.ranks)
            mine = packed(_places(alive, found), len(steps.steps), capacity + room.spare, holds, pairs)
            arenas[room.kind] = replace(mine, lifetimes=alive)
        common = {key for key in pairs if all(key in mine.over for mine in arenas.values())}
        if all(common == mine.over.keys() for mine in arenas.values()):
            break
        pairs = {key: pair for key, pair in pairs.items() if key in common}
    peak = max(arenas[room.kind].peak - room.spare for room in rooms)
    return replace(arenas[rooms[0].kind], peak=peak, apart=arenas)


def least_arena(steps: Steps, rooms: Sequence[Room] = ()) -> int:
    """Bytes that `place` needs at least for these steps, without placing anything."""
    found = steps.replacements
    end, sides = len(steps.steps), groups(steps)
    if rooms:
        return max(
            _least(_places(lifetimes(steps, room.ranks), found), end, found.pairs) - room.spare for room in rooms
        )
    places = _places(lifetimes(steps), found)
    if len(sides) < 2:
        return _least(places, end, found.pairs)
    return max(_least(lives, end, pairs) for lives, pairs in _told_apart(places, sides, end, found.pairs))


def _least(alive: list[Lifetime], end: int, pairs: Mapping[int, Pair]) -> int:
    return _Packing(alive, end, Linger(0, frozenset()), pairs).least


def _places(alive: list[Lifetime], found: Replacements) -> list[Lifetime]:
    """Those that need a place of their own."""
    follows = {id(slot) for chain in found.chains for slot in chain[1:]}
    return [life for life in alive if id(life.slot) not in follows]


def _side_by_side(
    alive: list[Lifetime],
    sides: list[Ranks],
    end: int,
    capacity: int,
    holds: Sequence[Hold],
    pairs: Mapping[int, Pair],
) -> Arena:
    """Each group of ranks packed for itself, as a slot takes no room on ranks that store nothing of it.

    Slots on ranks of several groups, or of none, lie below the others on all ranks, for the whole run.
    """
    offsets: dict[int, int] = {}
    over: dict[int, Slot] = {}
    peak = 0
    for lives, mine in _told_apart(alive, sides, end, pairs):
        arena = packed(lives, end, capacity, holds, mine)
        offsets |= arena.offsets
        over |= arena.over
        peak = max(peak, arena.peak)
    return Arena(offsets, peak, alive, over)


def _told_apart(
    alive: list[Lifetime], sides: list[Ranks], end: int, pairs: Mapping[int, Pair]
) -> Iterator[tuple[list[Lifetime], dict[int, Pair]]]:
    """What each group of ranks has to place, and the pairs among it."""
    mine = [[life for life in alive if within(life.slot, ranks)] for ranks in sides]
    inside = {id(life.slot) for lives in mine for life in lives}
    common = [Lifetime(life.slot, -1, end, life.nbytes) for life in alive if id(life.slot) not in inside]
    for lives in mine:
        here = {id(life.slot) for life in lives}
        yield [*common, *lives], {k: pair for k, pair in pairs.items() if k in here and id(pair.over) in here}


def packed(
    alive: list[Lifetime],
    end: int,
    capacity: int,
    holds: Sequence[Hold],
    pairs: Mapping[int, Pair] | None = None,
    *,
    soon: bool = False,
) -> Arena:
    """Quick orders first; where they need more than there is, though no instant does, the search of the packing solver.

    ``end`` is the number of steps; ``holds`` how long places are kept, the last one no longer than they are needed;
    ``pairs`` the slots, by identity of the result, whose place a result may take. ``soon``: see `place`.
    """
    for hold in holds[:-1]:
        packing = _Packing(alive, end, hold, pairs or {})
        enough = capacity - packing.base if soon else 0
        if packing.least <= capacity and (arena := packing.placed(packing.lowest(enough))).peak <= capacity:
            return arena
    packing = _Packing(alive, end, holds[-1], pairs or {})
    arena = packing.placed(packing.lowest())
    if arena.peak <= capacity or packing.least > capacity or packing.base >= capacity:
        return arena
    found = pack(packing.buffers, capacity - packing.base, time_limit=inf, runs=RUNS)
    return packing.placed(found) if found.status == "packed" else arena


class _Packing:
    """Resident slots at the bottom; above them the others, for as long as they keep their places."""

    def __init__(self, alive: list[Lifetime], end: int, hold: Hold, pairs: Mapping[int, Pair]) -> None:
        self.alive = alive
        self.resident = [life for life in alive if life.first < 0 and life.last == end]
        self.moving = [life for life in alive if not (life.first < 0 and life.last == end)]
        self.base = sum(_aligned(life.nbytes) for life in self.resident)
        taking = {id(life.slot): pairs[id(life.slot)] for life in self.moving if id(life.slot) in pairs}
        self.over = {key: pair.over for key, pair in taking.items() if hold.settled(pair)}
        replaced = {id(slot) for slot in self.over.values()}
        numbers = {id(life.slot): str(k) for k, life in enumerate(self.moving)}
        self.buffers = [
            Buffer(
                numbers[id(life.slot)],
                life.first,
                min(end, hold.until(life, replaced=id(life.slot) in replaced)) + 1,
                _aligned(max(life.nbytes, 1)),
                alignment=ALIGN,
                reuses=numbers[id(self.over[id(life.slot)])] if id(life.slot) in self.over else None,
            )
            for life in self.moving
        ]

    @property
    def least(self) -> int:
        """Bytes that no arena of these lifetimes is smaller than."""
        live = max_live(self.buffers)[0]
        return self.base + max(0, live - ALIGN)  # the last of a slot's aligned bytes may be over the end

    def lowest(self, enough: int = 0) -> Packing:
        """The lowest packing that the quick orders find, or the first that takes no more than ``enough``."""
        return minimize_peak(self.buffers, enough=enough)

    def placed(self, packing: Packing) -> Arena:
        offsets: dict[int, int] = {}
        base = 0
        for life in self.resident:
            offsets[id(life.slot)] = base
            base += _aligned(life.nbytes)
        for buffer, life in zip(self.buffers, self.moving, strict=True):
            offsets[id(life.slot)] = base + packing.offsets[buffer.name]
        over = {new: old for new, old in self.over.items() if offsets[new] == offsets[id(old)]}
        peak = max((offsets[id(life.slot)] + life.nbytes for life in self.alive), default=0)
        return Arena(offsets, peak, self.alive, over)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN
