"""When steps run while memory holds none of them up, and how long places are kept so that it does not.

A slot that takes the place of another waits for all that was done with that one. In a run in which every slot has a
place of its own, nothing waits so: no run of these steps in this order is shorter. Where a slot takes a place only from
the step on from which all steps start later than the last use of the place has ended there, every such wait is over
before anything waits for it, and the run is as long as that one.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np

from ...program import Program
from ...records import width_of
from ..contention import streams_of
from ..replay import Replay, Turn, Vector, in_turn
from ..strategy.traffic import Move, Traffic
from .memory import Lifetime, spread
from .replacements import Pair
from .sides import size_of
from .steps import ComputeStep, MoveStep, Steps
from .waits import waits_of


@dataclass(frozen=True)
class Times:
    """Per step when the first of its ranks starts and the last one ends, and both for each class of ranks that run
    alike (never and at once where they have no part in it); seconds of all, and of the busiest rank's computing.
    """

    starts: list[float]
    ends: list[float]
    each: list[tuple[Vector, Vector]]
    seconds: float
    compute_s: float


def unhindered(steps: Steps, program: Program, traffic: Traffic) -> Times:
    """The run of steps of which every slot has a place of its own."""
    waits, overlap = waits_of(steps, spread(steps)), traffic.machine.device.overlap
    turns = [Turn(k, step.lane, waits[k], step.ranks, isinstance(step, MoveStep)) for k, step in enumerate(steps.steps)]
    turns = turns if overlap else in_turn(turns)
    order = [steps.steps[turn.id] for turn in turns]
    moves = {k: _move(step, program, traffic) for k, step in enumerate(order) if isinstance(step, MoveStep)}
    computed = {id(step.strategy): np.array(step.strategy.seconds) for step in order if isinstance(step, ComputeStep)}
    takes = [
        computed[id(step.strategy)] if isinstance(step, ComputeStep) else moves[k].seconds
        for k, step in enumerate(order)
    ]
    replay = Replay(turns, takes, streams_of(moves, traffic), size_of(steps), overlap=overlap)
    starts, ends, _ = replay.run({})
    return _times(replay, *replay.divided(starts, ends))


def _move(step: MoveStep, program: Program, traffic: Traffic) -> Move:
    return traffic.direct(step.have, step.need, width_of(program, step.tensor.name))


def _times(replay: Replay, starts: list[Any], ends: dict[int, Any]) -> Times:
    first, last = [0.0] * len(starts), [0.0] * len(starts)
    each: list[tuple[Vector, Vector]] = [(0.0, 0.0)] * len(starts)
    begun = [s if mine is None else np.where(mine, s, np.inf) for s, mine in zip(starts, replay.members, strict=True)]
    ended = [ends[turn.id] for turn in replay.turns]
    soonest = np.min(begun, axis=1).tolist() if begun else []
    latest = np.max(ended, axis=1).tolist() if ended else []
    busy = np.zeros(len(replay.classes))
    for turn, start, mine, end, one, other in zip(replay.turns, starts, begun, ended, soonest, latest, strict=True):
        first[turn.id], last[turn.id], each[turn.id] = one, other, (mine, end)
        if not turn.meets:
            busy += end - start
    return Times(first, last, each, max(last, default=0.0), float(busy.max()))


class Unhindered:
    """Places are kept until nothing that comes later starts before their last use has ended."""

    def __init__(self, steps: Steps, times: Times) -> None:
        self.times = times
        self.from_there = list(accumulate(reversed(times.starts), min))[::-1]  # the first start of a step and all later
        self.ends: dict[int, float] = {}  # by slot identity when its last use has ended
        self.uses: dict[int, list[int]] = {}  # and the steps that use it
        for position, step in enumerate(steps.steps):
            for slot, _, _ in step.touched:
                self.ends[id(slot)] = max(self.ends.get(id(slot), 0.0), times.ends[position])
                self.uses.setdefault(id(slot), []).append(position)

    def until(self, life: Lifetime, *, replaced: bool) -> int:
        if replaced or id(life.slot) not in self.ends:
            return life.last
        return max(life.last, bisect_left(self.from_there, self.ends[id(life.slot)]) - 1)

    def settled(self, pair: Pair) -> bool:
        """Whether on every rank all that was done with a place is over where the result that takes it begins."""
        before = [self.times.each[use][1] for use in self.uses[id(pair.over)] if use != pair.at]
        return not before or bool((reduce(np.maximum, before) <= self.times.each[pair.at][0]).all())
