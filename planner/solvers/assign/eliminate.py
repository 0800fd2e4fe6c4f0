"""Exact minimisation of a sum of factors, one variable eliminated after another.

Where few variables meet in factors, all that lies behind them fits in one array over their values (bucket elimination:
Dechter, Artificial Intelligence 113, 1999). Everything is exact in 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from .factors import TooWide
from .problem import FORBIDDEN, Ints

MOST_ENTRIES = 12_000_000  # in the largest array of an elimination
MOST_WORK = 60_000_000  # entries in all of its arrays together
_ENTRIES_PER_S = 20_000_000  # that one elimination goes through: what fits the time, where that is short
_ADDENDS = 7  # forbidden entries whose sum still fits 64 bits


def affordable(seconds: float) -> int:
    """Entries of an elimination that fit into so much time."""
    return int(min(MOST_WORK, _ENTRIES_PER_S * max(0.0, seconds)))


@dataclass(frozen=True, eq=False)
class _Bucket:
    """What happens when a variable goes: the factors that hold it, arranged over `scope`, which begins with it."""

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    inputs: tuple[int, ...]  # numbers of factors; messages follow the given factors in the order of the buckets
    arranged: tuple[tuple[tuple[int, ...], tuple[Any, ...]], ...]  # per input: axes transposed, then index


class Elimination:
    """An order in which to eliminate, unless one is given. `place`: where along the problem a variable comes up. Raises
    TooWide where it has to look for the order.
    """

    def __init__(
        self,
        sizes: Mapping[int, int],
        scopes: Sequence[tuple[int, ...]],
        most_work: int = MOST_WORK,
        place: Mapping[int, int] | None = None,
        order: Sequence[int] = (),
    ) -> None:
        self.sizes, self.given = sizes, len(scopes)
        # A variable with one value is no axis: NumPy has 64 of them at most.
        scopes = [tuple(v for v in scope if sizes[v] > 1) for scope in scopes]
        self.shapes = [tuple(sizes[v] for v in scope) for scope in scopes]
        self.buckets: list[_Bucket] = []
        self.reader: dict[int, int] = {}  # factor -> the bucket that reads it
        self.order = order or _cheapest_order(sizes, scopes, most_work, place or {v: v for v in sizes})
        held: dict[int, dict[int, tuple[int, ...]]] = {v: {} for v in sizes}
        for number, scope in enumerate(scopes):
            for v in scope:
                held[v][number] = scope
        for position, v in enumerate(self.order):
            mine = held.pop(v)
            scope = (v, *dict.fromkeys(w for variables in mine.values() for w in variables if w != v))
            arranged = tuple(_arranged(variables, scope) for variables in mine.values())
            self.buckets.append(_Bucket(scope, tuple(sizes[w] for w in scope), tuple(mine), arranged))
            for number, variables in mine.items():
                self.reader[number] = position
                for w in set(variables) - {v}:
                    del held[w][number]
            for w in scope[1:]:
                held[w][self.given + position] = scope[1:]

    @property
    def work(self) -> int:
        """Entries in all arrays together."""
        return sum(prod(bucket.shape) for bucket in self.buckets)

    def least(self, factors: Sequence[Ints]) -> tuple[int, dict[int, int], list[Ints]]:
        """The least sum (at least FORBIDDEN / 2 where all are forbidden), values that attain it, all factors."""
        known = [costs.reshape(shape) for costs, shape in zip(factors, self.shapes, strict=True)]
        total = sum(int(costs) for costs in known if not costs.ndim)
        for bucket in self.buckets:
            message = np.minimum(self._joint(bucket, known).min(axis=0), FORBIDDEN)
            known.append(message)
            total += int(message) if message.ndim == 0 else 0
        values: dict[int, int] = {}
        for bucket in reversed(self.buckets):
            values[bucket.scope[0]] = self._best(bucket, known, values)
        return total, values, known

    def _joint(self, bucket: _Bucket, known: Sequence[Ints]) -> Ints:
        """The sum of a bucket's factors."""
        joint = np.zeros(bucket.shape, dtype=np.int64)
        for count, (number, (axes, index)) in enumerate(zip(bucket.inputs, bucket.arranged, strict=True)):
            joint += known[number].transpose(axes)[index]
            if count % _ADDENDS == _ADDENDS - 1:
                np.minimum(joint, FORBIDDEN, out=joint)
        return joint

    def _best(self, bucket: _Bucket, known: Sequence[Ints], values: Mapping[int, int]) -> int:
        """The value of a bucket's variable, all others of its scope being decided."""
        total = np.zeros(bucket.shape[0], dtype=np.int64)
        rest = tuple(values[w] for w in bucket.scope[1:])
        for number, (axes, index) in zip(bucket.inputs, bucket.arranged, strict=True):
            factor = known[number].transpose(axes)[index]
            at = tuple(0 if size == 1 else value for size, value in zip(factor.shape[1:], rest, strict=True))
            total = np.minimum(total + factor[(slice(None), *at)], FORBIDDEN)
        return int(total.argmin())

    def least_with(self, known: Sequence[Ints]) -> dict[int, Ints]:
        """Per variable, for each of its values the least sum with it; `known` are all factors after `least`."""
        outer: dict[int, Ints] = {}  # per bucket: the least of all that is not behind it, over its scope's rest
        found: dict[int, Ints] = {}
        roots = [int(known[self.given + k]) for k, bucket in enumerate(self.buckets) if len(bucket.scope) == 1]
        roots += [int(costs) for costs in known[: self.given] if not costs.ndim]
        for position in reversed(range(len(self.buckets))):
            bucket = self.buckets[position]
            if len(bucket.scope) == 1:
                outer[position] = np.array(sum(roots) - int(known[self.given + position]))
            joint = np.minimum(self._joint(bucket, known), FORBIDDEN) + outer.pop(position)
            for number in bucket.inputs:
                if number >= self.given:
                    with_it = _over(joint, bucket.scope, self.buckets[number - self.given].scope[1:])
                    ruled_out = with_it >= FORBIDDEN // 2
                    outer[number - self.given] = np.where(ruled_out, FORBIDDEN, with_it - known[number])
            found[bucket.scope[0]] = np.minimum(joint.reshape(joint.shape[0], -1).min(axis=1), FORBIDDEN)
        return found


