"""A lower bound on the makespan of every plan that the format can say; docs/planner.md has the proof.

Whatever the shards, the ranks that take part and the order: all tasks of an operation together evaluate each of its
points at least once and touch each element it reads and writes at least once. Split into few tasks, these are long, and
what depends on them waits; split into many, there are as many starts, and small tasks are slow for their size. So two
sums are weighed against one another: the work of all ranks, and a chain of tasks that each need the one before.
What must move whatever is done bounds it too (`forced`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from ...program import Operation, Program
from ...space import Grid, IntSet, Region
from ...space.projection import count_points, operand_images, write_image
from ..machine import Machine
from .crossing import crossing_seconds
from .forced import forced_seconds
from .kinds import Kind, Pace, kinds_of, paces_of
from .spans import dims_of, holds, single, span

Floats = NDArray[np.float64]

COARSE = 14  # halvings of 1 among which the best weight of the chain is looked for first
SOON = (0.0, 0.5)  # those that are tried where there is no time for more
FINE, AMONG = 6, 6  # times that it is then looked for among so many between those beside the best
STEEP = 2  # a density that rises from next to nothing in equal steps is at most so many times an even one


@dataclass(frozen=True)
class Certificate:
    """No plan takes less than ``seconds``. ``chain``: the weight of the chain in the sum that proves it, in [0, 1)."""

    seconds: float
    chain: float


@dataclass(frozen=True)
class _Cost:
    """Of one operation: ``whole``, what all its tasks add to the load, a start of each left out; ``even``, seconds of
    which a share of its points takes at least that share. ``start`` of a task, and ``idle`` what it adds to the load.
    ``arithmetic`` and ``bytes``: by kind of device, over what a share of the points has that share of. ``triangle``:
    the same of the arithmetic of a triangle of points.
    """

    whole: float
    even: float
    start: float
    idle: float
    arithmetic: tuple[Pace, ...] = ()
    bytes: tuple[Pace, ...] = ()
    triangle: tuple[Pace, ...] = ()

    def link(self, weight: float) -> float:
        """What an operation adds by being in the chain, beside its load: with as many tasks as make it least."""
        sized = [
            min(pace.least(weight, (1 - weight) * pace.share) for pace in paces)
            for paces in (self.arithmetic, self.bytes)
            if paces
        ]
        return self._beyond(weight, self.even, sized)

    def sloped_link(self, weight: float) -> float:
        """The same where the place is drawn with a density that rises along an axis: even over a triangle of points, at
        most STEEP times an even one over a box of them."""
        if self.triangle:
            return self._beyond(weight, 0.0, [min(p.least(weight, (1 - weight) * p.share) for p in self.triangle)])
        sized = [_steep(paces, weight) for paces in (self.arithmetic, self.bytes) if paces]
        return self._beyond(weight, self.even / STEEP, sized)

    def _beyond(self, weight: float, even: float, sized: Sequence[float]) -> float:
        """Beyond the load, by few tasks that share ``even`` seconds, and by what all tasks count at least."""
        tasks = 1.0
        if self.idle and 0 < weight < 1:
            tasks = max(1.0, sqrt(weight * even / ((1 - weight) * self.idle)))
        even = even if self.idle else 0.0
        found = weight * (even / tasks + self.start) + (1 - weight) * (tasks - 1) * self.idle
        return max(found, max(sized, default=0.0) - (1 - weight) * (self.whole + self.idle))


def _steep(paces: Sequence[Pace], weight: float) -> float:
    """What all tasks count at least, where one with a share x of the points is met with a probability of STEEP x at
    most: no less than chain p + load x for each, of which all p and all x add up to 1."""
    load = min(pace.least(0.0, (1 - weight) * pace.share) for pace in paces)
    chain = []
    for pace in paces:
        both = pace.least(STEEP * weight, (1 - weight) * pace.share)
        alone = weight * (pace.start + pace.timing.seconds(pace.size / STEEP))
        chain.append(min((both - load) / STEEP, alone))
    return load + max(0.0, min(chain))


@dataclass(frozen=True)
class _Work:
    """An operation in the chain. ``starts``: seconds that tasks which must come before any of it take to start.
    ``before``: operations whose tasks, at places spread evenly over what they write, come before tasks at places spread
    so over ``written``. ``slopes``: by axis of what is written the (operation, axis) before, where places get denser
    along that axis."""

    cost: _Cost
    starts: float
    before: tuple[int, ...]
    written: tuple[int, ...] | None
    slopes: Mapping[int, tuple[tuple[int, int], ...]]


def lower_bound(program: Program, machine: Machine, ranks: int, *, soon: bool = False) -> Certificate:
    """No plan of the program on so many devices of the machine is simulated to take less. ``soon``: without what takes
    long to find out.
    """
    kinds = kinds_of(program, machine, ranks)
    works = _works(program, kinds)
    best = _best_of(works, SOON) if soon else _best_weight(works)
    weighed = float(_weighed(works, np.array([best]))[0])
    crossing = 0.0 if soon else crossing_seconds(program, kinds, machine, ranks)
    moved = max(forced_seconds(program, machine, ranks), crossing)
    # Sums of floats are rounded, in a simulation too.
    return Certificate(max(weighed, moved) * (1 - 1e-9), best)


def alone_s(program: Program, machine: Machine) -> float:
    """Seconds that one device takes at least: no chain of operations on it is longer than all of them."""
    costs = _costs(program, kinds_of(program, machine, 1))
    each = (costs[program.graph.structure(op)] for op in program.operations)
    return sum(cost.whole + cost.idle for cost in each if cost.whole)


def _best_weight(works: Sequence[_Work]) -> float:
    """Any weight proves a bound. The best one is looked for among powers of a half, and then, ever more finely, between
    those beside the best.
    """
    tried = [0.0, *(0.5**k for k in range(COARSE, 0, -1))]
    best = _best_of(works, tried)
    for _ in range(FINE if best else 0):
        at = tried.index(best)
        low, high = tried[max(0, at - 1)], [*tried, 1.0][at + 1]
        tried = sorted({best, *(low + (high - low) * k / AMONG for k in range(AMONG))})
        best = _best_of(works, tried)
    return best


def _best_of(works: Sequence[_Work], weights: Sequence[float]) -> float:
    return weights[int(_weighed(works, np.array(weights)).argmax())]


def _weighed(works: Sequence[_Work], weights: Floats) -> Floats:
    """The bounds with these weights of the chain."""
    nothing = np.zeros(len(weights))
    links: dict[int, Floats] = {}
    sloped_links: dict[int, Floats] = {}
    sloped: list[dict[int, Floats]] = []
    load, chains, ends = 0.0, list[Floats](), [nothing]
    triangles = any(work.cost.triangle for work in works)
    for work in works:
        cost = work.cost
        if not cost.whole:
            chains.append(nothing)
            sloped.append({})
            continue
        load += cost.whole + cost.idle
        if id(cost) not in links:
            links[id(cost)] = np.array([cost.link(weight) for weight in weights.tolist()])
            if triangles:
                sloped_links[id(cost)] = np.array([cost.sloped_link(weight) for weight in weights.tolist()])
        begun = [weights * work.starts] if work.starts or not work.before else []
        chains.append(_longest([*begun, *(chains[k] for k in work.before)]) + links[id(cost)])
        denser = work.slopes.items() if triangles else ()
        before = {axis: [sloped[k].get(at, nothing) for k, at in where] for axis, where in denser}
        sloped.append({axis: _longest([nothing, *some]) + sloped_links[id(cost)] for axis, some in before.items()})
        ends += chains[-1], *sloped[-1].values()
    longest: Floats = np.maximum.reduce(ends)
    return (1 - weights) * load + longest


def _longest(some: Sequence[Floats]) -> Floats:
    """By weight."""
    return reduce(np.maximum, some)  # of two or three, which most are, sooner than of an array of them


def _costs(program: Program, kinds: Sequence[Kind]) -> dict[str, _Cost]:
    """By the structure of operations what they cost at least."""
    ops = {program.graph.structure(op): op for op in program.operations}
    return {structure: _cost(op, program, kinds) for structure, op in ops.items()}


def _works(program: Program, kinds: Sequence[Kind]) -> list[_Work]:
    costs, found = _costs(program, kinds), list[_Work]()
    forms: dict[str, _Form] = {}
    place = {op.output: k for k, op in enumerate(program.operations)}
    for op in program.operations:
        structure = program.graph.structure(op)
        if structure not in forms:
            forms[structure] = _Form.of(op)
        form = forms[structure]
        made = {number: place[op.reads[number].tensor] for number in form.certain if op.reads[number].tensor in place}
        certain = (found[k] for k in made.values() if not program.operations[k].where and found[k].cost.whole)
        starts = max((before.starts + before.cost.start for before in certain), default=0.0)
        # Of each read that goes evenly over what was written at places that are spread evenly over it.
        evenly = {n: k for n, k in made.items() if form.spans[n] is not None and form.spans[n] == found[k].written}
        through = tuple(k for n, k in evenly.items() if n in form.passing)
        slopes = {
            axis: tuple((evenly[n], at) for n, at in along if n in evenly and at in found[evenly[n]].slopes)
            for axis, along in form.along.items()
        }
        found.append(_Work(costs[structure], starts, through, form.written, slopes))
    return found


@dataclass(frozen=True)
class _Form:
    """What an operation itself says of its place in a chain, the same in all layers. By their numbers the reads that
    are not left out anywhere (``certain``), and those in which all places count (``passing``); ``spans`` of all reads.
    ``along``: by axis of what is written along which places may get denser the reads, each with its own axis, in which
    the same goes on.
    """

    certain: tuple[int, ...]
    passing: frozenset[int]
    spans: tuple[tuple[int, ...] | None, ...]
    written: tuple[int, ...] | None
    along: Mapping[int, tuple[tuple[int, int], ...]]

    @staticmethod
    def of(op: Operation) -> _Form:
        extents = _inside(op)
        certain = tuple(n for n, read in enumerate(op.reads) if holds(read.guard, extents, [*extents]))
        passing = (n for n in certain if holds(op.where, extents, dims_of(*op.reads[n].index, *op.write)))
        spans = tuple(span(read.index, extents) for read in op.reads)
        written = span(op.write, extents) if holds(op.where, extents, dims_of(*op.write)) else None
        along = _along(op, certain, extents) if written is not None else {}
        return _Form(certain, frozenset(passing), spans, written, along)


def _along(op: Operation, certain: Sequence[int], extents: Mapping[str, int]) -> dict[int, tuple[tuple[int, int], ...]]:
    found: dict[int, tuple[tuple[int, int], ...]] = {}
    for axis, row in enumerate(op.write):
        dim = single(row)
        short = _below(op, dim, extents) if op.where else ""
        if dim and short is not None:
            reads = [(n, op.reads[n].index) for n in certain if short not in dims_of(*op.reads[n].index)]
            found[axis] = tuple((n, at) for n, index in reads for at, its in enumerate(index) if single(its) == dim)
    return found


def _below(op: Operation, dim: str, extents: Mapping[str, int]) -> str | None:
    """The folded dimension that runs up to ``dim``, and is as long, where that is all that leaves points out."""
    for bound in op.where if len(op.where) == 1 else ():
        terms = {str(name): factor for name, factor in bound.expr.terms if bound.expr.is_affine}
        sign = -1 if bound.lo is None else 1
        limits = (None, 1) if bound.lo is None else (0, None)
        others = [name for name, factor in terms.items() if factor == -sign and name != dim]
        if terms.get(dim) == sign and len(terms) == 2 and len(others) == 1 and (bound.lo, bound.hi) == limits:
            short = others[0]
            alone = short not in dims_of(*op.write) and not bound.expr.const
            return short if alone and extents[short] == extents[dim] else None
    return None


def _inside(op: Operation) -> dict[str, int]:
    """The extents within which no read leaves its tensor, where all reads agree on ends of single dimensions."""
    ends = [{str(b.expr): b.hi for b in read.guard if b.hi is not None} for read in op.reads]
    return {
        dim.name: min(dim.extent, max((end.get(dim.name, dim.extent) for end in ends), default=dim.extent))
        for dim in op.dims
    }


def _cost(op: Operation, program: Program, kinds: Sequence[Kind]) -> _Cost:
    """Tasks are on any of the kinds, so of each part of what they take that counts which is least on some kind."""
    domain = Region.of(Grid(tuple(IntSet.interval(0, dim.extent) for dim in op.dims)))
    points = count_points(op, domain)
    starts = [kind.start(op, program) for kind in kinds]
    start, idle = min(starts), min(kind.share * own for kind, own in zip(kinds, starts, strict=True))
    if not points.exact or not points.value:
        return _Cost(0.0, 0.0, start, idle)
    computed = 0 if op.scan is not None else points.value  # a scan need not go through its points one by one
    whole = paces_of(op, program, kinds, computed, _least_bytes(op, program, domain))
    even = paces_of(op, program, kinds, *_even_work(op, program))
    load = max(min((p.share * p.size * p.timing.least for p in paces), default=0.0) for paces in whole)
    seconds = max(min((p.size * p.timing.least for p in paces), default=0.0) for paces in even)
    return _Cost(load, seconds, start, idle, *even, _triangle(op, program, kinds))


def _triangle(op: Operation, program: Program, kinds: Sequence[Kind]) -> tuple[Pace, ...]:
    """The arithmetic of the points within which no read leaves its tensor, where they are a triangle."""
    extents = _inside(op)
    if op.scan is not None or not any(_below(op, single(row), extents) for row in op.write if single(row)):
        return ()
    points = count_points(op, Region.of(Grid(tuple(IntSet.interval(0, extents[dim.name]) for dim in op.dims))))
    return paces_of(op, program, kinds, points.value, 0)[0] if points.exact else ()


def _even_work(op: Operation, program: Program) -> tuple[int, int]:
    """Points and bytes of which a share of the points has at least that share: all points, and the bytes of operands
    whose every element is read by as many of them. None where `where` leaves points out."""
    points = prod(dim.extent for dim in op.dims)
    if op.where or not points or op.scan is not None or _inside(op) != op.extents:
        return 0, 0
    shapes = {name: program.tensor(name).shape for name in (*op.operands, op.output)}
    even = {r.tensor for r in op.reads if not r.guard and span(r.index, op.extents) == shapes[r.tensor]}
    even -= op.data_dependent
    even |= {op.output} if span(op.write, op.extents) == shapes[op.output] else set()
    return points, sum(prod(shapes[name]) * program.tensor(name).itemsize for name in even)


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
