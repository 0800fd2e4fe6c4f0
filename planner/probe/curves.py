"""From what tasks took to curves: the start of a task, copies, kernel classes, operations, transfers by kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from ...blocks import BLOCKS
from ...program import Block, Operation
from ...space.projection import count_points, operand_images, write_image
from ..format import Compute, Transfer
from ..interface import Plan
from ..machine import READ, Curve, OperationCurve, Pace, Points, Timing, WorkCurve, monotone
from ..machine.shapes import SHAPED
from ..simulate import Prices
from ..strategy.calls import kernels_of
from ..strategy.cost import compute_dtype, flops_per_point, kernel_class, places_per_point, task_shape, window_places
from .shapes import Shape, below_all, lower_envelope, table_of
from .sizes import Grid, TableName
from .times import TaskTimes

EXPLAINED = 1.3  # times of copying its bytes: a task that takes more has more to do
LEAST_S = 1e-9  # what is no quicker than a start still takes some time
Sample = tuple[float, float]
NO_GRIDS: Mapping[TableName, Grid] = {}


class Shard(NamedTuple):
    """What one task did: index points, bytes of all it read and wrote, the seconds it took, gap included, and for
    products and attention its shape."""

    rank: int
    op: Operation
    points: int
    nbytes: int
    seconds: float
    shape: Shape | None


def shards(plan: Plan, times: TaskTimes) -> Iterator[Shard]:
    """All compute tasks of a plan that had something to do."""
    program = plan.program
    for task in plan.document.tasks:
        if not isinstance(task, Compute):
            continue
        op = program.op_by_name[task.op]
        shapes = {name: program.tensor(name).shape for name in op.operands}
        for rank, region in enumerate(plan.resolved.regions(task.shards)):
            if region and (task.id, rank) in times.tasks:
                written, points = write_image(op, region).region.size, count_points(op, region).value
                moved, read = written * program.tensor(op.output).itemsize, dict[str, int]()
                for name, image in operand_images(op, shapes, region).items():
                    moved += image.region.size * program.tensor(name).itemsize
                    read[name] = image.region.size
                shape = _shape(op, points, read, written) if kernel_class(op) in SHAPED else None
                yield Shard(rank, op, points, moved, times.tasks[task.id, rank] + times.gap, shape)


def _shape(op: Operation, points: int, read: Mapping[str, int], written: int) -> Shape | None:
    found = task_shape(op, points, read, written)
    if found is None:
        return None
    rows, columns, folded = map(round, found)
    return rows, columns, folded


def pace_of(plan: Plan, times: TaskTimes, grids: Mapping[TableName, Grid] = NO_GRIDS) -> Pace:
    """The pace of so many ranks as the plan has: one task's start is what the quickest of all takes.

    A task that takes about as long as copying its bytes says nothing of arithmetic: it counts for its class where the
    class has no other. A class that has a table of shapes has the curve that no shape goes below.
    """
    done = list(shards(plan, times))
    start = min(shard.seconds for shard in done)
    copied, classes = list[Sample](), dict[tuple[str, str], list[tuple[Sample, int]]]()
    shaped: dict[TableName, dict[Shape, float]] = {}
    for _, op, points, nbytes, seconds, shape in done:
        beyond, flops = max(LEAST_S, seconds - start), flops_per_point(op)
        kernel, dtype = kernel_class(op), compute_dtype(op, plan.program)
        places = places_per_point(op)
        if places:
            classes.setdefault((READ, dtype), []).append(((float(points * places), beyond), nbytes))
        elif kernel == "elementwise" and flops == 1:
            copied.append((nbytes, beyond))
        else:
            classes.setdefault((kernel, dtype), []).append(((float(points * flops), beyond), nbytes))
            if shape is not None:
                shaped.setdefault((kernel, dtype, window_places(op)), {})[shape] = beyond
    copies = monotone(copied)
    tables = [table_of(key[0], key[1], grid, shaped.get(key, {})) for key, grid in sorted(grids.items())]
    shapes = tuple(table for table in tables if table is not None)
    known = {(table.kernel, table.dtype) for table in shapes}
    curves = tuple(
        WorkCurve(*key, lower_envelope([s for s, _ in found]) if key in known else monotone(_telling(found, copies)))
        for key, found in sorted(classes.items())
    )
    return Pace(len(plan.document.devices), start, copies, curves, shapes=shapes)


def with_attention(pace: Pace, plan: Plan, times: TaskTimes, kernel: tuple[str, str], grid: Grid) -> Pace:
    """The pace with a table of attention, from what each and the division after it took together, as a device may do
    them in one: the division is priced by its bytes wherever it is, and the rest is attention's."""
    done = list(shards(plan, times))
    found: dict[Shape, float] = {}
    samples = [point for curve in pace.curves if (curve.kernel, curve.dtype) == kernel for point in curve.points]
    for state in done:
        if state.shape is not None:
            (after,) = (each for each in done if state.op.output in each.op.operands)
            divided = pace.start_s + Timing(pace.copy).seconds(after.nbytes)
            beyond = max(LEAST_S, state.seconds + after.seconds - divided - pace.start_s)
            found[state.shape] = beyond
            samples.append((float(state.points * flops_per_point(state.op)), beyond))
    table = table_of(*kernel, grid, found)
    if table is None:
        return pace
    curve = WorkCurve(*kernel, below_all(samples))
    others = [curve for curve in pace.curves if (curve.kernel, curve.dtype) != kernel]
    curves = sorted([*others, curve], key=lambda each: (each.kernel, each.dtype))
    return replace(pace, curves=tuple(curves), shapes=(table, *pace.shapes))


