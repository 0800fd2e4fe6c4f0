"""Proofs that shards partition a domain: every point in exactly one. A proof that fails names a point and the shards.

Two forms share no code: `prove_relation` asks isl about one relation shard -> point (it covers iff its range is the
domain, it is disjoint iff its reverse is single-valued); `prove_regions` compares the sets themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ..errors import TapestryError
from .region import Box, Grid, Region

if TYPE_CHECKING:
    import islpy

    from .indexset import IndexSet

Point = tuple[int, ...]


class PartitionError(TapestryError):
    """Shards that do not partition their domain. ``point`` is a witness, ``shards`` those that hold it."""

    def __init__(self, what: str, point: Point, shards: tuple[object, ...], sides: Mapping[str, object]) -> None:
        held = " and ".join(f"shard {_shown(shard)}" for shard in shards) or "no shard"
        super().__init__(what, sides=sides, witness=f"{_shown(point)} is in {held}")
        self.point, self.shards = point, shards


def _shown(value: object) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, tuple) else str(value)


class NotCovered(PartitionError):
    """A point of the domain is in no shard."""

    def __init__(self, point: Point, sides: Mapping[str, object]) -> None:
        super().__init__("the shards do not cover the domain", point, (), sides)


class LeavesDomain(PartitionError):
    """A shard has a point outside of the domain."""

    def __init__(self, point: Point, shard: object, sides: Mapping[str, object]) -> None:
        super().__init__("a shard leaves the domain", point, (shard,), sides)


class Overlap(PartitionError):
    """Two shards have a point in common."""

    def __init__(self, point: Point, shards: tuple[object, object], sides: Mapping[str, object]) -> None:
        super().__init__("shards overlap", point, shards, sides)


def prove_regions(shards: Sequence[Region], domain: Box | Region) -> None:
    """Every point of ``domain`` lies in exactly one shard, and no shard leaves it; else PartitionError with a witness.

    Equal counts prove nothing by themselves:

    >>> corner = [Box((k, k), (k + 1, k + 1)).region() for k in (0, 0, 1, 1)]
    >>> prove_regions(corner, Box((0, 0), (2, 2)))
    Traceback (most recent call last):
    tapestry.space.proofs.Overlap: shards overlap
      shard 0   0:1,0:1
      shard 1   0:1,0:1      witness: (0, 0) is in shard 0 and shard 1
    """
    whole = domain if isinstance(domain, Region) else domain.region()
    for k, shard in enumerate(shards):
        if not shard <= whole:
            raise LeavesDomain((shard - whole).witness() or (), k, {f"shard {k}": shard, "domain": whole})
    for a, b, common in _meetings(shards):
        point = tuple(axis.lo for axis in common.axes)
        raise Overlap(point, (a, b), {f"shard {a}": shards[a], f"shard {b}": shards[b]})
    covered = sum(shard.size for shard in shards)
    if covered != whole.size:
        for shard in shards:
            whole = whole - shard
        sides = {"domain": f"{covered + whole.size} points", "shards": f"{covered} points"}
        raise NotCovered(whole.witness() or (), sides)


def _meetings(shards: Sequence[Region]) -> Iterator[tuple[int, int, Grid]]:
    """Pairs of shards that share points, found by a sweep along the axis on which most intervals begin."""
    parts = [(k, grid) for k, shard in enumerate(shards) for grid in shard.grids]
    if not parts or not parts[0][1].ndim:
        yield from ((a, b, grid) for (a, grid), (b, _) in pairwise(parts) if a != b)
        return
    begins = [{run.start for _, grid in parts for run in grid.axes[axis].runs} for axis in range(parts[0][1].ndim)]
    axis = max(range(len(begins)), key=lambda axis: len(begins[axis]))
    spans = sorted((run.start, run.stop, n) for n, (_, grid) in enumerate(parts) for run in grid.axes[axis].runs)
    for at, (_, stop, n) in enumerate(spans):
        for start, _, m in spans[at + 1 :]:
            if start >= stop:
                break
            common = parts[n][1] & parts[m][1] if parts[n][0] != parts[m][0] else None
            if common:
                yield min(parts[n][0], parts[m][0]), max(parts[n][0], parts[m][0]), common


def prove_relation(relation: islpy.Map, domain: IndexSet) -> None:
    """One relation from shards (integer tuples) to points partitions the domain; else PartitionError with a witness."""
    from .polyhedral import point_of

    outside = point_of(relation.range().subtract(domain.points))
    if outside is not None:
        raise LeavesDomain(outside, _some_shard(relation, outside), _sides(relation, domain))
    missing = point_of(domain.points.subtract(relation.range()))
    if missing is not None:
        raise NotCovered(missing, _sides(relation, domain))
    if not relation.reverse().is_single_valued():
        first, second, point = _shared(relation)
        raise Overlap(point, (first, second), _sides(relation, domain))


def _sides(relation: islpy.Map, domain: IndexSet) -> dict[str, object]:
    return {"domain": str(domain), "shards": str(relation)}


def _singleton(point: Point) -> islpy.Set:
    from .polyhedral import names_of, read_set, set_text

    names = names_of(len(point))
    condition = " and ".join(f"{name} = {value}" for name, value in zip(names, point, strict=True)) or "true"
    return read_set(set_text(names, condition))


def _some_shard(relation: islpy.Map, point: Point) -> Point:
    from .polyhedral import point_of

    return point_of(relation.intersect_range(_singleton(point)).domain()) or ()


def _shared(relation: islpy.Map) -> tuple[Point, Point, Point]:
    """Two shards and a point of both: a pair of the relation composed with its reverse, off the diagonal."""
    import islpy

    from .polyhedral import point_of

    pairs = relation.apply_range(relation.reverse())
    pairs = pairs.intersect(islpy.Map.lex_lt(relation.domain().get_space()))
    first = point_of(pairs.domain()) or ()
    second = point_of(pairs.intersect_domain(_singleton(first)).range()) or ()
    both = [relation.intersect_domain(_singleton(shard)).range() for shard in (first, second)]
    return first, second, point_of(both[0].intersect(both[1])) or ()
