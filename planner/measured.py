"""What tasks took, by the events of a run, beside what was predicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from .format.events import Event


class Step(Protocol):
    """One time through all tasks of a plan."""

    @property
    def wall_s(self) -> float: ...

    @property
    def events(self) -> Sequence[Event]: ...


@dataclass(frozen=True)
class Beside:
    """A task on a rank; seconds from its start to its end, measured: the median of all steps. None: not in there.

    ``kernel``: what computed it, as far as the device says; a task ``within`` another one is done by that one's kernel.
    """

    rank: int
    lane: str
    task: int
    name: str
    predicted_s: float | None
    measured_s: float | None
    kernel: str = ""


def beside(predicted: Iterable[Event], steps: Sequence[Step]) -> list[Beside]:
    """Tasks by rank and lane in the order in which they were run."""
    foreseen = {(event.rank, event.task): event for event in predicted}
    spans: dict[tuple[int, int], list[float]] = {}
    known: dict[tuple[int, int], Event] = {}
    for step in steps:
        for event in step.events:
            spans.setdefault((event.rank, event.task), []).append(event.end_s - event.start_s)
            known.setdefault((event.rank, event.task), event)
    events: Mapping[tuple[int, int], Event] = {**foreseen, **known}
    found = [
        Beside(
            rank, event.lane, task, event.name,
            foreseen[rank, task].end_s - foreseen[rank, task].start_s if (rank, task) in foreseen else None,
            median(spans[rank, task]) if (rank, task) in spans else None,
            event.kernel,
        )
        for (rank, task), event in events.items()
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.rank, one.lane, events[one.rank, one.task].start_s))


def walls(steps: Sequence[Step]) -> dict[str, float | int]:
    """How long steps took: their number, median, shortest and longest."""
    seconds = [step.wall_s for step in steps]
    return {"steps": len(seconds), "median_s": median(seconds), "min_s": min(seconds), "max_s": max(seconds)}
