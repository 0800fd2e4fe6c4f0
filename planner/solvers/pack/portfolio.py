"""Many short searches with different preferences, because each is either lucky soon or not at all.

Runs are numbered, share nothing and depend on the seed and their number alone, so the packing found, that of the first
run in order that finds one, is the same however many threads there are.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import combinations
from math import gcd, inf
from time import monotonic

import numpy as np

from .groups import Group, grouped, reuse_pairs, share_greedily
from .instance import arranged
from .problem import Buffer
from .ranking import rank_all
from .search import EXHAUSTED, FOUND, STOPPED, begin, search
from .sweep import Sweep, Timeline, fits_sweep, timeline
from .tables import Instance, Ints, Ordering, State

Pairs = list[tuple[int, int]]
_NODES = 1000  # of a short run: what succeeds at all mostly does so within
_AHEAD = 8  # runs chosen before the answer of the first of them is heard, whatever the number of threads
_ORDERS = 5  # of preference, before they are shaken
_WIDTH = 16  # states that a run over time keeps at least
# Items, times the most alive at one instant, of problems with runs over time: what each of its steps takes.
_MOST_IN_TIME = 1 << 16
_FAILURES = 50  # of a short run by order
_TRAIL = 1 << 20  # changes that a run by order can undo; one that needs more ends
# Items, and pairs of items in the sections added up, of problems with runs by order. Each of its steps looks at pairs:
# with more of them such a run takes longer than others, and finds no more.
_MOST_ITEMS, _MOST_PAIRS = 1 << 12, 1 << 17
_NOISE = (0.02, 0.08, 0.25, 1.0)  # of the later runs' ranks, as a share of the number of items


class Arrangement:
    """One choice of which outputs share the place of their input, and the runs made for it.

    A packing below a lower ceiling is one below the capacity, and a low ceiling prunes more: where there is room above
    the largest total alive, every other run is for a ceiling of less room.
    """

    def __init__(self, buffers: Sequence[Buffer], groups: list[Group], capacity: int) -> None:
        self._buffers = len(buffers)
        self._groups = groups
        self._layout, self._items = arranged(buffers, groups, capacity)
        self._orders = _orders(self._layout)
        self._orderly = len(self._items) <= _MOST_ITEMS and _pairs(self._layout) <= _MOST_PAIRS
        self._lines = _timelines(buffers, self._items, self._layout)
        self._lower = [self._layout._replace(capacity=np.array([c], np.int64)) for c in _ceilings(self._layout)]
        self.runs = 0
        self.exhausted = False

    def next_run(self, seed: int) -> "Run":
        """The next of this arrangement's runs."""
        turn, lower = divmod(self.runs, 2) if self._lower else (self.runs, 0)
        instance, number = self._layout, turn
        if lower:
            number, level = divmod(turn, len(self._lower))
            instance = self._lower[level]
        self.runs += 1
        manner, number = _taking_turns(number, ordered=self._orderly, timed=bool(self._lines))
        if manner is RunOverTime:
            line = self._lines[number % 2]._replace(capacity=int(instance.capacity[0]))
            return RunOverTime(self, line, number, seed)
        rank = _rank(self._orders, number, seed)
        return (RunByOrder if manner is RunByOrder else RunByPlace)(self, instance, rank, number, proves=not lower)

    def offsets(self, settled: Ints) -> Ints:
        """Offsets of all buffers from those of the items; pinned ones where they are pinned, empty ones at 0."""
        offsets = np.zeros(self._buffers, np.int64)
        for group in self._groups:
            offsets[list(group.members)] = group.offset or 0
        for group, offset in zip(self._items, settled, strict=True):
            offsets[list(group.members)] = offset
        return offsets


class Run:
    """One search from scratch."""

    def __init__(self, arrangement: Arrangement, *, proves: bool) -> None:
        self.arrangement, self.proves = arrangement, proves
        self._settled: Ints | None = None  # offsets of the items, once a packing is found
        self._stop = False

    def __call__(self) -> int:
        """FOUND, EXHAUSTED or STOPPED."""
        raise NotImplementedError

    def offsets(self) -> Ints:
        """Of all buffers, after FOUND."""
        assert self._settled is not None
        return self.arrangement.offsets(self._settled)

    def stop(self) -> None:
        """Let the search end soon."""
        self._stop = True


