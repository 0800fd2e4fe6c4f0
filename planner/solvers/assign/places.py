"""The instants that matter of all resources on one axis, and what every choice holds there; supplies included.

A place is an instant of one resource. Rows that hold the same amounts in several intervals are one row: tied copies of
a tensor differ in nothing but when they are alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from .problem import AssignmentProblem, Ints
from .supply import supplied


@dataclass(frozen=True, eq=False)
class Row:
    """`amounts` per strategy of a node, or [strategy of the source, item] of a supply, over the places [begin, end)."""

    node: int  # the node, or the source of the supply
    supply: int  # -1: of the node itself
    amounts: Ints
    begin: Ints
    end: Ints


@dataclass(frozen=True, eq=False)
class Places:
    """`resource[p]`, `instant[p]`, `limit[p]` of every place, and the rows over them."""

    problem: AssignmentProblem
    resource: Ints
    instant: Ints
    limit: Ints
    rows: tuple[Row, ...]

    def __len__(self) -> int:
        return len(self.resource)

    @cached_property
    def limited(self) -> list[int]:
        """The resources whose limit could be exceeded, or whose peak has a price."""
        return sorted({int(r) for r in self.resource})

    def profile(self, choice: Sequence[int]) -> Ints:
        """What is in use at every place."""
        brought = [supplied(s, asked_of(s.readers, s.asks, choice)) for s in self.problem.supplies]
        change = np.zeros(len(self) + 1, dtype=np.int64)
        for row in self.rows:
            of_source = row.amounts[choice[row.node]]
            held = int(of_source) if row.supply < 0 else int(of_source[brought[row.supply]].sum())
            np.add.at(change, row.begin, held)
            np.add.at(change, row.end, -held)
        return np.cumsum(change)[:-1]

    def peaks(self, profile: Ints) -> dict[int, int]:
        """Per resource its largest load."""
        return {r: int(profile[self.resource == r].max(initial=0)) for r in self.limited}

    def fits(self, profile: Ints) -> bool:
        return bool((profile <= self.limit).all())

    def worst(self, profile: Ints) -> list[int]:
        """The place of each resource that is furthest above its limit; of a priced resource the peak."""
        found = []
        for r in self.limited:
            mine = np.flatnonzero(self.resource == r)
            top = int(mine[profile[mine].argmax()])
            if self.problem.price(r) or profile[top] > self.limit[top]:
                found.append(top)
        return found

    def rates(self, multipliers: Mapping[int, int]) -> list[int]:
        """Per row the sum of the multipliers over all places where it holds something."""
        until = [0] * (len(self) + 1)
        for place, multiplier in multipliers.items():
            until[place + 1] = multiplier
        sums = np.array(list(accumulate(until)), dtype=object)
        return [int((sums[row.end] - sums[row.begin]).sum()) for row in self.rows]


def asked_of(readers: Sequence[int], asks: Sequence[Ints], choice: Sequence[int]) -> list[int]:
    """What each reader asks for under a choice."""
    return [int(wanted[choice[v]]) for v, wanted in zip(readers, asks, strict=True)]


def places_of(problem: AssignmentProblem) -> Places:
    """The places at which a limit could be exceeded, or a priced peak be reached."""
    spans: dict[tuple[int, int, int, bytes], list[tuple[int, int]]] = {}
    amounts: dict[tuple[int, int, int, bytes], Ints] = {}
    for where, held, interval in _uses(problem):
        key = (*where, held.tobytes())
        amounts[key] = held
        spans.setdefault(key, []).append(interval)
    resources, instants, rows = [], [], []
    offset = 0
    for r in range(len(problem.limits)):
        mine = {key: of for key, of in spans.items() if key[0] == r and amounts[key].any()}
        if not mine or not _matters(problem, r, mine, amounts):
            continue
        axis, number = _axis(list(mine.values()))
        for key, intervals in mine.items():
            pairs = np.array([(number[a], number[b]) for a, b in intervals], dtype=np.int64)
            pairs = pairs[pairs[:, 0] < pairs[:, 1]] + offset
            if len(pairs):
                rows.append(Row(key[1], key[2], amounts[key], pairs[:, 0].copy(), pairs[:, 1].copy()))
        resources += [r] * len(axis)
        instants += axis
        offset += len(axis)
    of = np.array(resources, dtype=np.int64)
    return Places(problem, of, np.array(instants, dtype=np.int64), problem.limits[of], tuple(rows))


def _uses(problem: AssignmentProblem) -> list[tuple[tuple[int, int, int], Ints, tuple[int, int]]]:
    """((resource, node, supply), amounts, interval) of everything that lasts."""
    usages = problem.usages
    columns = (usages.node.tolist(), usages.resource.tolist(), usages.start.tolist(), usages.stop.tolist())
    found = [((r, v, -1), usages.amounts[q], (a, b)) for q, (v, r, a, b) in enumerate(zip(*columns, strict=True))]
    for k, supply in enumerate(problem.supplies):
        for use in supply.uses:
            found += [((use.resource, supply.source, k), use.amounts, interval) for interval in use.intervals]
    return [entry for entry in found if entry[2][0] < entry[2][1]]


def _matters(
    problem: AssignmentProblem,
    r: int,
    spans: Mapping[tuple[int, int, int, bytes], list[tuple[int, int]]],
    amounts: Mapping[tuple[int, int, int, bytes], Ints],
) -> bool:
    """Whether all that can be held could exceed the limit, or its peak has a price."""
    if problem.price(r):
        return True
    most = 0
    for key, intervals in spans.items():
        k = key[2]
        several = 1 if k < 0 else min(len(problem.supplies[k].readers), problem.supplies[k].item_count)
        most += several * len(intervals) * int(amounts[key].max())
    return most > int(problem.limits[r])


def _axis(spans: Sequence[list[tuple[int, int]]]) -> tuple[list[int], dict[int, int]]:
    """The instants at which a load can be the largest, and per end of an interval the number of the next such one.

    A load only rises where something starts, and is implied by the next one unless something stops between them.
    """
    starts = {a for intervals in spans for a, _ in intervals}
    stops = {b for intervals in spans for _, b in intervals}
    axis, number = [], {}
    events = sorted(starts | stops)
    started: int | None = None
    for at in events:
        if at in stops and started is not None:
            axis.append(started)
            started = None
        number[at] = len(axis)
        if at in starts:
            started = at
    return axis, number
