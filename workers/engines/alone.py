"""Tasks measured one at a time: each is asked for again and again, as one graph where the device has them.

What a task takes so is what it takes in a step that is replayed: nothing is asked for one by one, and the clocks are
those of sustained load. A task finds what those before it left; what it writes over its own operands piles up, which
matters to values alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

from ...planner.format import Compute, Resolved, Task, Transfer
from ..device import Device, Runner, in_order
from ..faults import Place
from ..rank import Rank, place_of
from ..result import Event, Step, name_of
from .order import Ordered

# Seconds that a task is kept busy for; of one graph of it; and the most times that it is in there.
BUSY_S, GRAPH_S, MOST = 50e-3, 2e-3, 64
LEAST_S = 1e-9


def measured_alone(device: Device, plan: Resolved, ranks: Sequence[Rank]) -> Step:
    """Every task of every rank, the ranks in turn; events lie one behind the other. Equal tasks are measured once."""
    known: dict[Hashable, float] = {}
    events: list[Event] = []
    clock = 0.0
    for asked in _InOrder(plan, list(ranks)).asked:
        key = asked.what(plan)
        if key not in known:
            with asked.place:
                known[key] = seconds_of(device, asked.run)
        end = clock + known[key]
        task = asked.task
        members = plan.participants(task) if isinstance(task, Transfer) else (asked.rank.number,)
        events += [Event(number, task.lane, task.id, name_of(task), clock, end) for number in members]
        clock = end
    return Step(clock, events)


def seconds_of(device: Device, run: Runner) -> float:
    """Of one of many calls, each right behind the one before: the median of the later half of their graphs."""
    run()
    once = max(LEAST_S, _took(device, run))
    count = max(1, min(MOST, int(GRAPH_S / once)))
    again = device.repeated(in_order([run] * count))
    whole = max(LEAST_S, _took(device, again))
    times = [_took(device, again) for _ in range(max(2, ceil(BUSY_S / whole)))]
    return max(LEAST_S, median(times[len(times) // 2 :]) / count)


def _took(device: Device, run: Runner) -> float:
    start = device.mark()
    run()
    end = device.mark()
    device.synchronise()
    return end() - start()


@dataclass(frozen=True)
class _Asked:
    """A task of a rank, of the first of its ranks if it is a transfer, and what does it."""

    rank: Rank
    task: Task
    place: Place
    run: Runner

    def what(self, plan: Resolved) -> Hashable:
        """Equal for tasks that do the same to arrays that lie the same way."""
        task = self.task
        if not isinstance(task, Compute):
            return task.id, self.rank.number
        stored = [self.rank.memory[name] for name in (*task.reads, task.write)]
        lie = tuple(None if s is None else (s.grid, s.array.dtype.str) for s in stored)
        structure = plan.program.graph.structure(plan.program.op_by_name[task.op])
        return structure, plan.regions(task.shards)[self.rank.number], lie, task.over is not None


class _InOrder(Ordered):
    """Nothing runs while the order is found."""

    def __init__(self, plan: Resolved, ranks: list[Rank]) -> None:
        super().__init__(plan, ranks)
        self.asked: list[_Asked] = []
        self.run_all()

    def compute(self, number: int, task: Task) -> None:
        rank = self.ranks[number]
        self.asked.append(_Asked(rank, task, rank.bound[task.id].place, rank.bound[task.id].run))
        self.finish(number, task, self.device.mark())

    def carry(self, task: Transfer) -> None:
        first = self.resolved.participants(task)[0]
        place = place_of(self.resolved, task, first)
        self.asked.append(_Asked(self.ranks[first], task, place, self.carriers[task.id]))
