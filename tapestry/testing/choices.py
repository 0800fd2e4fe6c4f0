"""Cheap draws: the generators make thousands of small choices, each through one cached integer strategy.

The first alternative is the one a failing example shrinks to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")
Draw = Callable[[st.SearchStrategy[Any]], Any]


@lru_cache(maxsize=1024)
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


class Choices:
    """Choices drawn from hypothesis."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        """An integer in low, ..., high."""
        return low if low >= high else int(self.draw(_integers(low, high)))

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.integer(0, len(items) - 1)]

    def chance(self, percent: int) -> bool:
        """True about so often."""
        return self.integer(0, 99) >= 100 - percent

    def subset(self, items: Sequence[T], at_least: int = 0) -> list[T]:
        """Some of the items, in order."""
        chosen = self.integer(0, 2 ** len(items) - 1)
        kept = [k for k in range(len(items)) if chosen >> k & 1]
        kept += [k for k in range(len(items)) if k not in kept][: max(0, at_least - len(kept))]
        return [items[k] for k in sorted(kept)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in some order."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in items]
