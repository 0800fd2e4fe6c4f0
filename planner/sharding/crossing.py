"""What starts of transfers say of every plan: where results need all of what was computed before, either one rank
computes it all, or something crosses between ranks, which takes a transfer at least.

Take two values of a program, and the moments at which the first element of each is complete, on whatever rank. What is
computed between them for that element of the later one, and needs something of the earlier one, is computed between
these moments: by one rank alone, or by ranks of one host, and then a transfer within it started and ended there, or by
all, and then one between hosts did. Such stretches follow one another. docs/planner.md has the proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ...expr import Affine, Read
from ...program import Operation, Program
from ..machine import Link, Machine
from .kinds import Kind, paces_of
from .spans import dims_of, holds, single

SPAN = 40  # operations that a stretch reaches over at most

Axes = frozenset[int]
"""Of a tensor the axes along which all elements are needed, one place or more along the others."""


def crossing_seconds(program: Program, kinds: Sequence[Kind], machine: Machine, ranks: int) -> float:
    """No plan takes less, by what must be computed on one rank or cross between several."""
    levels = _levels(machine, ranks)
    return _Stretches(program, kinds, levels).longest() if len(levels) > 1 else 0.0


def _levels(machine: Machine, ranks: int) -> list[tuple[int, float]]:
    """How many ranks may share work in a stretch, and what a transfer takes at least that they need for that."""
    found, size = [(1, 0.0)], 1
    for _, wider in machine.reaches:
        scopes = {scope for scope, reach in machine.reaches if reach >= wider}
        starts = [least_start(link) for link in machine.links if link.scope in scopes]
        if size < ranks and wider > size and starts:
            found.append((min(wider, ranks), min(starts)))
        size = wider
    return found


def least_start(link: Link) -> float:
    """Of any transfer that moves something."""
    return min([link.latency_s, *(curve.seconds(0) for curve in link.curve)])


@dataclass
class _Stretches:
    """The stretches between the results of operations that fold something; ``best``: by operation no less than it takes
    until some element of its result is complete. ``before``: by operation a bit for each that it needs, if all of its
    points do.
    """

    program: Program
    kinds: Sequence[Kind]
    levels: Sequence[tuple[int, float]]
    before: list[int] = field(default_factory=list)
    best: dict[int, float] = field(default_factory=dict)
    known: dict[tuple[str, Axes], tuple[float, tuple[tuple[int, Axes], ...]]] = field(default_factory=dict)

    def longest(self) -> float:
        place = {op.output: k for k, op in enumerate(self.program.operations)}
        for k, op in enumerate(self.program.operations):
            read = [place[read.tensor] for read in _certain(op) if read.tensor in place] if _told(op) else []
            self.before.append(0)
            for maker in read:
                self.before[k] |= self.before[maker] | 1 << maker
            if _told(op) and op.reduce_dims:
                self.best[k] = max(self.best.get(start, 0.0) + self._takes(sum_) for start, sum_ in self._back(k))
        return max(self.best.values(), default=0.0)

    def _takes(self, alone: float) -> float:
        """Of a stretch that takes one rank so many seconds."""
        return min(max(start, alone / size) for size, start in self.levels)

    def _back(self, end: int) -> Iterator[tuple[int, float]]:
        """The operations after which a stretch may begin that ends with an element of another's result (-1: the run
        begins with it), and what it takes one rank."""
        program, first = self.program, max(0, end - SPAN)
        needed: dict[str, Axes] = {program.operations[end].output: frozenset()}
        sums = dict.fromkeys([k for k in self.best if k >= first], 0.0)
        every = 0.0
        for k in range(end, first - 1, -1):
            op = program.operations[k]
            if op.output not in needed or not _told(op):
                continue
            seconds, operands = self._step(op, needed[op.output])
            every += seconds
            behind = self.before[k]
            for start in sums:
                if behind >> start & 1:
                    sums[start] += seconds
            for place, axes in operands:
                name = op.operands[place]
                if name not in needed:
                    needed[name] = axes
                elif needed[name] != axes:
                    needed[name] = max(needed[name], axes, key=lambda each: _order(program, name, each))
        yield -1, every
        yield from sums.items()

    def _step(self, op: Operation, axes: Axes) -> tuple[float, tuple[tuple[int, Axes], ...]]:
        """What the points take that write so much, and what they read of operands."""
        key = self.program.graph.structure(op), axes
        if key not in self.known:
            self.known[key] = self._looked_at(op, axes)
        return self.known[key]

    def _looked_at(self, op: Operation, axes: Axes) -> tuple[float, tuple[tuple[int, Axes], ...]]:
        program, limited = self.program, dims_of(*(bound.expr for bound in op.where))
        together = _uncut(op)
        whole = _whole(op.write, program.tensor(op.output).shape, op.extents)
        mine = frozenset(axis for axis in whole if axis in axes or single(op.write[axis]) in together)
        full = set(op.extents) - dims_of(*op.write) - limited | together | {single(op.write[axis]) for axis in mine}
        operands: dict[str, Axes] = {}
        for read in _certain(op):
            ends = {name: _end(read, name, op.extents[name]) for name in full}
            found = _whole(read.index, program.tensor(read.tensor).shape, ends)
            name = read.tensor
            operands[name] = max(operands.get(name, found), found, key=lambda each: _order(program, name, each))
        nbytes = sum(_order(program, name, each)[0] for name, each in (*operands.items(), (op.output, mine)))
        points = prod(op.extents[name] for name in full)
        paces = [each for each in paces_of(op, program, self.kinds, points, nbytes) if each]
        seconds = max((min(pace.size * pace.timing.least for pace in each) for each in paces), default=0.0)
        start = min(kind.start(op, program) for kind in self.kinds)
        return seconds + start, tuple((op.operands.index(name), each) for name, each in operands.items())


def _told(op: Operation) -> bool:
    """Whether every element of the result is made of points, all of which count."""
    whole = op.scan is None and op.idle == 1 and all(op.extents.values())
    return whole and holds(op.where, op.extents, dims_of(*op.write))


def _uncut(op: Operation) -> set[str]:
    """The dimensions along which whoever computes some points computes all."""
    return {dim.name for dim in op.dims if not dim.cut} - dims_of(*(bound.expr for bound in op.where))


def _certain(op: Operation) -> list[Read]:
    """What is read for all points, or for others with which they are computed."""
    anywhere = op.extents.keys() - _uncut(op)
    return [r for r in op.reads if r.tensor not in op.data_dependent and holds(r.guard, op.extents, anywhere)]


def _end(read: Read, dim: str, extent: int) -> int:
    """Up to where along a dimension something is read; 0 where that is not said of it alone."""
    bounds = [bound for bound in read.guard if dim in bound.expr.dims]
    if any(bound.expr != Affine.dim(dim) or (bound.lo or 0) > 0 for bound in bounds):
        return 0
    return min([extent, *(bound.hi for bound in bounds if bound.hi is not None)])


def _whole(rows: Sequence[Affine], shape: Sequence[int], ends: Mapping[str, int]) -> Axes:
    """The axes that rows go through from end to end, if some dimensions take all their values up to their ends."""
    return frozenset(
        axis
        for axis, row in enumerate(rows)
        if ends.get(single(row)) == shape[axis] and sum(single(row) in other.dims for other in rows) == 1
    )


def _order(program: Program, tensor: str, axes: Axes) -> tuple[int, list[int]]:
    """Bytes of what is needed, and something to tell equal ones by."""
    found = program.tensor(tensor)
    return prod(found.shape[axis] for axis in axes) * found.itemsize, sorted(axes)
