"""What transfers move, each kind of them counted once: those that are alike but for sizes move in proportion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from ...records import Width
from ..format.folds import Source
from ..format.loads import IN, Loads, complete_loads
from ..format.senders import Groups
from .alike import Forms, Key
from .along import Along
from .columns import Ints
from .folding import Folding
from .kinds import complete_kind, partial_kind
from .layouts import Layout
from .pairs import Pair, Related

MANY = 128  # ranks, among which looking at every pair of regions takes longer than arithmetic on their axes

Where = tuple[Any, ...]
"""Numbers of layouts that are there, and of those that are needed: of pairs."""
Busiest = tuple[int, ...]
"""Per level what the busiest rank receives, or sends."""


class Moved(NamedTuple):
    """Of complete data: elements that the busiest ranks receive, and send; what a library would call it.

    ``size``: elements of the tensor.
    """

    size: int
    received: Busiest
    sent: Busiest
    kind: str

    def of(self, size: int) -> Moved:
        """A transfer that is alike, of a tensor of so many elements."""
        received, sent = (tuple(count * size // self.size for count in some) for some in (self.received, self.sent))
        return Moved(size, received, sent, self.kind)


class Folded(NamedTuple):
    """Of parts that are folded: elements, and bytes that ranks receive in all; per level those of the busiest.

    ``contributed``: those of the busiest that are contributions; ``handed``: the most that a rank receives of results.
    ``sharing``: what all counts of ranks that share a piece divide; 0 where that is not known.
    """

    size: int
    elements: int
    nbytes: int
    busiest: Busiest
    contributed: Busiest
    handed: int
    kind: str
    sharing: int

    def of(self, size: int) -> Folded:
        """A transfer that is alike, of a tensor of so many elements."""
        known = (self.elements, self.nbytes, self.handed)
        elements, nbytes, handed = (count * size // self.size for count in known)
        each = (self.busiest, self.contributed)
        busiest, contributed = (tuple(count * size // self.size for count in some) for some in each)
        return Folded(size, elements, nbytes, busiest, contributed, handed, self.kind, self.sharing)


class _Count(Protocol):
    def of(self, size: int) -> Self:
        """The same of a transfer that is alike."""


T = TypeVar("T", bound=_Count)


class Counted(NamedTuple, Generic[T]):
    """Of some pairs: what is known of each class of them, and per pair its class."""

    of: Ints
    classes: list[T]


@dataclass(frozen=True)
class _Way(Generic[T]):
    """How transfers of one sort are counted.

    ``count``: those from one layout to others, by numbers. ``fits``: whether those that are alike are in proportion to
    one. ``mark``: what else they are known by.
    """

    mark: tuple[object, ...]
    count: Callable[[int, list[int]], list[T]]
    fits: Callable[[T], bool]


class Counts:
    """Counts transfers on one mesh. ``groups``: see `planner.format.senders`."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self._forms = Forms()
        self._known: dict[object, Any] = {}

    def moved(self, have: Layout, need: Layout) -> Moved:
        """Of one transfer between complete layouts."""
        return self._one(have, need, self._moving([have], [need], lambda _, __: have.pair(need)))

    def all_moved(
        self, haves: Sequence[Layout], needs: Sequence[Layout], where: Where, related: Related
    ) -> Counted[Moved]:
        """Of all pairs with these numbers, both complete."""
        way = self._moving(haves, needs, lambda row, column: related.of(row).pair(column))
        return self._counted(haves, needs, where, way)

    def _moving(
        self, haves: Sequence[Layout], needs: Sequence[Layout], pair: Callable[[int, int], Pair]
    ) -> _Way[Moved]:
        return _Way((), lambda row, some: self._moved(haves[row], [(needs[k], pair(row, k)) for k in some]), _always)

    def folded(self, have: Layout, need: Layout, width: Width) -> Folded:
        """Of one transfer from a partial layout to a complete one."""
        return self._one(have, need, self._folding([have], [need], width))

    def all_folded(
        self, haves: Sequence[Layout], needs: Sequence[Layout], where: Where, width: Width
    ) -> Counted[Folded]:
        """Of all pairs with these numbers, from partial layouts to complete ones."""
        return self._counted(haves, needs, where, self._folding(haves, needs, width))

    def _folding(self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width) -> _Way[Folded]:
        divisible = self._forms.divisible(haves, needs, packed=width.packed)
        whole = not width.packed or all(self._last_whole(layout) for layout in (*haves, *needs))
        return _Way(
            (width, len(haves[0].shape) > width.packed),
            lambda row, some: self._folded(haves[row], [needs[k] for k in some], width),
            lambda fold: bool(whole and fold.sharing and divisible % fold.sharing == 0),
        )

    def _last_whole(self, layout: Layout) -> bool:
        forms = self._forms.of(layout)
        return forms is None or not forms[-1]

    def _one(self, have: Layout, need: Layout, way: _Way[T]) -> T:
        key, alone = self._forms.key(have, need), (way.mark, have, need)
        alike: T | None = None if key is None else self._known.get((way.mark, key))
        if alike is None and alone not in self._known:
            self._count([have], [need], [(0, 0, key)], way)
            alike = None if key is None else self._known.get((way.mark, key))
        if alike is not None and way.fits(alike):
            return alike.of(prod(have.shape))
        self._count([have], [need], [(0, 0, None)], way)
        known: T = self._known[alone]
        return known

    def _counted(self, haves: Sequence[Layout], needs: Sequence[Layout], where: Where, way: _Way[T]) -> Counted[T]:
        classes, size = self._forms.classes(haves, needs, where), prod(haves[0].shape)
        rows, columns = (some.tolist() for some in where)
        told = zip(classes.first, classes.keys, strict=True)
        self._count(haves, needs, [(rows[k], columns[k], key) for k, key in told], way)
        found: list[T] = []
        numbers, apart = np.zeros(len(classes.keys), dtype=np.int64), list[int]()
        for number, key in enumerate(classes.keys):
            known = None if key is None else self._known.get((way.mark, key))
            if known is not None and way.fits(known):
                numbers[number] = len(found)
                found.append(known.of(size))
            else:
                apart += classes.members(number)
        of = numbers[classes.of]
        self._count(haves, needs, [(rows[k], columns[k], None) for k in apart], way)
        for k in apart:
            of[k] = len(found)
            found.append(self._known[way.mark, haves[rows[k]], needs[columns[k]]])
        return Counted(of, found)

    def _count(
        self,
        haves: Sequence[Layout],
        needs: Sequence[Layout],
        pairs: Sequence[tuple[int, int, Key | None]],
        way: _Way[T],
    ) -> None:
        """Those of some pairs that are not known; ``pairs``: their numbers, and what those alike are known by."""
        new: dict[int, list[tuple[int, Key | None]]] = {}
        for row, column, key in pairs:
            alone = (way.mark, haves[row], needs[column])
            if alone not in self._known and (key is None or (way.mark, key) not in self._known):
                new.setdefault(row, []).append((column, key))
        for row, some in new.items():
            for (column, key), one in zip(some, way.count(row, [column for column, _ in some]), strict=True):
                alike = key is not None and way.fits(one)
                self._known[(way.mark, key) if alike else (way.mark, haves[row], needs[column])] = one

    @cached_property
    def _many(self) -> bool:
        """Whether there are so many ranks that transfers are counted one by one by axes, where they can be."""
        return len(self.groups[0]) >= MANY

    def _moved(self, have: Layout, needs: list[tuple[Layout, Pair]]) -> list[Moved]:
        along = Along.of(have, self.groups) if self._many else None
        counts = [None if along is None else along.moved(need) for need, _ in needs]
        others = [k for k, count in enumerate(counts) if count is None]
        if others:
            spreads = [needs[k][0].spread for k in others]
            for k, count in zip(others, complete_loads(have.spread, spreads, self.groups), strict=True):
                counts[k] = count
        busiest = [[tuple(way) for way in count.max(axis=2).tolist()] for count in counts if count is not None]
        return [
            Moved(prod(have.shape), received, sent, complete_kind(have, need, pair))
            for (need, pair), (received, sent) in zip(needs, busiest, strict=True)
        ]

    def _shared(self, have: Layout, needs: list[Layout], width: Width) -> tuple[Loads, list[int]]:
        """Of folds what `planner.format.folds.Source.shared` says."""
        assert have.parts is not None
        folding = Folding.of_parts(have, self.groups) if self._many else None
        known = [None if folding is None else folding.folded(need, records=width.packed) for need in needs]
        others = [k for k, counts in enumerate(known) if counts is None]
        if others:
            source = Source(have.spread, have.parts, self.groups, records=width.packed)
            loads, sharing = source.shared([needs[k].spread for k in others])
            for k, *found in zip(others, loads.elements, loads.records, sharing, strict=True):
                known[k] = (found[0], found[1], found[2])
        told, contributed, counts = zip(*(found for found in known if found is not None), strict=True)
        return Loads(np.stack(told), np.stack(contributed)), list(counts)

    def _folded(self, have: Layout, needs: list[Layout], width: Width) -> list[Folded]:
        loads, sharing = self._shared(have, needs, width)
        nbytes = loads.nbytes(width)
        received, busiest = nbytes[:, IN].sum(axis=(1, 2)).tolist(), nbytes.max(axis=(1, 3)).tolist()
        contributed = (loads.records * width.partial).max(axis=(1, 3)).tolist()
        handed = (loads.elements[:, IN].sum(axis=1).max(axis=1) * width.complete).tolist()
        elements = (loads.elements + loads.records)[:, IN].sum(axis=(1, 2)).tolist()
        told = zip(needs, elements, received, busiest, contributed, handed, sharing, strict=True)
        return [
            Folded(prod(have.shape), moved, total, tuple(most), tuple(given), heard, partial_kind(need), counts)
            for need, moved, total, most, given, heard, counts in told
        ]


def _always(_: Moved) -> bool:
    """Complete data moves in proportion."""
    return True
