"""Search over time: instant after instant what is alive, in all orders that it may have, by the best of many ways.

A packing that leaves nothing empty is a planar graph whose edges are buffers and whose vertices are where some of them
end and others begin; so it is enough to choose what ends and begins together, and a PQ-tree tells in which orders what
is alive may lie then, if in any. What is left empty is guessed to be few places that stay as they are, mostly that of
something that ended, until something ends or begins. A number of states are kept at each instant, those that cost
least. That finds packings of memory that is nearly full, and proves nothing where it finds none.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from .joints import COLUMNS, ENDS_LEFT, Choices, Instant, Room, States, follow, offer_choices
from .places import settled
from .rows import APART, write_leaves
from .tables import Ints

MOST_AT_ONCE = 60  # items that end, or begin, at one instant
_OFFERS = 200  # choices of each state that is kept, on average
# Fitted to 60 generated problems (`benchmarks/solver_pack_unseen.py`, seeds 100 to 111 of five kinds), in steps towards
# what lets a run of 16 states come further through time.
_PRICES = np.array([1300, 240, 2800, 1600, 260, 400, 1850, 7000, 300, 3500], np.int64)
_LOGARITHMS = np.array([0, *(1000 * np.log(np.arange(1, 1 << 12))).round()], np.int64)
_STEPS = 8  # joints of one instant that are chosen one after another; what is left of a state then is given up

Shaker: TypeAlias = np.random.Generator


class Timeline(NamedTuple):
    """Items as they lie in time: `instants` where some end and others begin, inner ones; what is alive before the
    first. `most`: as many items are alive at one instant."""

    instants: list[Instant]
    first: Ints
    sizes: Ints
    capacity: int
    most: int


class Step(NamedTuple):
    """Choices taken one after another at an instant: who is made from which of the step before, by `origin`."""

    instant: Instant
    chosen: Ints
    origin: Ints


def timeline(lower: Sequence[int], upper: Sequence[int], sizes: Ints, capacity: int, *, backward: bool) -> Timeline:
    """Of items alive in [lower, upper), or in time that runs backward."""
    if backward:
        lower, upper = [-u for u in upper], [-u for u in lower]
    begins, ends = np.array(lower, np.int64), np.array(upper, np.int64)
    at = np.unique(np.concatenate([begins, ends]))
    alive = np.searchsorted(np.sort(begins), at, "right") - np.searchsorted(np.sort(ends), at, "right")
    instants = [
        Instant(np.flatnonzero(ends == t), np.flatnonzero(begins == t), sizes, np.zeros(1, np.int64)) for t in at[1:-1]
    ]
    return Timeline(instants, np.flatnonzero(begins == at[0]), sizes, capacity, int(alive.max()))


def fits_sweep(line: Timeline) -> bool:
    """Whether no instant has too much that ends or begins."""
    return all(max(len(t.ends), len(t.begins)) <= MOST_AT_ONCE for t in line.instants) and len(line.first) < 64


class Sweep:
    """One search with so many states kept at a time; `rng` shakes what choices are said to cost, if there is one."""

    def __init__(self, line: Timeline, width: int, rng: Shaker | None, stopped: Callable[[], bool]) -> None:
        self._line, self._width, self._rng, self._stopped = line, width, rng, stopped
        prices = _PRICES if rng is None else _PRICES * rng.integers(70, 140, len(_PRICES)) // 100
        tokens = 4 * line.most + 256
        self._room, self._choices = _room(tokens, prices), _choices(max(_OFFERS * width, 5000))
        self._number = 0
        self._steps: list[Step] = []

    def offsets(self) -> Ints | None:
        """Of the items; None where nothing was found."""
        if self._line.sizes[self._line.first].sum() > self._line.capacity:
            return None
        states, kept = _at_first(self._line, len(self._room.tree)), np.array([-1])
        first = states
        for instant in self._line.instants:
            if self._stopped():
                return None
            states, kept = self._passed(instant, states, kept)
            if not len(kept):
                return None
        tree = first.trees[0, : first.tokens[0]]
        return settled(tree, self._path(int(kept[0])), len(self._line.sizes), self._room)

    def _passed(self, instant: Instant, states: States, kept: Ints) -> tuple[States, Ints]:
        """The states after an instant, and the numbers of the choices that led to them."""
        count = len(kept)
        all_ends, all_begins = ((1 << len(some)) - 1 for some in (instant.ends, instant.begins))
        states = states._replace(ends=np.full(count, all_ends), begins=np.full(count, all_begins))
        done: list[tuple[States, Ints, Ints, Ints]] = []
        for _ in range(_STEPS):
            numbered = instant._replace(step=np.array([len(self._steps)], np.int64))
            offer_choices(numbered, states, self._choices, self._room)
            ready, others, worth = self._best()
            chosen = self._choices.rows[np.concatenate([ready, others])]
            after = _empty_states(len(chosen), len(self._room.tree))
            follow(numbered, states, chosen, self._room, after)
            after.cost[:] = self._choices.cost[np.concatenate([ready, others])]
            number = self._number + np.arange(len(chosen))
            self._number += len(chosen)
            self._steps.append(Step(numbered, chosen, kept[chosen[:, 0]]))
            many = len(ready)
            done.append((_some(after, slice(many)), number[:many], worth[ready], self._choices.digest[ready]))
            states, kept = _some(after, slice(many, None)), number[many:]
            if not len(kept):
                break
        ended = [np.concatenate(parts) for parts in zip(*(d[1:] for d in done), strict=True)]
        joined = States(*(np.concatenate(parts) for parts in zip(*(d[0] for d in done), strict=True)))
        best = _different(ended[1], ended[2])[: self._width]
        return _some(joined, best), ended[0][best]

    def _best(self) -> tuple[Ints, Ints, Ints]:
        """The best of the choices offered that leave nothing without a joint, and of the others; and what all are
        worth, shaken."""
        count = int(self._room.offered[0])
        worth = self._choices.worth[:count]
        if self._rng is not None:
            worth = worth + self._rng.integers(0, 300, count)
        best = _different(worth, self._choices.digest[:count])
        ready = ~self._choices.rows[best, ENDS_LEFT:COLUMNS].any(axis=1)
        return best[ready][: self._width], best[~ready][: self._width], worth

    def _path(self, number: int) -> list[tuple[Instant, Ints]]:
        """The choices that led to one, in their order."""
        begins = np.cumsum([0, *(len(step.chosen) for step in self._steps)])
        found = []
        while number >= 0:
            k = int(np.searchsorted(begins, number, "right")) - 1
            step, place = self._steps[k], number - int(begins[k])
            found.append((step.instant, step.chosen[place]))
            number = int(step.origin[place])
        return found[::-1]


def _at_first(line: Timeline, tokens: int) -> States:
    """One state: what is alive before the first instant, and what is free then, in any order."""
    states = _empty_states(1, tokens)
    leaves = np.column_stack([line.first, line.sizes[line.first]])
    room = line.capacity - int(line.sizes[line.first].sum())
    if room:
        free = -1 - APART if len(leaves) else -1
        leaves = np.concatenate([leaves, np.array([[free, room]])])
    states.tokens[0] = write_leaves(leaves, len(leaves), states.trees[0], 0)
    return states


def _empty_states(count: int, tokens: int) -> States:
    ends, begins, cost, lengths = (np.zeros(count, np.int64) for _ in range(4))
    return States(np.zeros((count, tokens, 3), np.int64), lengths, cost, ends, begins)


def _some(states: States, which: Ints | slice) -> States:
    return States(*(column[which] for column in states))


def _different(worth: Ints, digests: Ints) -> Ints:
    """Which are worth keeping, the least first, of each digest one."""
    order = np.argsort(worth, kind="stable")
    return order[np.sort(np.unique(digests[order], return_index=True)[1])]


def _choices(count: int) -> Choices:
    cost, worth, digests = (np.zeros(count, np.int64) for _ in range(3))
    return Choices(np.zeros((count, COLUMNS), np.int64), cost, worth, digests)


def _room(tokens: int, prices: Ints) -> Room:
    state, pieces, hashes, free = (np.zeros(tokens, np.int64) for _ in range(4))
    return Room(
        state=state,
        leaves=np.zeros((64, 2), np.int64),
        tree=np.zeros((tokens, 3), np.int64),
        divided=np.zeros((tokens, 3), np.int64),
        pieces=pieces,
        log=np.zeros((tokens, 2), np.int64),
        hashes=hashes,
        choice=np.zeros(COLUMNS, np.int64),
        free=free,
        places=np.zeros(128, np.int64),
        offered=np.zeros(1, np.int64),
        logarithms=_LOGARITHMS,
        prices=prices,
    )
