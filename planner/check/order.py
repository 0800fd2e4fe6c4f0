"""Fourth proof: the plan cannot hang, and no two tasks that touch the same memory are left without an order.

The plan is a marked graph: lanes are queues, waits and meetings only ever hold tasks back. So one abstract run that
gets through proves that every run does. What is ordered on a rank is what lanes and waits order there; clocks hold,
per task and lane, how many tasks of that lane are finished before it starts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import chain, product
from typing import Any

import numpy as np

from ..format.document import Transfer
from .algebra import EMPTY
from .case import Case, Touch
from .report import Code, Findings

PAIR = 20  # units of work to compare two tasks that nothing orders

Event = tuple[int, "int | None"]
"""A task (by position) on one rank, or a transfer on all of its ranks at once (rank None)."""


def events(case: Case, findings: Findings) -> list[Event] | None:
    """All events in an order in which they can happen, or None and a DEADLOCK that names the tasks of a cycle."""
    case.algebra.budget.grant(sum(len(case.participants(task)) for task in case.tasks))
    before = _predecessors(case)
    after: dict[Event, list[Event]] = {event: [] for event in before}
    for event, earlier in before.items():
        for other in earlier:
            after[other].append(event)
    left = {event: len(earlier) for event, earlier in before.items()}
    ready = deque(event for event, count in left.items() if not count)
    done: list[Event] = []
    while ready:
        event = ready.popleft()
        done.append(event)
        for other in after[event]:
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    if len(done) == len(before):
        findings.facts.update(tasks=len(case.tasks), events=len(done))
        return done
    cycle = _cycle(before, {event for event, count in left.items() if count})
    text = " -> ".join(f"{case.tasks[t].id}" + ("" if r is None else f"@{r}") for t, r in cycle)
    findings.add(
        Code.DEADLOCK, f"each waits for the one before it: {text}", task=case.tasks[cycle[0][0]].id, rank=cycle[0][1]
    )
    return None


def _event(case: Case, position: int, rank: int) -> Event:
    return (position, None) if isinstance(case.tasks[position], Transfer) else (position, rank)


def _predecessors(case: Case) -> dict[Event, set[Event]]:
    """Every event with those it must wait for."""
    found: dict[Event, set[Event]] = {}
    for rank in case.everyone:
        for position, earlier in local_predecessors(case, rank).items():
            mine = found.setdefault(_event(case, position, rank), set())
            mine.update(_event(case, other, rank) for other in earlier)
    return found


def local_predecessors(case: Case, rank: int) -> dict[int, list[int]]:
    """The tasks of a rank, each with its predecessor on the lane and the tasks it waits for on this rank."""
    mine = [k for k, task in enumerate(case.tasks) if task.ranks is None or rank in task.ranks]
    position = {case.tasks[k].id: k for k in mine}
    last: dict[str, int] = {}
    found: dict[int, list[int]] = {}
    for k in mine:
        task = case.tasks[k]
        found[k] = [last[task.lane]] if task.lane in last else []
        found[k] += [position[wait] for wait in task.waits if wait in position]
        last[task.lane] = k
    return found


def _cycle(before: dict[Event, set[Event]], stuck: set[Event]) -> list[Event]:
    """Walk back among stuck events until one comes again."""
    trail: list[Event] = []
    event = min(stuck, key=lambda e: (e[0], -1 if e[1] is None else e[1]))
    while event not in trail:
        trail.append(event)
        event = min((e for e in before[event] if e in stuck), key=lambda e: (e[0], -1 if e[1] is None else e[1]))
    return [event, *reversed(trail[trail.index(event) :])]


class Clocks:
    """What is ordered on one rank: ``before[k]`` counts, per lane, the tasks that are finished when task k starts."""

    def __init__(self, case: Case, rank: int, order: list[int]) -> None:
        lanes = {lane: n for n, lane in enumerate(dict.fromkeys(case.tasks[k].lane for k in order))}
        earlier = local_predecessors(case, rank)
        count = [0] * len(lanes)
        self.lane = {k: lanes[case.tasks[k].lane] for k in order}
        self.index: dict[int, int] = {}
        for k in earlier:
            count[self.lane[k]] += 1
            self.index[k] = count[self.lane[k]]
        self.before: dict[int, Any] = {}
        for k in order:
            clock = np.zeros(len(lanes), dtype=np.int64)
            for other in earlier[k]:
                np.maximum(clock, self.before[other], out=clock)
                clock[self.lane[other]] = max(clock[self.lane[other]], self.index[other])
            self.before[k] = clock

    def precedes(self, a: int, b: int) -> bool:
        """Task a is finished whenever task b starts."""
        return bool(self.before[b][self.lane[a]] >= self.index[a])

    def ordered(self, a: int, b: int) -> bool:
        return self.precedes(a, b) or self.precedes(b, a)


Accesses = dict[str, list[tuple[int, bool]]]
"""Buffer -> (task, whether it writes), in an order of execution."""


def prove_no_races(case: Case, done: list[Event], clashes: dict[str, frozenset[str]], findings: Findings) -> None:
    """Finding RACE. Ranks with the same tasks on the same buffers are proved once; regions are asked in doubt only."""
    orders: list[list[int]] = [[] for _ in case.everyone]
    for k, where in done:
        for rank in case.participants(case.tasks[k]) if where is None else (where,):
            orders[rank].append(k)
    groups: dict[object, list[int]] = {}
    for rank, order in enumerate(orders):
        signature = tuple((k, tuple((t.buffer, t.write) for t in case.touches(k)[rank])) for k in order)
        groups.setdefault(signature, []).append(rank)
    for ranks in groups.values():
        order = orders[ranks[0]]
        clocks = Clocks(case, ranks[0], order)
        accesses: Accesses = {}
        for k in order:
            for touch in case.touches(k)[ranks[0]]:
                accesses.setdefault(touch.buffer, []).append((k, touch.write))
        _same_buffer(case, ranks, clocks, accesses, findings)
        _other_buffers(case, ranks, clocks, accesses, clashes, findings)


def _same_buffer(case: Case, ranks: list[int], clocks: Clocks, accesses: Accesses, findings: Findings) -> None:
    """Within a buffer, unordered tasks may touch different elements."""
    for buffer, touched in accesses.items():
        if not any(write for _, write in touched):
            continue
        writers = [k for k, write in dict.fromkeys(touched) if write]
        writing = {*writers}
        readers = list(dict.fromkeys(k for k, _ in touched if k not in writing))
        place = {k: n for n, k in enumerate(writers)}
        pairs = ((a, b) for a, b in _concurrent(case, clocks, writers, writers) if place[a] < place[b])
        for a, b in chain(pairs, _concurrent(case, clocks, readers, writers)):
            if findings.full(Code.RACE):
                return
            for rank, element in _common(case, ranks, buffer, a, b):
                _race(case, rank, buffer, buffer, a, b, element, findings)


def _concurrent(case: Case, clocks: Clocks, some: list[int], others: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of different tasks, one of some and one of others, that nothing orders; each list as executed.

    The tasks of a lane are in order, so those that precede a task are the first of them, and those that it precedes the
    last; what is left in between runs at the same time. Work grows with the pairs that are found, not with all.
    """
    lanes: dict[int, list[int]] = {}
    for b in others:
        lanes.setdefault(clocks.lane[b], []).append(b)
    for a in some:
        for lane, queue in lanes.items():
            start = bisect_right(queue, clocks.before[a][lane], key=clocks.index.__getitem__)
            # `a` comes before b where b's clock counts it; without an order between them neither counts the other.
            stop = bisect_left(queue, clocks.index[a], lo=start, key=lambda b: clocks.before[b][clocks.lane[a]])
            case.algebra.budget.spend(1 + PAIR * (stop - start), "tasks that nothing orders")
            yield from ((a, b) for b in queue[start:stop] if a != b)