class RunByPlace(Run):
    """One search by place (`search.py`), with an order of preference and a number of nodes."""

    def __init__(self, arrangement: Arrangement, instance: Instance, rank: Ints, number: int, *, proves: bool) -> None:
        super().__init__(arrangement, proves=proves)
        self._layout, self._rank, self._number = instance, rank, number
        self._registers: Ints | None = None

    def __call__(self) -> int:
        """FOUND, EXHAUSTED or STOPPED."""
        state = fresh_state(self._layout)
        by_level, nodes = _manner(self._number)
        self._registers, self._settled = state.registers, state.offset
        return STOPPED if self._stop else search(self._layout, state, self._rank, by_level, nodes)

    def stop(self) -> None:
        """Let the search end at its next node."""
        super().stop()
        if self._registers is not None:
            self._registers[4] = 1


class RunByOrder(RunByPlace):
    """One search by order (`ranking.py`), until so many failures."""

    def __call__(self) -> int:
        """FOUND, EXHAUSTED or STOPPED."""
        state = fresh_ordering(self._layout)
        self._registers, self._settled = state.registers, state.cells[: len(self._layout.first)]
        failures = _FAILURES * luby(self._number + 1)
        return STOPPED if self._stop else rank_all(self._layout, state, self._rank, failures)


