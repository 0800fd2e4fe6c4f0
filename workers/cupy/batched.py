"""Ranges of keys of several attentions as calls of a library: those of one shape that lie evenly are one call, a batch.

early rows, keys 0:n up to their own       before: a call each, of which the second waits for the first's last blocks
late rows, keys 3n:4n up to their own      after: one call of two, n rows and 3n keys apart
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .machine import Attention, Heads, Keys


@dataclass(frozen=True)
class Asked:
    """A call: ``batches`` of queries, and of as many keys and values as ``part`` says, which begin where these do.

    ``members``: whose results they are, equal shares of the batches in this order, as numbers of an attention and of
    one of its parts.
    """

    attention: Attention
    part: Keys
    query: Heads
    key: Heads
    value: Heads
    batches: int
    members: tuple[tuple[int, int], ...]

    @property
    def share(self) -> int:
        """Batches of a member."""
        return self.batches // len(self.members)


def asked_of(attentions: Sequence[Attention]) -> list[Asked]:
    """The calls of all parts of attentions."""
    alike: dict[Hashable, list[Asked]] = defaultdict(list)
    for number, a in enumerate(attentions):
        for place, part in enumerate(a.parts):
            key, value = (_from(x, part.first) for x in (a.key, a.value))
            one = Asked(a, part, a.query, key, value, a.batches, ((number, place),))
            alike[_alike(one)].append(one)
    return [made for found in alike.values() for made in _as_one(found)]


def _from(x: Heads, row: int) -> Heads:
    return replace(x, offset=x.offset + row * x.row)


def _alike(one: Asked) -> Hashable:
    """What the members of a batch have in common; nobody else has it of one that is several batches already."""
    a = one.attention
    if a.batches > 1:
        return one.members
    lie = tuple((x.array.pointer, x.array.size, x.row, x.head) for x in (one.query, one.key, one.value))
    return a.rows, a.heads, a.groups, a.width, a.scale, one.part.count, one.part.causal, lie


def _as_one(found: Sequence[Asked]) -> list[Asked]:
    """Calls that are alike as one, where every side of each begins as far behind that of the one before."""
    inner = sorted(found, key=lambda one: one.query.offset)
    steps = {tuple(b.offset - a.offset for a, b in zip(_sides(x), _sides(y), strict=True)) for x, y in pairwise(inner)}
    if len(steps) != 1 or not all(n > 0 for step in steps for n in step):
        return list(found)
    first, [step] = inner[0], steps
    query, key, value = (replace(x, batch=n) for x, n in zip(_sides(first), step, strict=True))
    members = tuple(one.members[0] for one in inner)
    return [replace(first, query=query, key=key, value=value, batches=len(inner), members=members)]


def _sides(one: Asked) -> tuple[Heads, Heads, Heads]:
    return one.query, one.key, one.value