def _over(joint: Ints, scope: tuple[int, ...], kept: tuple[int, ...]) -> Ints:
    """The least over all variables but those kept, whose order it takes."""
    gone = tuple(axis for axis, w in enumerate(scope) if w not in kept)
    least: Ints = joint.min(axis=gone)
    rest = [w for w in scope if w in kept]
    return least.transpose([rest.index(w) for w in kept])


def _arranged(variables: tuple[int, ...], scope: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """How a factor over `variables` is laid over the axes of `scope`."""
    axes = tuple(sorted(range(len(variables)), key=lambda k: scope.index(variables[k])))
    present = set(variables)
    return axes, tuple(slice(None) if w in present else None for w in scope)


def _cheapest_order(
    sizes: Mapping[int, int], scopes: Sequence[tuple[int, ...]], most_work: int, place: Mapping[int, int]
) -> list[int]:
    """Variables by least work first; where that ends up too wide, along their places. Raises TooWide."""
    try:
        return _order(sizes, scopes, most_work, dict.fromkeys(sizes, 0))
    except TooWide:
        return _order(sizes, scopes, most_work, _stages(place, scopes))


def _stages(place: Mapping[int, int], scopes: Sequence[tuple[int, ...]]) -> dict[int, int]:
    """When a sweep along the places is done with each variable: after the last that it meets."""
    stage = dict(place)
    for scope in scopes:
        last = max((place[v] for v in scope), default=0)
        for v in scope:
            stage[v] = max(stage[v], last)
    return stage


def _order(
    sizes: Mapping[int, int], scopes: Sequence[tuple[int, ...]], most_work: int, stage: Mapping[int, int]
) -> list[int]:
    """Stage by stage, in each by least work first. Raises TooWide."""
    near = _neighbours(sizes, scopes)
    work = {v: (stage[v], _work(sizes, v, near), v) for v in near}
    order = []
    while near:
        v = min(work, key=work.__getitem__)
        size = work.pop(v)[1]
        most_work -= size
        if size > MOST_ENTRIES or most_work < 0:
            raise TooWide
        for w in _eliminated(v, near):
            work[w] = (stage[w], _work(sizes, w, near), w)
        order.append(v)
    return order


def order_of_most(
    sizes: Mapping[int, int], scopes: Sequence[tuple[int, ...]], most_entries: int, pick: Callable[[int], int]
) -> list[int]:
    """By least work first, without the variables that have to keep their values for no array to be larger. Which ones
    is for `pick(n)` to say, a number below n: one of the n that meet where an array would be too large.
    """
    near = _neighbours(sizes, scopes)
    work = {v: _work(sizes, v, near) for v in near}
    order = []
    while near:
        v = min(work, key=work.__getitem__)
        if work[v] <= most_entries:
            order.append(v)
            others = _eliminated(v, near)
        else:
            met = sorted([v, *near[v]])
            v = met[pick(len(met))]
            others = near.pop(v)
            for w in others:
                near[w].discard(v)
        del work[v]
        for w in others:
            work[w] = _work(sizes, w, near)
    return order


def _neighbours(sizes: Mapping[int, int], scopes: Sequence[tuple[int, ...]]) -> dict[int, set[int]]:
    """The variables that each meets in some factor."""
    near: dict[int, set[int]] = {v: set() for v in sizes}
    for scope in scopes:
        for v in scope:
            near[v].update(scope)
    for v, others in near.items():
        others.discard(v)
    return near


def _eliminated(v: int, near: dict[int, set[int]]) -> set[int]:
    """Takes a variable out, after which all that it met meet each other; says which these are."""
    others = near.pop(v)
    for w in others:
        near[w] |= others
        near[w] -= {v, w}
    return others


def _work(sizes: Mapping[int, int], v: int, near: Mapping[int, set[int]]) -> int:
    return sizes[v] * prod(sizes[w] for w in near[v])