def with_slopes(pace: Pace, plan: Plan, times: TaskTimes, kernel: tuple[str, str], grid: Grid | None) -> Pace:
    """The pace with a table of the slopes of attention, from what those of queries took by themselves: their share of
    the call that makes those of keys and values, too."""
    found: dict[Shape, float] = {}
    samples: list[Sample] = []
    for shard in shards(plan, times):
        if shard.shape is not None and kernel_class(shard.op) == kernel[0]:
            part = max(LEAST_S, shard.seconds - pace.start_s) / kernels_of(_call(shard.op))
            found[shard.shape] = part
            samples.append((float(shard.points * flops_per_point(shard.op)), part))
    table = table_of(*kernel, grid, found) if grid is not None else None
    if table is None:
        return pace
    curves = sorted([*pace.curves, WorkCurve(*kernel, below_all(samples))], key=lambda each: (each.kernel, each.dtype))
    return replace(pace, curves=tuple(curves), shapes=(*pace.shapes, table))


def _call(op: Operation) -> str:
    return (BLOCKS[op.body.kernel].call if isinstance(op.body, Block) else None) or ""


def _telling(found: Sequence[tuple[Sample, int]], copies: Points) -> list[Sample]:
    """Those that take longer than copying their bytes explains, or all where none does."""
    copying = Timing(copies)
    telling = [sample for sample, nbytes in found if sample[1] > EXPLAINED * copying.seconds(nbytes)]
    return telling or [sample for sample, _ in found]


def operation_curves(plan: Plan, times: TaskTimes, start_s: float) -> list[OperationCurve]:
    """What the operations of a program took, by their digest.

    Of one that is done within another, here or there, the points say all that it takes: it has no start of its own.
    """
    found: dict[str, list[Sample]] = {}
    for shard in shards(plan, times):
        found.setdefault(plan.program.graph.digest(shard.op), []).append((shard.points, shard.seconds))
    curves = []
    for digest, samples in found.items():
        within = any(seconds - times.gap < 2 * LEAST_S for _, seconds in samples)
        own = 0.0 if within else start_s
        points = monotone([(points, max(LEAST_S, seconds - own)) for points, seconds in samples])
        curves.append(OperationCurve(digest, points, own if within else None))
    return curves


def with_operations(pace: Pace, measured: Sequence[OperationCurve]) -> tuple[OperationCurve, ...]:
    """A pace's curves of operations; what was measured anew stands in place of what was known at the same size, and of
    all that was known where it starts otherwise.
    """
    curves = {own.operation: own for own in pace.operations}
    for own in measured:
        known = curves.get(own.operation)
        alike = known is not None and known.start_s == own.start_s
        points = renewed(dict(known.points) if known is not None and alike else {}, own.points)
        curves[own.operation] = replace(own, points=points)
    return tuple(own for _, own in sorted(curves.items()))


def renewed(known: Mapping[float, float], samples: Sequence[Sample]) -> Points:
    """A curve with points measured anew: these count, and what was known of other sizes gives way to them.

    >>> renewed({1: 5.0, 2: 6.0, 8: 7.0}, [(2, 4.0), (4, 9.0), (4, 11.0)])
    ((1, 4.0), (2, 4.0), (4, 10.0), (8, 10.0))
    """
    anew = monotone(samples)
    points = dict(anew)
    for size, seconds in known.items():
        if size not in points:
            below = max((took for other, took in anew if other < size), default=0.0)
            above = min((took for other, took in anew if other > size), default=inf)
            points[size] = min(max(seconds, below), above)
    return monotone(points.items())


def transfer_samples(plan: Plan, times: TaskTimes) -> dict[str, list[Sample]]:
    """By kind: bytes that the busiest rank received, and seconds."""
    prices, found = Prices(plan.resolved), dict[str, list[Sample]]()
    for task in plan.document.tasks:
        if isinstance(task, Transfer):
            move = prices.move(task)
            if move.busiest:
                seconds = max(LEAST_S, times.transfers[task.id] + times.gap)
                found.setdefault(move.kind, []).append((move.busiest, seconds))
    return found


def transfer_curves(measured: Mapping[str, Sequence[Sample]], ranks: int) -> tuple[Curve, ...]:
    """A curve for each kind that was measured at two sizes or more."""
    found = {kind: monotone(samples) for kind, samples in sorted(measured.items())}
    return tuple(Curve(kind, ranks, _rates(points)) for kind, points in found.items() if len(points) > 1)


def _rates(points: Points) -> tuple[tuple[int, float], ...]:
    """As rates of which the times rise: equal ones by so little that is more than what a written file rounds."""
    return tuple((int(size), size / (seconds * (1 + 2e-5 * k)) / 1e9) for k, (size, seconds) in enumerate(points))
