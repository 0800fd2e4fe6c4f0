"""How long results take that come out of one another, if what is between two of them is computed by one rank, or by
several that wait for a transfer.

A stretch begins when the first element of one operation's result is complete anywhere and ends when one of another's
is. Of what the latter needs, the part that itself needs the former is computed within the stretch. docs/planner.md has
the proof.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...expr import Affine, Read
from ...program import Operation
from .case import Case
from .rates import never_below
from .rows import alone, always, names

if TYPE_CHECKING:
    from .bound import Kind

LONGEST = 40  # operations of a stretch

Part = frozenset[int]
"""Of a tensor all that lies along some axes, at one place of the others."""


class Work(NamedTuple):
    """Seconds of one rank at its best rates, and the parts of operands that are read."""

    seconds: float
    operands: Mapping[int, Part]


def seconds(case: Case, kinds: Sequence[Kind]) -> float:
    """The stretches that follow one another and take longest together."""
    sharing = _sharing(case, kinds)
    if len(sharing) == 1:
        return 0.0
    ops = case.program.operations
    made = {op.output: number for number, op in enumerate(ops)}
    known: dict[object, Work] = {}
    earlier: list[frozenset[int]] = []  # by operation those, not far before it, that all of its points need
    ends: dict[int, float] = {}
    for number, op in enumerate(ops):
        mine = {made[read.tensor] for read in _read(op) if read.tensor in made} if _complete(op) else set[int]()
        every = mine.union(*(earlier[other] for other in mine))
        earlier.append(frozenset(other for other in every if other >= number - LONGEST))
        if not (_complete(op) and op.reduce_dims):
            continue
        works = _works(case, kinds, number, known)
        found = [sum(work.seconds for work in works.values())]
        for other, until in ends.items():
            if other >= number - LONGEST:
                between = sum(work.seconds for k, work in works.items() if other in earlier[k])
                found.append(until + _shared(between, sharing))
        ends[number] = max(_shared(found[0], sharing), *found[1:], 0.0)
    return max(ends.values(), default=0.0)


def _shared(work: float, sharing: Sequence[tuple[int, float]]) -> float:
    return min(max(work / ranks, waiting) for ranks, waiting in sharing)


def _sharing(case: Case, kinds: Sequence[Kind]) -> list[tuple[int, float]]:
    """How many ranks may work on a stretch for a transfer of at least so many seconds."""
    found, together = [(1, 0.0)], 1
    reach = {scope: size for scope, (size, _) in kinds[0].rates.reach}
    for wider in sorted(set(reach.values())):
        links = [link for link in case.document.machine["links"] if reach.get(link["scope"], 0) >= wider]
        least = [float(link["latency_s"]) for link in links]
        least += [first / (rate * 1e9) for link in links for curve in link["curve"] for first, rate in curve["points"]]
        if together < min(wider, case.ranks) and least:
            found.append((min(wider, case.ranks), min(least)))
        together = max(together, wider)
    return found


def _complete(op: Operation) -> bool:
    """All points count, and each element of the result has some."""
    extents = {dim.name: dim.extent for dim in op.dims}
    return op.scan is None and op.idle == 1 and 0 not in extents.values() and always(op.where, extents, names(op.write))


def _read(op: Operation) -> list[Read]:
    """Reads of every point, or of one of those that are always computed together, at places that no data say."""
    extents = {dim.name: dim.extent for dim in op.dims}
    settled = (read for read in op.reads if read.tensor not in op.data_dependent)
    return [read for read in settled if always(read.guard, extents, extents.keys() - _together(op))]


def _together(op: Operation) -> set[str]:
    """The dimensions that no shard cuts, where no condition leaves any of them out."""
    return {dim.name for dim in op.dims if not dim.cut} - names(bound.expr for bound in op.where)


def _limits(op: Operation, read: Read) -> dict[str, int]:
    """By dimension up to where it is read along, if a condition on it alone says that, or none does."""
    found = {dim.name: dim.extent for dim in op.dims}
    for bound in read.guard:
        for name in bound.expr.dims:
            plain = alone(bound.expr) == name and (bound.lo is None or bound.lo <= 0)
            found[name] = min(found[name], found[name] if bound.hi is None else bound.hi) if plain else 0
    return found


def _works(case: Case, kinds: Sequence[Kind], last: int, known: dict[object, Work]) -> dict[int, Work]:
    """By operation what is needed of it for one element of the last one's result."""
    ops, found = case.program.operations, dict[int, Work]()
    asked: dict[str, Part] = {ops[last].output: frozenset()}
    for number in range(last, max(-1, last - LONGEST - 1), -1):
        op = ops[number]
        if op.output in asked and _complete(op):
            found[number] = _work(case, kinds, op, asked[op.output], known)
            for operand, part in found[number].operands.items():
                name = op.operands[operand]
                asked[name] = _larger(case, name, asked.get(name), part)
    return found


def _larger(case: Case, tensor: str, one: Part | None, other: Part) -> Part:
    sized = [(_bytes(case, tensor, part), sorted(part), part) for part in (one, other) if part is not None]
    return max(sized, key=lambda each: each[:2])[2]


def _bytes(case: Case, tensor: str, part: Part) -> int:
    shape = case.program.tensor(tensor).shape
    return prod(shape[axis] for axis in part) * case.item_bytes(tensor)


def _work(case: Case, kinds: Sequence[Kind], op: Operation, part: Part, known: dict[object, Work]) -> Work:
    dtypes = tuple(case.program.tensor(name).dtype for name in (*op.operands, op.output))
    key = (case.shape(op).number, dtypes, part, *(kind.rates.own(op, case.program) for kind in kinds))
    if key not in known:
        known[key] = _looked_at(case, kinds, op, part)
    return known[key]


def _looked_at(case: Case, kinds: Sequence[Kind], op: Operation, part: Part) -> Work:
    extents, shapes = {dim.name: dim.extent for dim in op.dims}, case.program.tensor
    together = _together(op)
    written = _along(shapes(op.output).shape, op.write, extents).items()
    kept = {axis: name for axis, name in written if axis in part or name in together}
    folded = extents.keys() - names(op.write) - names(bound.expr for bound in op.where)
    ranging = folded | together | set(kept.values())
    operands: dict[int, Part] = {}
    for read in _read(op):
        rows = _along(shapes(read.tensor).shape, read.index, _limits(op, read))
        mine = frozenset(axis for axis, name in rows.items() if name in ranging)
        operand = op.operands.index(read.tensor)
        operands[operand] = _larger(case, read.tensor, operands.get(operand), mine)
    nbytes = _bytes(case, op.output, frozenset(kept))
    nbytes += sum(_bytes(case, op.operands[operand], mine) for operand, mine in operands.items())
    points = prod(extents[name] for name in ranging)
    priced = zip(*(kind.rates.parts(op, case.program, points, nbytes) for kind in kinds), strict=True)
    least = max(min(never_below(*each) if each[1] else 0.0 for each in column) for column in priced)
    return Work(least + min(kind.rates.start(op, case.program) for kind in kinds), operands)


def _along(shape: Sequence[int], rows: Sequence[Affine], limits: Mapping[str, int]) -> dict[int, str]:
    """The axes that one dimension of its own goes through from end to end."""
    counted = [name for row in rows for name in row.dims]
    both = ((axis, alone(row)) for axis, row in enumerate(rows))
    return {axis: name for axis, name in both if counted.count(name) == 1 and limits.get(name) == shape[axis]}