def _common(case: Case, ranks: list[int], buffer: str, a: int, b: int) -> Iterator[tuple[int, tuple[int, ...] | None]]:
    """Ranks on which two tasks conflict within a buffer, with an element."""
    for rank in ranks:
        mine, theirs = (_of(case.touches(k)[rank], buffer) for k in (a, b))
        for x, y in product(mine, theirs):
            common = case.algebra.meet(x.region, y.region)
            if (x.write or y.write) and common != EMPTY:
                yield rank, case.algebra.witness(common)
                break


def _of(touches: tuple[Touch, ...], buffer: str) -> list[Touch]:
    return [touch for touch in touches if touch.buffer == buffer]


def _other_buffers(
    case: Case,
    ranks: list[int],
    clocks: Clocks,
    accesses: Accesses,
    clashes: dict[str, frozenset[str]],
    findings: Findings,
) -> None:
    """Buffers that share memory: all tasks of one precede all of the other, or each conflicting pair is ordered."""
    lanes = len(set(clocks.lane.values()))
    first = {name: np.min([clocks.before[k] for k, _ in touched], axis=0) for name, touched in accesses.items()}
    last = {name: _last(clocks, touched, lanes) for name, touched in accesses.items()}
    for name in accesses:
        others = [other for other in sorted(clashes[name] & accesses.keys()) if other > name]
        if not others:
            continue
        later = (np.array([first[other] for other in others]) >= last[name]).all(axis=1)
        sooner = (first[name] >= np.array([last[other] for other in others])).all(axis=1)
        for k in np.flatnonzero(~(later | sooner)):
            _interleaved(case, ranks, clocks, accesses, (name, others[k]), findings)


def _last(clocks: Clocks, touched: list[tuple[int, bool]], lanes: int) -> Any:
    clock = np.zeros(lanes, dtype=np.int64)
    for k, _ in touched:
        clock[clocks.lane[k]] = max(clock[clocks.lane[k]], clocks.index[k])
    return clock


def _interleaved(
    case: Case, ranks: list[int], clocks: Clocks, accesses: Accesses, names: tuple[str, str], findings: Findings
) -> None:
    (mine, my_writers), (theirs, their_writers) = (
        (list(dict.fromkeys(k for k, _ in accesses[name])), list(dict.fromkeys(k for k, w in accesses[name] if w)))
        for name in names
    )
    writing = {*their_writers}
    readers = [k for k in theirs if k not in writing]
    for a, b in chain(_concurrent(case, clocks, mine, their_writers), _concurrent(case, clocks, my_writers, readers)):
        if findings.full(Code.RACE):
            return
        _race(case, ranks[0], names[0], names[1], a, b, None, findings)


def _race(
    case: Case, rank: int, mine: str, theirs: str, a: int, b: int, element: tuple[int, ...] | None, findings: Findings
) -> None:
    if findings.full(Code.RACE):
        return
    a, b = min(a, b), max(a, b)
    where = f"buffer {mine}" if mine == theirs else f"buffers {mine} and {theirs}, which share memory"
    message = f"nothing orders it with task {case.tasks[a].id} on {where}"
    tensor = case.buffers[mine].tensor
    findings.add(Code.RACE, message, rank=rank, task=case.tasks[b].id, tensor=tensor, witness=element)
