"""A lower bound on the makespan of every plan that the format can say; docs/planner.md has the proof.

Whatever the shards, the ranks that take part and the order: all tasks of an operation together evaluate each of its
points at least once and touch each element it reads and writes at least once. Split into few tasks, these are long, and
what depends on them waits; split into many, there are as many starts. So two sums are weighed against one another: the
work of all ranks, and a chain of tasks that each need the one before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt

from ...expr import Affine, Bound
from ...program import Operation, Program
from ...space import Grid, IntSet, Region
from ...space.projection import count_points, operand_images, write_image
from ..machine import Machine
from ..strategy.cost import compute_dtype, flops_per_point, kernel_class

HALVINGS = 40  # of the interval of weights that holds the best one


@dataclass(frozen=True)
class Certificate:
    """No plan takes less than ``seconds``. ``chain``: the weight of the chain in the sum that proves it, in [0, 1)."""

    seconds: float
    chain: float


@dataclass(frozen=True)
class _Work:
    """Of one operation: ``whole``, seconds of all its tasks, starts left out; ``even``, what a share of its points
    takes at least that share of. ``starts``: of tasks that must come before any of it. ``before``: operations whose
    tasks, at places spread evenly over what they write, come before tasks at places spread so over ``written``."""

    whole: float
    even: float
    starts: int
    before: tuple[int, ...]
    written: tuple[int, ...] | None


def lower_bound(program: Program, machine: Machine, ranks: int) -> Certificate:
    """No plan of the program on so many devices of the machine is simulated to take less."""
    start = machine.device.start_s(ranks)
    works = _works(program, machine, ranks)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):  # the bound is concave in the weight
        one, other = low + (high - low) / 3, high - (high - low) / 3
        if _weighed(works, start, ranks, one) < _weighed(works, start, ranks, other):
            low = one
        else:
            high = other
    best = max((0.0, (low + high) / 2), key=lambda weight: _weighed(works, start, ranks, weight))
    # Sums of floats are rounded, in a simulation too.
    return Certificate(_weighed(works, start, ranks, best) * (1 - 1e-9), best)


def _weighed(works: Sequence[_Work], start: float, ranks: int, weight: float) -> float:
    """The bound with a weight of the chain."""
    load = sum(work.whole + start for work in works if work.whole) / ranks
    chains: list[float] = []
    for work in works:
        before = max((chains[k] for k in work.before), default=0.0)
        before = max(before, weight * start * work.starts)
        chains.append(before + _link(work, start, ranks, weight) if work.whole else 0.0)
    return (1 - weight) * load + max(chains, default=0.0)


def _link(work: _Work, start: float, ranks: int, weight: float) -> float:
    """What an operation adds by being in the chain: the number of its tasks is the one that makes this least."""
    tasks = 1.0
    if start and 0 < weight < 1:
        tasks = max(1.0, sqrt(weight * work.even * ranks / ((1 - weight) * start)))
    even = work.even if start else 0.0
    return weight * (even / tasks + start) + (1 - weight) * (tasks - 1) * start / ranks


def _works(program: Program, machine: Machine, ranks: int) -> list[_Work]:
    known: dict[str, tuple[float, float]] = {}
    found: list[_Work] = []
    place = {op.output: k for k, op in enumerate(program.operations)}
    for op in program.operations:
        key = program.graph.structure(op)
        if key not in known:
            known[key] = _least_work(op, program, machine, ranks), _even_work(op, program, machine, ranks)
        extents = _inside(op)
        made = [(place[r.tensor], r) for r in op.reads if r.tensor in place and _holds(r.guard, extents, [*extents])]
        sure = [found[k].starts for k, _ in made if not program.operations[k].where and found[k].whole]
        passing = [
            (k, _span(r.index, extents)) for k, r in made if _holds(op.where, extents, _dims(*r.index, *op.write))
        ]
        through = tuple(k for k, span in passing if span is not None and span == found[k].written)
        written = _span(op.write, extents) if _holds(op.where, extents, _dims(*op.write)) else None
        found.append(_Work(*known[key], max((1 + starts for starts in sure), default=0), through, written))
    return found


def _inside(op: Operation) -> dict[str, int]:
    """The extents within which no read leaves its tensor, where all reads agree on ends of single dimensions."""
    ends = [{str(b.expr): b.hi for b in read.guard if b.hi is not None} for read in op.reads]
    return {
        dim.name: min(dim.extent, max((end.get(dim.name, dim.extent) for end in ends), default=dim.extent))
        for dim in op.dims
    }


def _dims(*rows: Affine) -> set[str]:
    return {name for row in rows for name in row.dims}


def _holds(bounds: Sequence[Bound], extents: Mapping[str, int], spread: Collection[str]) -> bool:
    """Conditions hold at any place along some dimensions, the others at 0."""
    for bound in bounds:
        if not bound.expr.is_affine:
            return False
        ends = [factor * (extents[str(name)] - 1) for name, factor in bound.expr.terms if name in spread]
        least, most = (bound.expr.const + sum(pick(0, end) for end in ends) for pick in (min, max))
        if (bound.lo is not None and least < bound.lo) or (bound.hi is not None and most >= bound.hi):
            return False
    return True


def _span(rows: Sequence[Affine], extents: Mapping[str, int]) -> tuple[int, ...] | None:
    """The box from zero each of whose elements is the image of as many points; None where there is no such.

    Each row counts its axis through, digit by digit, and no dimension is in two rows.
    """
    used: list[str] = []
    found: list[int] = []
    for row in rows:
        digits = sorted((factor, str(name)) for name, factor in row.terms if row.is_affine and extents[str(name)] > 1)
        used += [name for _, name in digits]
        base = 1
        for factor, name in digits:
            if factor != base:
                return None
            base *= extents[name]
        if not row.is_affine or row.const:
            return None
        found.append(base)
    return tuple(found) if len(set(used)) == len(used) else None


def _least_work(op: Operation, program: Program, machine: Machine, ranks: int) -> float:
    """Seconds that all tasks of an operation take together at least, starts left out; 0 where it may have no points."""
    domain = Region.of(Grid(tuple(IntSet.interval(0, dim.extent) for dim in op.dims)))
    points = count_points(op, domain)
    if not points.exact or not points.value:
        return 0.0
    computed = 0 if op.scan is not None else points.value  # a scan need not go through its points one by one
    return _least_seconds(op, program, machine, ranks, computed, _least_bytes(op, program, domain))


def _even_work(op: Operation, program: Program, machine: Machine, ranks: int) -> float:
    """Seconds of which a share of the points takes at least that share: all arithmetic, and the bytes of operands
    whose every element is read by as many points."""
    points = prod(dim.extent for dim in op.dims)
    if op.where or not points or _inside(op) != op.extents:
        return 0.0
    shapes = {name: program.tensor(name).shape for name in (*op.operands, op.output)}
    even = {r.tensor for r in op.reads if not r.guard and _span(r.index, op.extents) == shapes[r.tensor]}
    even -= op.data_dependent
    even |= {op.output} if _span(op.write, op.extents) == shapes[op.output] else set()
    nbytes = sum(prod(shapes[name]) * program.tensor(name).itemsize for name in even)
    return _least_seconds(op, program, machine, ranks, points, nbytes)


def _least_seconds(op: Operation, program: Program, machine: Machine, ranks: int, points: int, nbytes: int) -> float:
    """What tasks of so many points and bytes in all take together at least, whatever the size of each: at the best rate
    of any size."""
    device = machine.device
    measured = device.operation(program.graph.digest(op), ranks) if device.paces else None
    if measured is not None:
        return points * measured.least
    work = device.work(kernel_class(op), compute_dtype(op, program), ranks)
    return max(points // op.idle * flops_per_point(op) * work.least, nbytes * device.copying(ranks).least)


def _least_bytes(op: Operation, program: Program, domain: Region) -> int:
    """What is read and written at least once; what is known as a hull only does not count."""
    shapes = {name: program.tensor(name).shape for name in op.operands}
    total = 0
    for name, image in operand_images(op, shapes, domain).items():
        known = image.exact and name not in op.data_dependent
        total += image.region.size * program.tensor(name).itemsize if known else 0
    written = write_image(op, domain)
    if written.exact and not op.where:  # shards cover the points within `where`, maybe no others
        total += written.region.size * program.tensor(op.output).itemsize
    return total
