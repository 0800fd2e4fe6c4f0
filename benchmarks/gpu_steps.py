"""Steps of contenders, timed alike: each one's follow one another without a pause, and the contenders take turns.

A chip that rests between two steps runs quicker than one at work, and one that has just begun to work quicker than one
that is warm. So nobody waits between steps, the first turn of each contender is not counted, nor is the first quarter
of the others. Turns of one without others are longer: nobody kept the chip at work before them (after 0.4 seconds the
same step was seen to take 30 and 35 ms on two H200).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from statistics import median
from typing import Any, Protocol

TURNS, TURN_S, ALONE_S, LEAST, MOST = 3, 0.4, 1.2, 8, 2000

Moment = Callable[[], float]


class Contender(Protocol):
    """Who can be asked for steps. Moments are of one clock from one `begin` to the next."""

    def begin(self) -> None:
        """All that was asked for is done; a clock begins."""

    def step(self) -> None:
        """Ask for a step."""

    def mark(self) -> Moment:
        """The moment, in seconds, at which what was asked for so far is done: known after `wait`."""

    def wait(self) -> None:
        """Until all that was asked for is done."""


def seconds(
    contenders: Mapping[str, Contender], agreed: Callable[[float], float] = float, turns: int = TURNS
) -> dict[str, float]:
    """The median step of each. ``agreed``: one number of those of all ranks, which run as many steps."""
    turn_s = TURN_S if len(contenders) > 1 else ALONE_S
    counts = {name: _count(contender, agreed, turn_s) for name, contender in contenders.items()}
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns):
        for name, contender in contenders.items():
            times = in_a_row(contender, counts[name])
            found[name] += times[len(times) // 4 :] if turn else []
    return {name: agreed(median(times)) for name, times in found.items()}


def in_a_row(contender: Contender, count: int) -> list[float]:
    """Seconds of so many steps, each asked for while the ones before run."""
    contender.begin()
    marks = [contender.mark()]
    for _ in range(count):
        contender.step()
        marks.append(contender.mark())
    contender.wait()
    return [after() - before() for before, after in pairwise(marks)]


def _count(contender: Contender, agreed: Callable[[float], float], turn_s: float) -> int:
    """Steps of a turn, after some that make ready what is made ready at the first."""
    in_a_row(contender, 3)
    once = agreed(median(in_a_row(contender, 3)))
    return min(MOST, max(LEAST, int(turn_s / once)))


class OfTorch:
    """Steps on torch's current stream."""

    def __init__(self, step: Callable[[], Any]) -> None:
        self._step = step
        self._origin: Any = None

    def begin(self) -> None:
        import torch

        torch.cuda.synchronize()
        self._origin = torch.cuda.Event(enable_timing=True)
        self._origin.record()

    def step(self) -> None:
        self._step()

    def mark(self) -> Moment:
        import torch

        origin, found = self._origin, torch.cuda.Event(enable_timing=True)
        found.record()
        return lambda: float(origin.elapsed_time(found)) / 1e3

    def wait(self) -> None:
        import torch

        torch.cuda.synchronize()


def graphed(step: Callable[[], Any]) -> Callable[[], Any]:
    """The same as one CUDA graph."""
    import torch

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    stream.synchronize()
    with torch.cuda.graph(graph):
        made = step()

    def replay() -> Any:
        graph.replay()
        return made

    return replay
