"""Choices one decision away, and the cheapest of many where what each costs at least is known, and what it costs takes
time to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heappop, heappush
from typing import TypeVar

from ..clock import Clock
from ..sharding.model import Costs, combine
from ..sharding.nodes import SourceNode

T = TypeVar("T")


def changed(
    costs: Costs, choice: Mapping[int, int], clock: Clock, among: Collection[int] | None = None
) -> list[tuple[int, dict[int, int]]]:
    """All choices one decision away, or one of some decisions, with what they cost; none where there is no time for
    all.
    """
    found = []
    parts = costs.parts(choice)
    for node in sorted(choice if among is None else among):
        for option in range(len(costs.model.nodes[node].labels)):
            if clock.up:
                return []
            if option != choice[node]:
                other = dict(choice)
                found.append((combine(costs.model.objective, costs.changed(other, parts, node, option)), other))
    return found


def cheapest(found: Iterable[tuple[int, T]], cost: Callable[[T], int], count: int) -> list[T]:
    """So many of them, the cheapest first, of equal ones the first. ``found``: with what each costs at least.

    >>> cheapest([(3, "far"), (1, "near"), (2, "low")], {"far": 3, "near": 4, "low": 2}.__getitem__, 2)
    ['low', 'far']
    """
    some = list(found)
    order = sorted(range(len(some)), key=lambda k: some[k][0])
    asked: list[tuple[int, int]] = []
    best: list[T] = []
    for k in order:
        while asked and len(best) < count and asked[0] < (some[k][0], 0):
            best.append(some[heappop(asked)[1]][1])
        if len(best) >= count:
            return best
        heappush(asked, (cost(some[k][1]), k))
    while asked and len(best) < count:
        best.append(some[heappop(asked)[1]][1])
    return best


def elsewhere(costs: Costs, choice: Mapping[int, int], other: Mapping[int, int]) -> tuple[int, ...] | None:
    """Where one decision makes the difference, and that is where a source lies: which one, and what all costs then.
    Homes for which that is the same differ in name, and their plans take equally long. None for any other difference.
    """
    node = next(node for node in choice if choice[node] != other[node])
    source = isinstance(costs.model.nodes[node], SourceNode)
    return (node, *costs.parts(other).values()) if source else None
