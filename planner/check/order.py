"""Fourth proof: the plan cannot hang, and no two tasks that touch the same memory are left without an order.

The plan is a marked graph: lanes are queues, waits and meetings only ever hold tasks back. So one abstract run that
gets through proves that every run does. What is ordered on a rank is what lanes and waits order there; clocks hold,
per task and lane, how many tasks of that lane are finished before it starts. All of it is the same on the ranks of a
group (see `groups`), so that each question is asked once for a group.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import chain, product
from typing import Any

import numpy as np

from ..format.document import Transfer
from .case import Case
from .groups import Group, Groups
from .report import Code, Findings

PAIR = 20  # units of work to compare two tasks that nothing orders

Event = tuple[int, "int | None"]
"""A task (by position) on all ranks of a group (by number), or a transfer on all of its ranks at once (None)."""


def events(groups: Groups, findings: Findings) -> list[Event] | None:
    """All events in an order in which they can happen, or None and a DEADLOCK that names the tasks of a cycle."""
    case = groups.case
    before = _predecessors(groups)
    after: dict[Event, list[Event]] = {event: [] for event in before}
    for event, earlier in before.items():
        for other in earlier:
            after[other].append(event)
    left = {event: len(earlier) for event, earlier in before.items()}
    # Transfers go last: what does not wait for one that it needs is then shown without its data.
    ready: tuple[deque[Event], deque[Event]] = deque(), deque()
    for event, count in left.items():
        if not count:
            ready[event[1] is None].append(event)
    done: list[Event] = []
    while any(ready):
        event = (ready[0] or ready[1]).popleft()
        done.append(event)
        for other in after[event]:
            left[other] -= 1
            if not left[other]:
                ready[other[1] is None].append(other)
    if len(done) == len(before):
        happened = sum(1 if number is None else len(groups.all[number].ranks) for _, number in done)
        findings.facts.update(tasks=len(case.tasks), events=happened)
        return done
    cycle = _cycle(before, {event for event, count in left.items() if count})
    named = [(case.tasks[k].id, None if number is None else groups.all[number].ranks[0]) for k, number in cycle]
    text = " -> ".join(f"{task}" + ("" if rank is None else f"@{rank}") for task, rank in named)
    task, rank = named[0]
    findings.add(Code.DEADLOCK, f"each waits for the one before it: {text}", task=task, rank=rank)
    return None


def _event(case: Case, position: int, group: Group) -> Event:
    return (position, None) if isinstance(case.tasks[position], Transfer) else (position, group.number)


def _predecessors(groups: Groups) -> dict[Event, set[Event]]:
    """Every event with those it must wait for."""
    case = groups.case
    found: dict[Event, set[Event]] = {}
    for group in groups.all:
        for position, earlier in local_predecessors(case, group).items():
            mine = found.setdefault(_event(case, position, group), set())
            mine.update(_event(case, other, group) for other in earlier)
    return found


def local_predecessors(case: Case, group: Group) -> dict[int, list[int]]:
    """The tasks of a group, each with its predecessor on the lane and the tasks it waits for on the same rank."""
    position = {case.tasks[k].id: k for k in group.tasks}
    last: dict[str, int] = {}
    found: dict[int, list[int]] = {}
    for k in group.tasks:
        task = case.tasks[k]
        case.algebra.budget.spend(1 + len(task.waits), "tasks that wait for many others")
        found[k] = [last[task.lane]] if task.lane in last else []
        found[k] += [position[wait] for wait in task.waits if wait in position]
        last[task.lane] = k
    return found


def _cycle(before: dict[Event, set[Event]], stuck: set[Event]) -> list[Event]:
    """Walk back among stuck events until one comes again."""
    trail: dict[Event, None] = {}
    event = min(stuck, key=_first)
    while event not in trail:
        trail[event] = None
        event = min((e for e in before[event] if e in stuck), key=_first)
    walked = [*trail]
    return [event, *reversed(walked[walked.index(event) :])]


def _first(event: Event) -> tuple[int, int]:
    position, number = event
    return position, -1 if number is None else number


class Clocks:
    """What is ordered on the ranks of a group. ``before[k]`` counts, per lane, tasks finished when task k starts."""

    def __init__(self, case: Case, group: Group, order: list[int]) -> None:
        lanes = {lane: n for n, lane in enumerate(dict.fromkeys(case.tasks[k].lane for k in order))}
        earlier = local_predecessors(case, group)
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

Alike = tuple[Group, list[int]]
"""Ranks of a group, by their positions in it, on which the same tasks touch the same buffers."""


def prove_no_races(groups: Groups, done: list[Event], clashes: dict[str, frozenset[str]], findings: Findings) -> None:
    """Finding RACE. Ranks with the same tasks on the same buffers are proved once; regions are asked in doubt only."""
    case = groups.case
    orders: list[list[int]] = [[] for _ in groups.all]
    for k, where in done:
        for group in groups.of(k) if where is None else (groups.all[where],):
            orders[group.number].append(k)
    for group, order in zip(groups.all, orders, strict=True):
        clocks = Clocks(case, group, order)
        for members in _alike(groups, group):
            first = members[0]
            accesses: Accesses = {}
            for k in order:
                for touch in groups.touches(k, group):
                    if groups.columns.values(touch.regions)[first]:
                        accesses.setdefault(touch.buffer, []).append((k, touch.write))
            _same_buffer(groups, (group, members), clocks, accesses, findings)
            _other_buffers(case, group.ranks[first], clocks, accesses, clashes, findings)


def _alike(groups: Groups, group: Group) -> list[list[int]]:
    """The ranks of a group, by position in it, in classes on which each task touches something or nothing alike."""
    columns = groups.columns
    used = {touch.regions for k in group.tasks for touch in groups.touches(k, group)}
    somewhere = {tuple(columns.nonzero(column)) for column in used if 0 in columns.distinct(column)}
    kinds: list[tuple[int, ...]] = [()] * len(group.ranks)
    for number, members in enumerate(sorted(somewhere)):
        for k in members:
            kinds[k] += (number,)
    classes: dict[tuple[int, ...], list[int]] = {}
    for k, kind in enumerate(kinds):
        classes.setdefault(kind, []).append(k)
    return list(classes.values())


def _same_buffer(groups: Groups, alike: Alike, clocks: Clocks, accesses: Accesses, findings: Findings) -> None:
    """Within a buffer, unordered tasks may touch different elements."""
    for buffer, touched in accesses.items():
        if not any(write for _, write in touched):
            continue
        writers = [k for k, write in dict.fromkeys(touched) if write]
        writing = {*writers}
        readers = list(dict.fromkeys(k for k, _ in touched if k not in writing))
        place = {k: n for n, k in enumerate(writers)}
        case = groups.case
        pairs = ((a, b) for a, b in _concurrent(case, clocks, writers, writers) if place[a] < place[b])
        for a, b in chain(pairs, _concurrent(case, clocks, readers, writers)):
            if findings.full(Code.RACE):
                return
            for rank, element in _common(groups, alike, buffer, a, b):
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


def _common(groups: Groups, alike: Alike, buffer: str, a: int, b: int) -> Iterator[tuple[int, tuple[int, ...] | None]]:
    """Ranks on which two tasks conflict within a buffer, with an element."""
    (group, members), algebra, columns = alike, groups.case.algebra, groups.columns
    mine, theirs = ([t for t in groups.touches(k, group) if t.buffer == buffer] for k in (a, b))
    common: dict[int, int] = {}
    for x, y in product(mine, theirs):
        if x.write or y.write:
            met = columns.apply(algebra.meet, (x.regions, y.regions))
            found = {*columns.nonzero(met)}
            common |= {k: columns.values(met)[k] for k in members if k in found and k not in common}
    for k in sorted(common):
        yield group.ranks[k], algebra.witness(common[k])


def _other_buffers(
    case: Case,
    rank: int,
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
            _interleaved(case, rank, clocks, accesses, (name, others[k]), findings)


def _last(clocks: Clocks, touched: list[tuple[int, bool]], lanes: int) -> Any:
    clock = np.zeros(lanes, dtype=np.int64)
    for k, _ in touched:
        clock[clocks.lane[k]] = max(clock[clocks.lane[k]], clocks.index[k])
    return clock


def _interleaved(
    case: Case, rank: int, clocks: Clocks, accesses: Accesses, names: tuple[str, str], findings: Findings
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
        _race(case, rank, names[0], names[1], a, b, None, findings)


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
