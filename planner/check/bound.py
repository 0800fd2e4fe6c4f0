"""Tenth proof: no plan of this program on this machine takes less than the plan says none does.

All tasks of an operation together take its whole work, and a start each; a rank computes one at a time. And some tasks
wait for others: at a place drawn at random, evenly, the task that makes it comes after a task of each operation of a
chain, and with m tasks of an operation the one that is met is, on average, no shorter than the m-th part of its work
and a start. The two sums, weighed as the plan says, bound the makespan whatever m is; docs/planner.md has the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod, sqrt
from typing import NamedTuple

from ...expr import Affine, Read
from ...program import Operation
from ...space.projection import operand_images
from ..format.document import LowerBound
from . import crossing, forced
from .case import Case
from .rates import Part, Rates, least_weighed, never_below, seconds_at
from .report import Code, Findings
from .rows import alone, always, names

TOLERANCE = 1e-9  # of floating-point sums
NOTHING = 1e-12  # seconds, of an operation without points
Box = tuple[int, ...]


class Place(NamedTuple):
    """Where a chain has come to: its weighed seconds, those of starts alone, and the box its place is anywhere in."""

    seconds: float
    starts: float
    box: Box | None
    certain: bool
    rising: dict[int, float]
    """By axis of the box: seconds of the chain that comes to a place the likelier the further along that axis."""


class Kind(NamedTuple):
    """Devices that are alike: their rates, and what a second of one of them counts in the load. ``start``: seconds, of
    a task of the operation that is looked at."""

    rates: Rates
    share: float
    start: float = 0.0


class Cost(NamedTuple):
    """Of an operation: what its tasks add to the load, a start included; of the chain's link the seconds that few tasks
    take, and by kind of device what a share of its points has that share of. ``start``: the least on any kind of
    device; ``idle``: what it adds to the load."""

    load: float
    start: float
    idle: float
    shared: float
    parts: tuple[tuple[tuple[Kind, Part], ...], ...]
    triangle: tuple[tuple[Kind, Part], ...] = ()


def prove(case: Case, findings: Findings) -> None:
    """Findings BOUND and GAP, where the plan states them."""
    stated = case.document.bound
    if stated is None:
        return
    if not 0 <= stated.chain < 1:
        findings.add(Code.BOUND, f"the weight of the chain is {stated.chain!r}, not from 0 to 1")
        return
    kinds = kinds_of(case)
    proved = max(
        least_seconds(case, kinds, stated.chain),
        forced.seconds(case, kinds, stated.bound_s * (1 - TOLERANCE)),
        crossing.seconds(case, kinds),
    )
    if not stated.bound_s <= proved * (1 + TOLERANCE):
        findings.add(Code.BOUND, f"bound_s is {stated.bound_s!r}; what can be proved is {proved!r}", witness=())
        return
    _gap(stated, case.document.predicted.makespan_s, findings)


def kinds_of(case: Case) -> list[Kind]:
    """The kinds of devices of the ranks. A second of a device counts in proportion to how fast it does everything."""
    numbers = list(dict.fromkeys(case.kinds))
    rates = [Rates(case.document.machine, case.ranks, number) for number in numbers]
    if len(rates) == 1:
        return [Kind(rates[0], 1 / case.ranks)]
    speeds = {
        number: 1 / sum(_once(case, op, mine) for op in case.program.operations)
        for number, mine in zip(numbers, rates, strict=True)
    }
    together = sum(speeds[number] for number in case.kinds)
    return [Kind(mine, speeds[number] / together) for number, mine in zip(numbers, rates, strict=True)]


def _once(case: Case, op: Operation, rates: Rates) -> float:
    points, size = rates.parts(op, case.program, prod(dim.extent for dim in op.dims), 0)[0]
    return (never_below(points, size) if size else 0.0) + NOTHING


def _gap(bound: LowerBound, makespan: float, findings: Findings) -> None:
    expected = (makespan - bound.bound_s) / makespan if makespan else 0.0
    if not abs(bound.gap - expected) <= TOLERANCE:
        between = f"between {bound.bound_s!r} and {makespan!r} it is {expected!r}"
        findings.add(Code.GAP, f"gap is {bound.gap!r}; {between}", witness=())


def least_seconds(case: Case, kinds: Sequence[Kind], weight: float) -> float:
    """The weighed sum: (1 - weight) of the work of all ranks, weight of the longest chain."""
    known: dict[object, Cost] = {}
    links: dict[object, tuple[float, float]] = {}
    places: dict[str, Place] = {}
    load = 0.0
    for op in case.program.operations:
        dtypes = tuple(case.program.tensor(name).dtype for name in (*op.operands, op.output))
        key = (case.shape(op).number, dtypes, *(kind.rates.own(op, case.program) for kind in kinds))
        if key not in known:
            known[key] = _cost(case, op, [kind._replace(start=kind.rates.start(op, case.program)) for kind in kinds])
            links[key] = _link(known[key], weight), _rising_link(known[key], weight)
        load += known[key].load
        if known[key].load:
            places[op.output] = _place(op, places, weight * known[key].start, *links[key])
    longest = max((max(place.seconds, *place.rising.values(), 0.0) for place in places.values()), default=0.0)
    return (1 - weight) * load + longest


def _link(cost: Cost, weight: float) -> float:
    """What an operation adds to the chain, with as many tasks as make it least: what few of them take, or what tasks of
    their size take on some kind of device, less what is in the load."""
    found = _few(cost.shared, cost, weight)
    for paces in cost.parts:
        sized = [least_weighed(part, k.start, weight, (1 - weight) * k.share) for k, part in paces]
        found = max(found, min(sized, default=0.0) - (1 - weight) * cost.load)
    return found


def _few(shared: float, cost: Cost, weight: float) -> float:
    if not cost.idle:
        return weight * cost.start
    many = max(1.0, sqrt(weight * shared / ((1 - weight) * cost.idle)))
    return weight * (shared / many + cost.start) + (1 - weight) * (many - 1) * cost.idle


def _rising_link(cost: Cost, weight: float) -> float:
    """The same for a place drawn evenly of a triangle of points, or of a box with twice the even density at most.

    There each task counts for no less than chain * probability + load * share of the points, where the probability is
    twice the share at most; probabilities and shares add up to 1.
    """
    loaded = (1 - weight) * cost.load
    if cost.triangle:
        sized = [least_weighed(part, k.start, weight, (1 - weight) * k.share) for k, part in cost.triangle]
        return max(_few(0.0, cost, weight), min(sized) - loaded)
    found = _few(cost.shared / 2, cost, weight)
    for paces in cost.parts:
        if not paces:
            continue
        load = min(least_weighed(part, k.start, 0.0, (1 - weight) * k.share) for k, part in paces)
        chain = []
        for k, part in paces:
            twice = least_weighed(part, k.start, 2 * weight, (1 - weight) * k.share)
            half = weight * (k.start + seconds_at(part[0], part[1] / 2))
            chain.append(min((twice - load) / 2, half))
        found = max(found, load + max(0.0, min(chain)) - loaded)
    return found


def _place(op: Operation, places: dict[str, Place], start: float, link: float, rising_link: float) -> Place:
    """The longest chain to an operation. ``start``: weighed seconds of its own."""
    ends = _ends(op)
    reads = [read for read in op.reads if read.tensor in places and always(read.guard, ends, set(ends))]
    starts = max((places[read.tensor].starts for read in reads if places[read.tensor].certain), default=0.0)
    seconds = max((places[r.tensor].seconds for r in reads if _passes(op, r, ends, places[r.tensor].box)), default=0.0)
    box = _box(op.write, ends) if always(op.where, ends, names(op.write)) else None
    rising: dict[int, float] = {}
    for axis, row in enumerate(op.write if box is not None else ()):
        name = alone(row)
        up_to = _up_to(op, name, ends) if op.where else {""}
        if name and up_to:
            before = [
                places[read.tensor].rising.get(at, 0.0)
                for read in reads
                for at, its in enumerate(read.index)
                if alone(its) == name
                and not up_to & names(read.index)
                and _box(read.index, ends) == places[read.tensor].box
            ]
            rising[axis] = rising_link + max(before, default=0.0)
    return Place(max(seconds, starts) + link, starts + start, box, not op.where, rising)


def _up_to(op: Operation, name: str, ends: dict[str, int]) -> set[str]:
    """The folded dimension of which the points go up to ``name``, as long as that, where no others are left out."""
    if len(op.where) != 1 or not op.where[0].expr.is_affine or op.where[0].expr.const:
        return set()
    (bound,) = op.where
    factors = {str(term): factor for term, factor in bound.expr.terms}
    upward = factors if (bound.lo, bound.hi) == (0, None) else {term: -factor for term, factor in factors.items()}
    if (bound.lo, bound.hi) not in ((0, None), (None, 1)) or sorted(upward.values()) != [-1, 1]:
        return set()
    (long,), (short,) = ([term for term, factor in upward.items() if factor == sign] for sign in (1, -1))
    fits = long == name and ends[short] == ends[long] and short not in names(op.write)
    return {short} if fits else set()


def _passes(op: Operation, read: Read, ends: dict[str, int], box: Box | None) -> bool:
    """A place anywhere in what is read is a place anywhere in what is written."""
    return box is not None and _box(read.index, ends) == box and always(op.where, ends, names((*read.index, *op.write)))


def _ends(op: Operation) -> dict[str, int]:
    """Per dimension where all reads that are guarded by it alone end, or itself."""
    found = {}
    for dim in op.dims:
        alone = [[b.hi for b in r.guard if b.expr == Affine.dim(dim.name) and b.hi is not None] for r in op.reads]
        found[dim.name] = min([dim.extent, *([max(map(min, alone))] if alone and all(alone) else [])])
    return found


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
    distinct = {name for name in names(rows) if ends[name] > 1}
    return tuple(found) if seen == len(distinct) else None


def _cost(case: Case, op: Operation, kinds: Sequence[Kind]) -> Cost:
    """Of each part of what tasks take that counts which is least on some kind of device."""
    shape = case.shape(op)
    if not shape.count(shape.domain):
        return Cost(0.0, 0.0, 0.0, 0.0, ())
    whole = _parts(case, op, kinds, shape.count(shape.domain) if op.scan is None else 0, _touched(case, op))
    even = _parts(case, op, kinds, *_even(case, op))
    loads = [[kind.share * never_below(*part) for kind, part in paces] for paces in whole]
    shared = [[never_below(*part) for _, part in paces] for paces in even]
    start, idle = min(kind.start for kind in kinds), min(kind.share * kind.start for kind in kinds)
    load = max((min(mine) for mine in loads if mine), default=0.0) + idle
    even_s = max((min(mine) for mine in shared if mine), default=0.0)
    return Cost(load, start, idle, even_s, even, _triangle(case, op, kinds))


def _triangle(case: Case, op: Operation, kinds: Sequence[Kind]) -> tuple[tuple[Kind, Part], ...]:
    """The arithmetic of the points at which all reads are within their tensors, where they are a triangle."""
    ends = _ends(op)
    if op.scan is not None or not any(_up_to(op, alone(row), ends) for row in op.write):
        return ()
    points = case.shape(op).count(case.algebra.whole(list(ends.values())))
    return next(iter(_parts(case, op, kinds, points, 0)), ()) if points else ()


def _parts(
    case: Case, op: Operation, kinds: Sequence[Kind], points: int, nbytes: int
) -> tuple[tuple[tuple[Kind, Part], ...], ...]:
    """Arithmetic, and bytes, as each kind of device takes them; left out where there is none of it on some."""
    priced = [(kind, kind.rates.parts(op, case.program, points, nbytes)) for kind in kinds]
    columns = [tuple((kind, parts[k]) for kind, parts in priced) for k in range(2)]
    return tuple(column for column in columns if all(size for _, (_, size) in column))


def _touched(case: Case, op: Operation) -> int:
    """Bytes of what all points read and write, every element once; those that are known for certain."""
    shape, size = case.shape(op), case.algebra.size
    shapes = {name: case.program.tensor(name).shape for name in op.operands}
    images = operand_images(op, shapes, case.algebra.region(shape.domain))
    reads = zip(op.operands, shape.reads(shape.domain), strict=True)
    certain = [(name, region) for name, region in reads if images[name].exact and name not in op.data_dependent]
    nbytes = sum(size(region) * case.item_bytes(name) for name, region in certain)
    written = shape.image(shape.domain)
    if shape.domain not in shape.hulls and not op.where:
        nbytes += size(written) * case.item_bytes(op.output)
    return nbytes


def _even(case: Case, op: Operation) -> tuple[int, int]:
    """Points and bytes of which a share of the points has at least that share; none where points are left out."""
    ends = {dim.name: dim.extent for dim in op.dims}
    if op.where or op.scan is not None or _ends(op) != ends:
        return 0, 0
    shapes = {name: case.program.tensor(name).shape for name in (*op.operands, op.output)}
    even = {read.tensor for read in op.reads if not read.guard and _box(read.index, ends) == shapes[read.tensor]}
    even -= op.data_dependent
    even |= {op.output} if _box(op.write, ends) == shapes[op.output] else set()
    return prod(ends.values()), sum(prod(shapes[name]) * case.item_bytes(name) for name in even)