class RunOverTime(Run):
    """One search over time (`sweep.py`), of which the first, forward and backward, are not shaken."""

    def __init__(self, arrangement: Arrangement, line: Timeline, number: int, seed: int) -> None:
        super().__init__(arrangement, proves=False)
        self._line, self._number, self._seed = line, number, seed

    def __call__(self) -> int:
        """FOUND or STOPPED."""
        if self._stop:
            return STOPPED
        rng = np.random.default_rng((self._seed, self._number)) if self._number > 1 else None
        width = _WIDTH * luby(self._number // 2 + 1)
        self._settled = Sweep(self._line, width, rng, lambda: self._stop).offsets()
        return STOPPED if self._settled is None else FOUND


def _taking_turns(number: int, *, ordered: bool, timed: bool) -> tuple[type[Run], int]:
    """The manner of an arrangement's run, and the number that it has among those of its manner.

    The first are by place; then each manner that the problem has, over time twice as often.
    """
    if number < _ORDERS:
        return RunByPlace, number
    over, order = [RunOverTime] * timed, [RunByOrder] * ordered
    cycle: list[type[Run]] = [*over, RunByPlace, *over, *order]
    lap, place = divmod(number - _ORDERS, len(cycle))
    manner = cycle[place]
    among = lap * cycle.count(manner) + cycle[:place].count(manner)
    return manner, among + _ORDERS * (manner is RunByPlace)


def _timelines(buffers: Sequence[Buffer], items: Sequence[Group], layout: Instance) -> list[Timeline]:
    """Items in time that runs forward and backward; none where a search over time is not for them.

    It knows no pins, nor items of which the height changes, and puts them at sums of sizes and of what they leave.
    """
    sizes = [{buffers[i].size for i in group.members} for group in items]
    unit = gcd(int(layout.capacity[0]), *(size for some in sizes for size in some))
    flat = all(len(some) == 1 for some in sizes) and not any(unit % group.alignment for group in items)
    if not items or len(layout.pin_low) or not flat:
        return []
    lower = [min(buffers[i].lower for i in group.members) for group in items]
    upper = [max(buffers[i].upper for i in group.members) for group in items]
    heights = np.array([max(some) for some in sizes], np.int64)
    lines = [timeline(lower, upper, heights, int(layout.capacity[0]), backward=way) for way in (False, True)]
    suits = fits_sweep(lines[0]) and fits_sweep(lines[1]) and len(items) * lines[0].most <= _MOST_IN_TIME
    return lines if suits else []


def hunt(
    buffers: Sequence[Buffer], capacity: int, *, deadline: float, seed: int, jobs: int, runs: int | None = None
) -> tuple[int, Ints | None]:
    """FOUND with the offsets [buffers], EXHAUSTED if there are none, or STOPPED at the deadline (of `monotonic`).

    Or after so many runs: then the answer is the same on any machine.
    """
    left = inf if runs is None else runs
    pool = _Pool(_arrangements(buffers, capacity))
    waiting: deque[tuple[Run, Future[int]]] = deque()
    with ThreadPoolExecutor(jobs) as threads:
        try:
            while monotonic() < deadline and left > 0:
                while len(waiting) < min(_AHEAD, left) and (chosen := pool.next_arrangement()) is not None:
                    run = chosen.next_run(seed)
                    waiting.append((run, threads.submit(run)))
                if not waiting:
                    return EXHAUSTED, None
                run, future = waiting.popleft()
                left -= 1
                if not wait([future], timeout=None if deadline == inf else max(deadline - monotonic(), 0.0)).done:
                    run.stop()
                    return STOPPED, None
                answer = future.result()
                if answer == FOUND:
                    return FOUND, run.offsets()
                run.arrangement.exhausted |= answer == EXHAUSTED and run.proves
            return STOPPED, None
        finally:
            for run, _ in waiting:
                run.stop()


def _ceilings(instance: Instance) -> list[int]:
    """Ceilings below the capacity, from the largest total of a section upwards; none where that is the capacity."""
    load = _load(instance)
    np.add.at(load, np.repeat(np.arange(len(load)), np.diff(instance.pin_at)), instance.pin_high - instance.pin_low)
    least = max(int(load.max(initial=0)), int(instance.pin_high.max(initial=0)))
    room = int(instance.capacity[0]) - least
    return sorted({least, least + room // 4}) if room > 0 else []


class _Pool:
    """Whose turn it is: those begun in rotation, one more when all begun are exhausted or the rounds double."""

    def __init__(self, arrangements: Iterator[Arrangement]) -> None:
        self._unbegun = arrangements
        self._begun: list[Arrangement] = []
        self._turn: deque[Arrangement] = deque()
        self._rounds = 0

    def next_arrangement(self) -> Arrangement | None:
        """The arrangement whose run comes next; None when every one there is has been exhausted."""
        while self._turn:
            chosen = self._turn.popleft()
            if not chosen.exhausted:
                return chosen
        self._begun = [a for a in self._begun if not a.exhausted]
        self._rounds += 1
        if not self._begun or self._rounds & (self._rounds - 1) == 0:
            self._begun.extend(next(([a] for a in self._unbegun), []))
        self._turn.extend(self._begun)
        return self._turn.popleft() if self._turn else None


def _arrangements(buffers: Sequence[Buffer], capacity: int) -> Iterator[Arrangement]:
    """Every consistent choice of sharing, those nearest to sharing as much as possible first."""
    pairs, most = reuse_pairs(buffers), set(share_greedily(buffers))
    for changes in range(len(pairs) + 1):
        for changed in combinations(pairs, changes):
            groups = grouped(buffers, sorted(most.symmetric_difference(changed)), capacity)
            if groups is not None:
                yield Arrangement(buffers, groups, capacity)


def fresh_state(instance: Instance) -> State:
    """Nothing placed."""
    n, m = len(instance.first), len(instance.starts) - 1
    cells = np.zeros(3 * n + 2 * m, np.int64)
    cells[2 * n : 3 * n] = -1
    cells[3 * n + m :] = np.diff(instance.sec_at)
    np.add.at(cells[3 * n : 3 * n + m], np.repeat(np.arange(m), np.diff(instance.sec_at)), instance.sec_height)
    # A placement changes one cell of its own, two of each section and at most two of each neighbour; an item is
    # postponed at most once for each time it is raised.
    longest = 2 * n + 2 * len(instance.sec_item) + 3 * len(instance.adj_item) + 1
    state = State(
        cells=cells,
        lowest=cells[:n],
        postponed=cells[n : 2 * n],
        offset=cells[2 * n : 3 * n],
        left=cells[3 * n : 3 * n + m],
        open=cells[3 * n + m :],
        row_item=instance.sec_item.copy(),
        row_height=instance.sec_height.copy(),
        trail=np.empty((longest, 2), np.int64),
        reach=np.zeros(n, np.int64),
        top=np.zeros(m, np.int64),
        able=np.zeros(m, np.int64),
        end=np.zeros((m, 2), np.int64),
        owner=np.zeros(m, np.int64),
        stale=np.zeros(m, np.int64),
        frames=np.zeros((2 * n + 2 * m + 2, 5), np.int64),
        registers=np.array([0, 0, STOPPED, 0, 0], np.int64),
        blame=_fullness(instance),
    )
    begin(instance, state)
    return state


def _fullness(instance: Instance) -> Ints:
    """Blame to begin with: full sections are where it will fail, and so is found what else is not (docs/solver.md)."""
    return 10 * _load(instance) // max(int(instance.capacity[0]), 1)


def _load(instance: Instance) -> Ints:
    """Height of the items of each section together."""
    load = np.zeros(len(instance.starts) - 1, np.int64)
    np.add.at(load, np.repeat(np.arange(len(load)), np.diff(instance.sec_at)), instance.sec_height)
    return load


def _pairs(instance: Instance) -> int:
    """Pairs of items in each section, added up."""
    return int((np.diff(instance.sec_at) ** 2).sum())


def fresh_ordering(instance: Instance) -> Ordering:
    """Nothing in order."""
    n, m = len(instance.first), len(instance.starts) - 1
    capacity = int(instance.capacity[0])
    height = np.zeros(n, np.int64)
    np.maximum.at(height, instance.sec_item, instance.sec_height)
    cells = np.zeros(2 * n + 2 * m, np.int64)
    cells[n : 2 * n] = height + (capacity - height) % instance.align
    count = np.diff(instance.sec_at)
    return Ordering(
        cells=cells,
        under=np.zeros((n, n), np.uint8),
        row_item=instance.sec_item.copy(),
        row_height=instance.sec_height.copy(),
        trail=np.empty((_TRAIL, 2), np.int64),
        few=np.zeros((2, m), np.int64),
        near=np.zeros((2, len(instance.sec_item)), np.int64),
        able=np.zeros(len(instance.sec_item), np.int64),
        line=np.zeros((2, int(count.max(initial=0))), np.int64),
        window=np.zeros((2, 5), np.int64),
        stale=np.zeros(m, np.int64),
        queue=np.zeros(m, np.int64),
        frames=np.empty((len(instance.sec_item) + 1, 5), np.int64),
        choices=np.empty((int((count**2).sum()) + 1, 2), np.int64),
        registers=np.zeros(7, np.int64),
        blame=_fullness(instance),
    )


def _orders(instance: Instance) -> list[Ints]:
    """Ranks of the items by total alive with them, area, width and size, the largest first; five ways."""
    n = len(instance.first)
    width = instance.last - instance.first
    load = _load(instance)
    section = np.repeat(np.arange(len(load)), np.diff(instance.sec_at))
    size, area, total = (np.zeros(n, np.int64) for _ in range(3))
    np.maximum.at(size, instance.sec_item, instance.sec_height)
    np.add.at(area, instance.sec_item, instance.sec_height)
    np.maximum.at(total, instance.sec_item, load[section])
    keys = [(total, width, area), (size, width, total), (total, area, width), (width, area, total), (area, size, width)]
    return [_ranked(*(-k for k in key)) for key in keys]


def _ranked(*keys: Ints) -> Ints:
    """Position of each item in the order of the first key, ties by the next."""
    rank = np.empty(len(keys[0]), np.int64)
    rank[np.lexsort(keys[::-1])] = np.arange(len(rank))
    return rank


def _manner(number: int) -> tuple[bool, int]:
    """Whether a run goes strictly upwards, and for how many nodes.

    Each plain order goes upwards first, which suits many small buffers, above all where there is room. Then short runs
    mostly: every eighth is longer, and longer over time, so that proofs end, and every other one of these goes upwards.
    """
    if number < _ORDERS:
        return True, 3 * _NODES
    turn, eighth = divmod(number - _ORDERS, 8)
    return (turn % 2 == 0, 2 * _NODES * luby(turn + 1)) if eighth == 7 else (False, _NODES)


def _rank(orders: list[Ints], run: int, seed: int) -> Ints:
    """The order of one run: the five plain ones twice, then the same shaken more and more, again and again."""
    lap, place = divmod(run, _ORDERS)
    plain = orders[place]
    if lap < 2:
        return plain
    lap, run = lap - 1, run - _ORDERS
    noise = np.random.default_rng((seed, run)).normal(size=len(plain)) * (len(plain) * _NOISE[(lap - 1) % len(_NOISE)])
    rank = np.empty(len(plain), np.int64)
    rank[np.argsort(plain + noise, kind="stable")] = np.arange(len(plain))
    return rank


def luby(k: int) -> int:
    """The k-th (from 1) of 1 1 2 1 1 2 4 …: short runs mostly, and ever longer ones, so that proofs end too.

    >>> [luby(k) for k in range(1, 16)]
    [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]
    """
    while k & (k + 1):
        k -= (1 << (k.bit_length() - 1)) - 1
    return (k + 1) >> 1
