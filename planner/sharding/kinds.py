"""The kinds of devices of some ranks, and what work takes on each of them at least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt
from typing import NamedTuple

from ...program import Operation, Program
from ..machine import Machine, Timing
from ..strategy.cost import compute_dtype, flops_per_point, kernel_class, start_seconds

NOTHING = 1e-12  # seconds, of an operation without points


@dataclass(frozen=True)
class Kind:
    """Ranks on devices that are alike. ``share``: what a second of one of them counts in the load; over all ranks the
    shares add up to 1."""

    machine: Machine
    ranks: int
    share: float = 0.0

    def start(self, op: Operation, program: Program) -> float:
        return start_seconds(op, program, self.machine, self.ranks)


class _Stretch(NamedTuple):
    """The parts from ``before`` to ``end`` of an operation: ``took``, seconds of the last one, and with the start
    ``flat`` + ``slope`` p of each part p.
    """

    before: float
    end: float
    took: float
    slope: float
    flat: float


@dataclass(frozen=True)
class Pace:
    """On one kind of device: seconds over so much of an operation, arithmetic or bytes, all of it ``size``."""

    share: float
    start: float
    timing: Timing
    size: float

    def least(self, weight: float, load: float) -> float:
        """Over all parts p in (0, 1] the least of (weight p + load) (start + seconds(p size)) / p."""
        first = self._stretches[0]
        found = [] if self.start else [load * (first.took / first.end)]
        for before, end, took, slope, flat in self._stretches:
            if slope > 0 and weight > 0 and flat > 0:
                least = sqrt(load * flat / (weight * slope))
                if before < least < end:
                    found.append((weight * least + load) * (flat + slope * least) / least)
            found.append((weight * end + load) * (self.start + took) / end)
        return min(found)

    @cached_property
    def _stretches(self) -> list[_Stretch]:
        """The parts between those that were measured, one stretch after another."""
        found, before, took = list[_Stretch](), 0.0, 0.0
        for end in [*(x / self.size for x, _ in self.timing.points if x < self.size), 1.0]:
            now = self.timing.seconds(end * self.size)
            slope = (now - took) / (end - before)
            found.append(_Stretch(before, end, now, slope, self.start + took - slope * before))
            before, took = end, now
        return found


def kinds_of(program: Program, machine: Machine, ranks: int) -> list[Kind]:
    """The kinds of devices of the first ranks, their shares in proportion to how fast they do all of the program."""
    devices = [machine.device_of(number) for number in range(ranks)] if machine.others else [machine.device] * ranks
    kinds = [Kind(machine.of_one_kind(device), ranks) for device in dict.fromkeys(devices)]
    if len(kinds) == 1:
        return [Kind(kinds[0].machine, ranks, 1 / ranks)]
    speeds = [1 / sum(_alone(op, program, kind) for op in program.operations) for kind in kinds]
    together = sum(speeds[[kind.machine.device for kind in kinds].index(device)] for device in devices)
    return [Kind(kind.machine, ranks, speed / together) for kind, speed in zip(kinds, speeds, strict=True)]


def _alone(op: Operation, program: Program, kind: Kind) -> float:
    """What the points of an operation take on a device at its best rate, and above 0: only proportions hang on it."""
    points = -(-prod(dim.extent for dim in op.dims) // op.idle) * op.idle
    return sum(pace.size * pace.timing.least for pace in paces_of(op, program, [kind], points, 0)[0]) + NOTHING


def paces_of(
    op: Operation, program: Program, kinds: Sequence[Kind], points: int, nbytes: int
) -> tuple[tuple[Pace, ...], tuple[Pace, ...]]:
    """By kind of device: what the arithmetic of so many points takes, or what was measured of the operation, and what
    so many bytes do; empty where there is none of it."""
    arithmetic, moved = [], []
    operations = points // op.idle * flops_per_point(op)
    for kind in kinds:
        device = kind.machine.device
        measured = device.operation(program.graph.digest(op), kind.ranks) if device.paces else None
        work = measured or device.work(kernel_class(op), compute_dtype(op, program), kind.ranks)
        start, moving = kind.start(op, program), device.copying(kind.ranks)
        arithmetic.append(Pace(kind.share, start, work, float(points if measured else operations)))
        moved.append(Pace(kind.share, start, moving, 0.0 if measured else float(nbytes)))
    some = [tuple(paces) if all(pace.size for pace in paces) else () for paces in (arithmetic, moved)]
    return some[0], some[1]
