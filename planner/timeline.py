"""A simulated run: when every task starts and ends, once for all ranks on which that is the same."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .format.events import Event


class Run(NamedTuple):
    """One task of the list. Seconds from the start of the run, per class of ranks; both 0 where it does not run."""

    task: int
    lane: str
    name: str
    starts: array[float]
    ends: array[float]


@dataclass(frozen=True)
class Timeline:
    """The simulated run. ``compute_s``: work of the busiest rank; ``exposed_transfer_s``: the rest of the makespan.

    classes    ranks on which every task starts and ends at the same times, in order of their first ranks
    runs       the tasks in the order in which they were gone through, mostly that of the list
    """

    classes: tuple[tuple[int, ...], ...]
    runs: tuple[Run, ...]
    makespan_s: float
    compute_s: float

    @property
    def exposed_transfer_s(self) -> float:
        return max(0.0, self.makespan_s - self.compute_s)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Every task on every rank that it takes time on, written out: ranks times tasks of them."""
        return tuple(self.at(rank for ranks in self.classes for rank in ranks))

    @property
    def event_count(self) -> int:
        """How many events there are."""
        sizes = [len(ranks) for ranks in self.classes]
        return sum(
            size
            for run in self.runs
            for size, start, end in zip(sizes, run.starts, run.ends, strict=True)
            if end > start
        )

    def at(self, ranks: Iterable[int]) -> Iterator[Event]:
        """The events of some ranks, in the order of the list, those of one task by rank."""
        wanted = set(ranks)
        where = sorted((rank, k) for k, alike in enumerate(self.classes) for rank in wanted.intersection(alike))
        return (
            Event(rank, run.lane, run.task, run.name, run.starts[k], run.ends[k])
            for run in self.runs
            for rank, k in where
            if run.ends[k] > run.starts[k]
        )
