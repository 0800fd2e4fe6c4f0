"""Minimisation of a sum of factors, one variable eliminated after another.

Where few variables meet in factors, all that lies behind them fits in one array over their values (bucket elimination:
Dechter, Artificial Intelligence 113, 1999). Where too many do, the factors of a variable are several buckets, each of
which takes the value that suits it (mini-buckets: Dechter and Rish, Journal of the ACM 50, 2003): the least sum is then
a bound. Costs are moved between the buckets of a variable until they agree as far as they can (Ihler, Flerova, Dechter
and Otten, UAI 2012). Everything is exact in 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """An order in which to eliminate. `place`: where along the problem a variable comes up. Raises TooWide.

    `widest`: entries that an array may have, so that a variable may have several buckets (`parts`); it is never too
    wide then. `shifts`: what is added to a bucket by value of its variable, of all buckets of a variable together
    nothing or less.
    """

    def __init__(
        self,
        sizes: Mapping[int, int],
        scopes: Sequence[tuple[int, ...]],
        most_work: int = MOST_WORK,
        place: Mapping[int, int] | None = None,
        widest: int | None = None,
    ) -> None:
        self.sizes, self.given = sizes, len(scopes)
        # A variable with one value is no axis: NumPy has 64 of them at most.
        scopes = [tuple(v for v in scope if sizes[v] > 1) for scope in scopes]
        self.shapes = [tuple(sizes[v] for v in scope) for scope in scopes]
        self.buckets: list[_Bucket] = []
        self.reader: dict[int, int] = {}  # factor -> the bucket that reads it
        self.parts: dict[int, list[int]] = {v: [] for v in sizes}  # variable -> its buckets
        self.shifts: Mapping[int, Ints] = {}  # bucket -> by value of its variable
        if widest is None:
            self.order = _cheapest_order(sizes, scopes, most_work, place or {v: v for v in sizes})
        else:
            self.order = _order(sizes, scopes, None, dict.fromkeys(sizes, 0))
        held: dict[int, dict[int, tuple[int, ...]]] = {v: {} for v in sizes}
        for number, scope in enumerate(scopes):
            for v in scope:
                held[v][number] = scope
        for v in self.order:
            for mine in _together(sizes, v, held.pop(v), widest):
                self._add(v, mine, held)

    def _add(self, v: int, mine: Mapping[int, tuple[int, ...]], held: Mapping[int, dict[int, tuple[int, ...]]]) -> None:
        """A bucket of a variable."""
        position = len(self.buckets)
        scope = (v, *dict.fromkeys(w for variables in mine.values() for w in variables if w != v))
        arranged = tuple(_arranged(variables, scope) for variables in mine.values())
        self.buckets.append(_Bucket(scope, tuple(self.sizes[w] for w in scope), tuple(mine), arranged))
        self.parts[v].append(position)
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

    @property
    def parted(self) -> dict[int, list[int]]:
        """The variables that have several buckets."""
        return {v: positions for v, positions in self.parts.items() if len(positions) > 1}

    def least(self, factors: Sequence[Ints]) -> tuple[int, dict[int, int], list[Ints]]:
        """The least sum (at least FORBIDDEN / 2 where all are forbidden), values that attain it, all factors.

        Where a variable has several buckets, the sum is a bound, and the values need not attain it.
        """
        known = [costs.reshape(shape) for costs, shape in zip(factors, self.shapes, strict=True)]
        total = sum(int(costs) for costs in known if not costs.ndim)
        for position in range(len(self.buckets)):
            message = np.minimum(self._joint(position, known).min(axis=0), FORBIDDEN)
            known.append(message)
            total += int(message) if message.ndim == 0 else 0
        values: dict[int, int] = {}
        for v in reversed(self.order):
            values[v] = self._best(v, known, values)
        return total, values, known

    def _joint(self, position: int, known: Sequence[Ints]) -> Ints:
        """The sum of a bucket's factors."""
        bucket = self.buckets[position]
        joint = np.zeros(bucket.shape, dtype=np.int64)
        if position in self.shifts:
            joint += self.shifts[position].reshape(-1, *(1,) * (joint.ndim - 1))
        for count, (number, (axes, index)) in enumerate(zip(bucket.inputs, bucket.arranged, strict=True)):
            joint += known[number].transpose(axes)[index]
            if count % _ADDENDS == _ADDENDS - 1:
                np.minimum(joint, FORBIDDEN, out=joint)
        return joint

    def _best(self, v: int, known: Sequence[Ints], values: Mapping[int, int]) -> int:
        """The value of a variable, all others that it meets being decided."""
        total = np.zeros(self.sizes[v], dtype=np.int64)
        for bucket in (self.buckets[position] for position in self.parts[v]):
            rest = tuple(values[w] for w in bucket.scope[1:])
            for number, (axes, index) in zip(bucket.inputs, bucket.arranged, strict=True):
                factor = known[number].transpose(axes)[index]
                at = tuple(0 if size == 1 else value for size, value in zip(factor.shape[1:], rest, strict=True))
                total = np.minimum(total + factor[(slice(None), *at)], FORBIDDEN)
        return int(total.argmin())

    def least_with(self, known: Sequence[Ints]) -> dict[int, Ints]:
        """Per variable, for each of its values the least sum with it; `known` are all factors after `least`."""
        told = self._told(known)
        return {v: np.max([told[position] for position in mine], axis=0) for v, mine in self.parts.items()}

    def _told(self, known: Sequence[Ints]) -> list[Ints]:
        """The same by each bucket of its variable."""
        outer: dict[int, Ints] = {}  # per bucket: the least of all that is not behind it, over its scope's rest
        found: dict[int, Ints] = {}
        roots = sum(int(costs) for costs in known if not costs.ndim)
        for position in reversed(range(len(self.buckets))):
            bucket = self.buckets[position]
            if len(bucket.scope) == 1:
                outer[position] = np.array(roots - int(known[self.given + position]))
            joint = np.minimum(self._joint(position, known), FORBIDDEN) + outer.pop(position)
            for number in bucket.inputs:
                if number >= self.given:
                    with_it = _over(joint, bucket.scope, self.buckets[number - self.given].scope[1:])
                    ruled_out = with_it >= FORBIDDEN // 2
                    outer[number - self.given] = np.where(ruled_out, FORBIDDEN, with_it - known[number])
            found[position] = np.minimum(joint.reshape(joint.shape[0], -1).min(axis=1), FORBIDDEN)
        return [found[position] for position in range(len(self.buckets))]

    def even(self, known: Sequence[Ints], step: float) -> None:
        """Moves costs between the buckets of a variable: from where a value costs more, all told, to where it costs
        less. `step`: so much of the way on which the bound would not fall if this were the only variable.
        """
        told, shifts = self._told(known), dict(self.shifts)
        for positions in self.parted.values():
            costs = np.array([told[position] for position in positions])
            ruled_out = (costs >= FORBIDDEN // 2).any(axis=0)
            away = np.where(ruled_out, 0, np.minimum(costs, FORBIDDEN // 2).sum(axis=0) // len(costs) - costs)
            moved = np.floor(away * (step / len(costs))).astype(np.int64)
            moved[0] -= np.maximum(moved.sum(axis=0), 0)  # what rounding added
            for position, more in zip(positions, moved, strict=True):
                shifts[position] = shifts.get(position, 0) + more
        self.shifts = shifts


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


def _together(
    sizes: Mapping[int, int], v: int, factors: Mapping[int, tuple[int, ...]], widest: int | None
) -> list[Mapping[int, tuple[int, ...]]]:
    """The factors of a variable, in groups none of which is over more entries than the widest: a factor goes where it
    adds least, the largest first.
    """

    def entries(scope: frozenset[int]) -> int:
        return prod(sizes[w] for w in scope)

    scopes = {frozenset((v, *variables)) for variables in factors.values()}
    if widest is None or entries(frozenset().union(*scopes)) <= widest:
        return [factors]
    groups: list[frozenset[int]] = []
    for scope in sorted(scopes, key=lambda scope: (-entries(scope), sorted(scope))):
        larger = [(k, entries(group), entries(group | scope)) for k, group in enumerate(groups)]
        fitting = [(after / before, k) for k, before, after in larger if after <= max(before, widest)]
        if fitting:
            groups[min(fitting)[1]] |= scope
        else:
            groups.append(scope)
    found: list[dict[int, tuple[int, ...]]] = [{} for _ in groups]
    for number, variables in factors.items():
        found[next(k for k, group in enumerate(groups) if group.issuperset(variables))][number] = variables
    return [some for some in found if some]


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
    sizes: Mapping[int, int], scopes: Sequence[tuple[int, ...]], most_work: int | None, stage: Mapping[int, int]
) -> list[int]:
    """Stage by stage, in each by least work first. Raises TooWide, where there is a most."""
    near: dict[int, set[int]] = {v: set() for v in sizes}
    for scope in scopes:
        for v in scope:
            near[v].update(scope)
    for v, others in near.items():
        others.discard(v)
    work = {v: (stage[v], _work(sizes, v, near), v) for v in near}
    order, spent = [], 0
    while near:
        v = min(work, key=work.__getitem__)
        size = work.pop(v)[1]
        spent += size
        if most_work is not None and (size > MOST_ENTRIES or spent > most_work):
            raise TooWide
        others = near.pop(v)
        for w in others:
            near[w] |= others
            near[w] -= {v, w}
        for w in others:
            work[w] = (stage[w], _work(sizes, w, near), w)
        order.append(v)
    return order


def _work(sizes: Mapping[int, int], v: int, near: Mapping[int, set[int]]) -> int:
    return sizes[v] * prod(sizes[w] for w in near[v])
