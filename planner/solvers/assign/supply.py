"""Supplies: what one node gives to several readers, each item once however many ask for it.

A node's strategies say in which of several forms it has something; a reader's strategies say in which form it wants it.
Bringing an item about costs what it costs from the source's strategy, and holds limited resources; what several readers
ask for is supplied once, and what lies within a larger item that is asked for too is not supplied at all. A supply is
a cost on all of its nodes together that could not be written as a sum over pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SupplyUse:
    """In each of the intervals [start, stop), a supplied item i holds amounts[s, i] under strategy s of the source."""

    resource: int
    intervals: tuple[tuple[int, int], ...]
    amounts: Ints


@dataclass(frozen=True, eq=False)
class Supply:
    """`asks[j][t]` is the item that `readers[j]` asks for under its strategy t, or -1 for none.

    `within[i, k]`: where k is asked for, i need not be supplied. `costs[s, i]`: of supplying i under strategy s of
    the source. A node may be a reader more than once, and the source may be one.
    """

    source: int
    readers: tuple[int, ...]
    asks: tuple[Ints, ...]
    within: NDArray[np.bool_]
    costs: Ints
    uses: tuple[SupplyUse, ...] = ()

    @property
    def item_count(self) -> int:
        return len(self.within)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The source and the readers, each once."""
        return tuple(dict.fromkeys((self.source, *self.readers)))


def supplied(supply: Supply, asked: Sequence[int]) -> list[int]:
    """The items to supply where these (-1: none) are asked for: those that lie within no other.

    >>> inside = np.array([[False, True], [False, False]])
    >>> supplied(Supply(0, (1, 2), (), inside, np.zeros((1, 2), dtype=np.int64)), [0, 1, -1, 0])
    [1]
    """
    items = sorted({i for i in asked if i >= 0})
    return [i for i in items if not supply.within[i, items].any()]


def supply_fault(supply: Supply, counts: Ints, resources: int) -> tuple[str, str] | None:
    """What is found and what was expected where a supply contradicts the problem's nodes; None where it fits."""
    for node in supply.nodes:
        if not 0 <= node < len(counts):
            return f"node {node}", f"an index below {len(counts)}"
    if len(supply.asks) != len(supply.readers):
        return f"{len(supply.asks)} vectors of asks", f"{len(supply.readers)} readers"
    for node, asks in zip(supply.readers, supply.asks, strict=True):
        if len(asks) != counts[node]:
            return f"{len(asks)} asks of node {node}", f"{counts[node]} strategies"
        if len(asks) and not (asks.min() >= -1 and asks.max() < supply.item_count):
            return f"asks of node {node} from {asks.min()} to {asks.max()}", f"-1 to {supply.item_count - 1}"
    for use in supply.uses:
        if not 0 <= use.resource < resources:
            return f"resource {use.resource}", f"{resources} resources"
        if any(start > stop for start, stop in use.intervals):
            return f"intervals {use.intervals}", "no start after its stop"
    return _matrix_fault(supply, int(counts[supply.source]))


def _matrix_fault(supply: Supply, strategies: int) -> tuple[str, str] | None:
    items, inside = supply.item_count, supply.within
    for what, matrix in (("costs", supply.costs), *(("amounts", use.amounts) for use in supply.uses)):
        if matrix.shape != (strategies, items):
            return f"{what} {list(matrix.shape)}", f"{strategies} strategies × {items} items"
        if matrix.size and matrix.min() < 0:
            return f"{what} down to {matrix.min()}", "at least 0: an item that nobody asks for must not pay"
    if inside.shape != (items, items) or inside.diagonal().any():
        return "an item within itself" if inside.shape == (items, items) else "another shape", "a strict order"
    if not _transitive(inside.tobytes(), items):
        return "an item within one that is within another, but not within that other", "a transitive order"
    return None


@lru_cache(maxsize=1024)
def _transitive(order: bytes, items: int) -> bool:
    """Of [item, item]. Problems of one search have the same orders over and over."""
    inside = np.frombuffer(order, dtype=bool).reshape(items, items)
    steps = inside.astype(np.float32)  # sums of ones are above 0 in any precision, and products of floats are quick
    return not (((steps @ steps) > 0) & ~inside).any()
