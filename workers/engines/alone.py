"""Tasks measured one at a time: each is asked for again and again, as one graph where the device has them.

What a task takes so is what it takes in a step that is replayed: nothing is asked for one by one, and the clocks are
those of sustained load. Before anything is measured, the step runs for a while, and between the graphs of a task memory
is streamed for a tenth of the time, as in the steps of models: a chip that is limited by its power computes the faster
the more it rests. A task finds what those before it left; what it writes over its own operands piles up, which matters
to values alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import ceil
from statistics import median
from time import perf_counter

import numpy as np

from ...planner.format import Compute, Resolved, Transfer
from ...space import Box, Region
from ..device import Bound, Device, Runner, Within, in_order, kernels_of
from ..lanes import event_of
from ..rank import Rank
from ..result import Event, Step
from .replayed import Replayed

# Seconds that a task is kept busy for; of one graph of it; and the most times that it is in there.
BUSY_S, GRAPH_S, MOST = 50e-3, 2e-3, 64
# Bytes of a copy that comes between graphs, and for how long such copies go on, in times of a graph.
STREAMED, STREAMS = 1 << 26, 1 / 9
WARM_S = 1.0  # seconds that a step is run before
LEAST_S = 1e-9
Rest = Callable[[float], None]
"""Keeps the memory of a device busy for so many seconds."""


def measured_alone(device: Device, plan: Resolved, ranks: Sequence[Rank]) -> Step:
    """Every task of every rank, the ranks in turn; the events of a rank lie one behind the other, and a transfer comes
    when all of its ranks have come to it. Equal tasks are measured once.
    """
    known: dict[Hashable, float] = {}
    events: list[Event] = []
    clocks = dict.fromkeys(range(len(ranks)), 0.0)
    order, rest = Replayed(plan, list(ranks)), streaming(device)
    _warm(device, order.steps)
    for bound in order.steps:
        key = _what(plan, ranks[bound.place.rank], bound)
        if key not in known:
            with bound.place:
                known[key] = seconds_of(device, bound.run, rest)
        task = bound.task
        members = plan.participants(task) if isinstance(task, Transfer) else (bound.place.rank,)
        start = max(clocks[number] for number in members)
        clocks |= dict.fromkeys(members, start + known[key])
        events.append(event_of(bound, start, start + known[key]))
    return Step(max(clocks.values()), order.of_all(events))


def seconds_of(device: Device, run: Runner, rest: Rest | None = None) -> float:
    """Of one of many calls, each right behind the one before: the median of the later half of their graphs, with
    ``rest`` between them. What is done within another task takes no time of its own.
    """
    if isinstance(run, Within):
        return LEAST_S
    run()
    once = max(LEAST_S, _took(device, run))
    count = max(1, min(MOST, int(GRAPH_S / once)))
    again = device.repeated(in_order([run] * count))
    whole = max(LEAST_S, _took(device, again))
    times = []
    for _ in range(max(2, ceil(BUSY_S / whole))):
        times.append(_took(device, again))
        if rest is not None:
            rest(whole * STREAMS)
    return max(LEAST_S, median(times[len(times) // 2 :]) / count)


def streaming(device: Device) -> Rest:
    """Copies within the memory in which a device computes."""
    grid = Box.of_shape((STREAMED,)).grid()
    source, target = (
        device.view(device.allocate(device.computes_in, STREAMED), 0, grid, np.dtype(np.uint8)) for _ in range(2)
    )
    copy = device.copy(source, target, Region.of(grid))
    copy()
    once = max(LEAST_S, _took(device, copy))

    def rest(seconds: float) -> None:
        for _ in range(round(seconds / once)):
            copy()

    return rest


def _warm(device: Device, steps: Sequence[Bound]) -> None:
    until = perf_counter() + WARM_S
    while perf_counter() < until:
        for bound in steps:
            with bound.place:
                bound.run()
        device.synchronise()


def _took(device: Device, run: Runner) -> float:
    start = device.mark()
    run()
    end = device.mark()
    device.synchronise()
    return end() - start()


def _what(plan: Resolved, rank: Rank, bound: Bound) -> Hashable:
    """Equal for tasks that do the same to arrays that lie the same way, by the same kernels."""
    task = bound.task
    if not isinstance(task, Compute):
        return task.id, rank.number
    prior = None if task.prior is None else rank.memory[task.prior]
    stored = [*(rank.memory[name] for name in (*task.reads, task.write)), prior]
    lie = tuple(None if s is None else (s.grid, s.array.dtype.str) for s in stored)
    structure = plan.program.graph.structure(plan.program.op_by_name[task.op])
    return structure, plan.regions(task.shards)[rank.number], lie, task.over is not None, kernels_of(bound.run)
