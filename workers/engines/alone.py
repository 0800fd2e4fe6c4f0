"""Tasks measured one at a time: each is asked for again and again, as one graph where the device has them.

What a task takes so is what it takes in a step that is replayed: nothing is asked for one by one, and the clocks are
those of sustained load: before anything is measured the step runs for a while, as a chip that has rested computes the
faster. A task finds what those before it left; what it writes over its own operands piles up, which matters to values
alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import ceil
from statistics import median
from time import perf_counter

from ...planner.format import Compute, Resolved, Transfer
from ..device import Bound, Device, Runner, Within, in_order, kernels_of
from ..lanes import event_of
from ..rank import Rank
from ..result import Event, Step
from .replayed import Replayed

# Seconds that a task is kept busy for; of one graph of it; and the most times that it is in there.
BUSY_S, GRAPH_S, MOST = 100e-3, 2e-3, 64
WARM_S = 1.0  # seconds that a step is run before
LEAST_S = 1e-9


def measured_alone(device: Device, plan: Resolved, ranks: Sequence[Rank]) -> Step:
    """Every task of every rank, the ranks in turn; the events of a rank lie one behind the other, and a transfer comes
    when all of its ranks have come to it. Equal tasks are measured once.
    """
    known: dict[Hashable, float] = {}
    events: list[Event] = []
    clocks = dict.fromkeys(range(len(ranks)), 0.0)
    order = Replayed(plan, list(ranks))
    _warm(device, order.steps)
    inside: dict[int, list[Hashable]] = {}  # by rank: what is done within a task to come
    for bound in order.steps:
        what = _what(plan, ranks[bound.place.rank], bound)
        mine = inside.setdefault(bound.place.rank, [])
        key = (what, *mine)
        mine[:] = [*mine, what] if isinstance(bound.run, Within) else []
        if key not in known:
            with bound.place:
                known[key] = seconds_of(device, bound.run)
        task = bound.task
        members = plan.participants(task) if isinstance(task, Transfer) else (bound.place.rank,)
        start = max(clocks[number] for number in members)
        clocks |= dict.fromkeys(members, start + known[key])
        events.append(event_of(bound, start, start + known[key]))
    return Step(max(clocks.values()), order.of_all(events))


def seconds_of(device: Device, run: Runner) -> float:
    """Of one of many calls, each right behind the one before: the median of the later half of their graphs. What is
    done within another task takes no time of its own.
    """
    if isinstance(run, Within):
        return LEAST_S
    run()
    once = max(LEAST_S, _took(device, run))
    count = max(1, min(MOST, int(GRAPH_S / once)))
    again = device.repeated(in_order([run] * count))
    whole = max(LEAST_S, _took(device, again))
    times = [_took(device, again) for _ in range(max(2, ceil(BUSY_S / whole)))]
    return max(LEAST_S, median(times[len(times) // 2 :]) / count)


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
