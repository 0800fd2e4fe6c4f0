"""Tenth proof: no plan of this program on this machine takes less than the plan says none does.

All tasks of an operation together take its whole work, and a start each; a rank computes one at a time. And some tasks
wait for others: at a place drawn at random, evenly, the task that makes it comes after a task of each operation of a
chain, and with m tasks of an operation the one that is met is, on average, no shorter than the m-th part of its work
and a start. The two sums, weighed as the plan says, bound the makespan whatever m is; docs/planner.md has the proof.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod, sqrt
from typing import NamedTuple

from ...expr import Affine, Bound, Read
from ...program import Operation
from ...space.projection import operand_images
from ..format.document import LowerBound
from .case import Case
from .rates import Rates
from .report import Code, Findings

TOLERANCE = 1e-9  # of floating-point sums
Box = tuple[int, ...]


class Place(NamedTuple):
    """Where a chain has come to: its weighed seconds, the starts before it, and the box its place is anywhere in."""

    seconds: float
    starts: int
    box: Box | None
    certain: bool


def prove(case: Case, rates: Rates, findings: Findings) -> None:
    """Findings BOUND and GAP, where the plan states them."""
    stated = case.document.bound
    if stated is None:
        return
    if not 0 <= stated.chain < 1:
        findings.add(Code.BOUND, f"the weight of the chain is {stated.chain!r}, not from 0 to 1")
        return
    proved = least_seconds(case, rates, stated.chain)
    if not stated.bound_s <= proved * (1 + TOLERANCE):
        findings.add(Code.BOUND, f"bound_s is {stated.bound_s!r}; what can be proved is {proved!r}", witness=())
        return
    _gap(stated, case.document.predicted.makespan_s, findings)


def _gap(bound: LowerBound, makespan: float, findings: Findings) -> None:
    expected = (makespan - bound.bound_s) / makespan if makespan else 0.0
    if not abs(bound.gap - expected) <= TOLERANCE:
        between = f"between {bound.bound_s!r} and {makespan!r} it is {expected!r}"
        findings.add(Code.GAP, f"gap is {bound.gap!r}; {between}", witness=())


def least_seconds(case: Case, rates: Rates, weight: float) -> float:
    """The weighed sum: (1 - weight) of the work of all ranks, weight of the longest chain."""
    known: dict[object, tuple[float, float]] = {}
    places: dict[str, Place] = {}
    load = 0.0
    for op in case.program.operations:
        dtypes = tuple(case.program.tensor(name).dtype for name in (*op.operands, op.output))
        key = (case.shape(op).number, dtypes, rates.own(op, case.program))
        if key not in known:
            known[key] = _whole(case, op, rates), _shared(case, op, rates)
        whole, shared = known[key]
        load += whole
        if whole:
            link = _link(weight, shared, rates.start_s, case.ranks)
            places[op.output] = _place(op, places, weight * rates.start_s, link)
    longest = max((place.seconds for place in places.values()), default=0.0)
    return (1 - weight) * load / case.ranks + longest


def _link(weight: float, shared: float, start: float, ranks: int) -> float:
    """What an operation adds to the chain, with as many tasks as make it least."""
    if not start:
        return 0.0
    many = max(1.0, sqrt(weight * shared * ranks / ((1 - weight) * start)))
    return weight * (shared / many + start) + (1 - weight) * (many - 1) * start / ranks


def _place(op: Operation, places: dict[str, Place], start: float, link: float) -> Place:
    """The longest chain to an operation."""
    ends = _ends(op)
    reads = [read for read in op.reads if read.tensor in places and _always(read.guard, ends, set(ends))]
    starts = max((1 + places[read.tensor].starts for read in reads if places[read.tensor].certain), default=0)
    seconds = max((places[r.tensor].seconds for r in reads if _passes(op, r, ends, places[r.tensor].box)), default=0.0)
    box = _box(op.write, ends) if _always(op.where, ends, _names(op.write)) else None
    return Place(max(seconds, start * starts) + link, starts, box, not op.where)


def _passes(op: Operation, read: Read, ends: dict[str, int], box: Box | None) -> bool:
    """A place anywhere in what is read is a place anywhere in what is written."""
    return (
        box is not None and _box(read.index, ends) == box and _always(op.where, ends, _names((*read.index, *op.write)))
    )


def _ends(op: Operation) -> dict[str, int]:
    """Per dimension where all reads that are guarded by it alone end, or itself."""
    found = {}
    for dim in op.dims:
        alone = [[b.hi for b in r.guard if b.expr == Affine.dim(dim.name) and b.hi is not None] for r in op.reads]
        found[dim.name] = min([dim.extent, *([max(map(min, alone))] if alone and all(alone) else [])])
    return found


def _names(rows: Iterable[Affine]) -> set[str]:
    return {name for row in rows for name in row.dims}


def _always(bounds: Iterable[Bound], ends: dict[str, int], names: set[str]) -> bool:
    """Wherever these dimensions are within their ends, all others at 0."""
    for bound in bounds:
        if not bound.expr.is_affine:
            return False
        most = [factor * (ends[str(name)] - 1) for name, factor in bound.expr.terms if name in names]
        low, high = (bound.expr.const + sum(end for end in most if (end > 0) == up) for up in (False, True))
        if (bound.lo is not None and bound.lo > low) or (bound.hi is not None and bound.hi <= high):
            return False
    return True


def _box(rows: Iterable[Affine], ends: dict[str, int]) -> Box | None:
    """Extents of a box that the rows cover evenly: mixed-radix numbers of dimensions, none of them used twice."""
    found, seen = [], 0
    for row in rows:
        if row.const or not row.is_affine:
            return None
        size = 1
        for factor, name in sorted((factor, str(name)) for name, factor in row.terms if ends[str(name)] > 1):
            if factor != size:
                return None
            size, seen = size * ends[name], seen + 1
        found.append(size)
    distinct = {name for name in _names(rows) if ends[name] > 1}
    return tuple(found) if seen == len(distinct) else None


def _whole(case: Case, op: Operation, rates: Rates) -> float:
    """What all tasks of an operation take together at least, a start included: every point, every element once; 0
    where there is no point."""
    shape, size = case.shape(op), case.algebra.size
    shapes = {name: case.program.tensor(name).shape for name in op.operands}
    images = operand_images(op, shapes, case.algebra.region(shape.domain))
    reads = zip(op.operands, shape.reads(shape.domain), strict=True)
    certain = [(name, region) for name, region in reads if images[name].exact and name not in op.data_dependent]
    nbytes = sum(size(region) * case.item_bytes(name) for name, region in certain)
    written = shape.image(shape.domain)
    if shape.domain not in shape.hulls and not op.where:
        nbytes += size(written) * case.item_bytes(op.output)
    points = shape.count(shape.domain)
    computed = points if op.scan is None else 0
    return rates.least(op, case.program, computed, nbytes) + rates.start_s if points else 0.0


def _shared(case: Case, op: Operation, rates: Rates) -> float:
    """What a share of the points takes at least that share of, starts left out; 0 where points are left out."""
    ends = {dim.name: dim.extent for dim in op.dims}
    if op.where or _ends(op) != ends:
        return 0.0
    shapes = {name: case.program.tensor(name).shape for name in (*op.operands, op.output)}
    even = {read.tensor for read in op.reads if not read.guard and _box(read.index, ends) == shapes[read.tensor]}
    even -= op.data_dependent
    even |= {op.output} if _box(op.write, ends) == shapes[op.output] else set()
    nbytes = sum(prod(shapes[name]) * case.item_bytes(name) for name in even)
    return rates.least(op, case.program, prod(ends.values()), nbytes)
