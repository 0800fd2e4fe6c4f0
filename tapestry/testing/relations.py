"""Which elements of its sources each element of a result is computed from, as sets of isl.

The points of a program's operations that lie on the way from an element of an output down to an element of an input,
param, state or constant are one set for each way through the operations:

    y[i] = sum[k] t[i, k] * w[k];  t[i, k] = x[i + k]
    { [e0, i, k, i', k', s0] : i = e0, i' = i, k' = k, s0 = i' + k' }

Its ends say what is computed from what, its number of points says how often: what a fold goes over twice, or leaves
out, shows there even where the ends are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..blocks import BLOCKS
from ..expr import FUNCTIONS, Bound, Call, Cast, Expr, Inside, Read
from ..program import Block, Dim, Operation, Program
from ..space import polyhedral as isl

if TYPE_CHECKING:
    import islpy

MOST_WAYS = 400  # through the operations of one program; beyond, it says too little for the time it takes


class TooManyWays(Exception):
    """A program with more ways from its outputs to its inputs than are worth following."""


@dataclass(frozen=True)
class Way:
    """One way from an output to a source: names of all coordinates, where the points between them start, conditions."""

    output: str
    source: str
    ends: tuple[int, int]
    names: tuple[str, ...]
    conditions: tuple[str, ...]

    @property
    def points(self) -> islpy.Set:
        return isl.read_set(isl.set_text(self.names, " and ".join(self.conditions) or "true"))

    def relation(self, points: islpy.Set) -> islpy.Set:
        """Pairs of an element of the output and one of the source."""
        import islpy

        first, last = self.ends
        return points.project_out(islpy.dim_type.set, first, len(self.names) - first - last)


@dataclass(frozen=True)
class Relation:
    """All ways from one output to one source: the pairs of their elements, and how many points lie on the ways."""

    pairs: islpy.Set
    count: int | None


def relations(program: Program) -> dict[tuple[str, str], Relation]:
    """(Output, or state that is replaced; source) -> how they are related. TooManyWays beyond `MOST_WAYS`."""
    found: dict[tuple[str, str], Relation] = {}
    for name, tensor in [*((out, out) for out in program.outputs), *program.states]:
        for way in _ways(program, name, tensor):
            points = way.points
            here = Relation(way.relation(points), isl.count_within(points))
            key = (way.output, way.source)
            found[key] = _both(found[key], here) if key in found else here
    return {key: relation for key, relation in found.items() if not relation.pairs.is_empty()}


def _both(a: Relation, b: Relation) -> Relation:
    return Relation(a.pairs.union(b.pairs), None if a.count is None or b.count is None else a.count + b.count)


def _ways(program: Program, name: str, tensor: str) -> Iterator[Way]:
    elements = tuple(f"e{k}" for k in range(len(program.tensor(tensor).shape)))
    left: list[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = [(tensor, elements, elements, ())]
    count = 0
    while left:
        at, place, names, conditions = left.pop()
        count += 1
        if count > MOST_WAYS:
            raise TooManyWays(program.name)
        if at not in program.producer:
            ends = tuple(f"s{k}" for k in range(len(place)))
            equal = tuple(f"{end} = {row}" for end, row in zip(ends, place, strict=True))
            source = program.tensor(at)
            label = at if source.data is None else repr((source.dtype, source.shape, source.data))
            yield Way(name, label, (len(elements), len(ends)), (*names, *ends), (*conditions, *equal))
            continue
        op = program.producer[at]
        alias = {dim.name: f"p{len(names) + k}" for k, dim in enumerate(op.dims)}
        here = (*conditions, *_at(op, place, alias))
        for k, (read, chosen) in enumerate(_occurrences(op.body)):
            others = {dim.name: f"{alias[dim.name]}_" for dim in _spread(op, k)}
            extents = tuple(f"0 <= {others[dim.name]} < {dim.extent}" for dim in _spread(op, k))
            at_read = alias | others
            guard = tuple(f"({isl.bound_text(bound, at_read)})" for bound in read.guard)
            rows = tuple(f"({isl.affine_text(row, at_read)})" for row in read.index)
            taken = tuple(_chosen(bounds, truth, alias) for bounds, truth in chosen)
            known = (*names, *alias.values(), *others.values())
            left.append((read.tensor, rows, known, (*here, *extents, *guard, *taken)))


def _spread(op: Operation, k: int) -> tuple[Dim, ...]:
    """The dimensions along which all elements of read k enter each element that an operation writes."""
    if not isinstance(op.body, Block):
        return ()
    kernel = BLOCKS[op.body.kernel]
    spread = kernel.spread is None or kernel.reads[k] in kernel.spread
    return op.dims[len(op.dims) - kernel.uncut :] if spread else ()


def _at(op: Operation, place: Sequence[str], alias: Mapping[str, str]) -> Iterator[str]:
    """The points of an operation that compute the element at a place."""
    yield from (f"0 <= {alias[dim.name]} < {dim.extent}" for dim in op.dims)
    yield from (f"({isl.bound_text(bound, alias)})" for bound in op.where)
    for row, element in zip(op.write, place, strict=True):
        yield f"{isl.affine_text(row, alias)} = {element}"


def _chosen(bounds: tuple[Bound, ...], truth: bool, alias: Mapping[str, str]) -> str:
    text = " and ".join(f"({isl.bound_text(bound, alias)})" for bound in bounds) or "true"
    return f"({text})" if truth else f"not ({text})"


Chosen = tuple[tuple[tuple[Bound, ...], bool], ...]


def _occurrences(body: Expr | Block) -> Iterator[tuple[Read, Chosen]]:
    """Every read of a body, as often as it stands there, with the conditions on indices under which it counts."""
    if isinstance(body, Block):
        yield from ((read, ()) for read in body.reads)
        return
    left: list[tuple[Expr, Chosen]] = [(body, ())]
    while left:
        node, chosen = left.pop()
        if isinstance(node, Read):
            yield node, chosen
        elif isinstance(node, Cast):
            left.append((node.arg, chosen))
        elif isinstance(node, Call):
            test = node.args[0]
            decides = FUNCTIONS[node.function].result == "branch"
            for k, arg in enumerate(node.args):
                more = ((test.bounds, k == 1),) if decides and k and isinstance(test, Inside) else ()
                left.append((arg, (*chosen, *more)))
