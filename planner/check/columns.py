"""One small integer for each rank of a group (a region, what a buffer holds), all of them together as one number.

Repeated layers ask the same questions of the same columns, so that a question costs a look-up however many ranks there
are; the first time it is asked once for each distinct row.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Sequence

from .budget import Budget


class Columns:
    """Interned columns: equal columns have equal numbers."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._values: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._answers: dict[tuple[object, ...], int] = {}
        self._distinct: dict[int, frozenset[int]] = {}

    def number(self, values: Iterable[int]) -> int:
        packed = array("q", values).tobytes()
        found = self._numbers.setdefault(packed, len(self._values))
        if found == len(self._values):
            self._values.append(packed)
        return found

    def values(self, column: int) -> Sequence[int]:
        """One value per rank of the group."""
        return memoryview(self._values[column]).cast("q")

    def distinct(self, column: int) -> frozenset[int]:
        if column not in self._distinct:
            self._distinct[column] = frozenset(self.values(column))
        return self._distinct[column]

    def empty(self, column: int) -> bool:
        """All values are 0: no rank has anything."""
        return self.distinct(column) <= {0}

    def nonzero(self, column: int) -> list[int]:
        """The positions in the group whose value is not 0: not the empty region."""
        return [] if self.empty(column) else [k for k, value in enumerate(self.values(column)) if value]

    def apply(self, function: Callable[..., int], columns: tuple[int, ...], *fixed: Hashable) -> int:
        """The column of ``function(*row, *fixed)``, for the row of values of each rank. Asked once per distinct row."""
        key = (function, columns, fixed)
        if key not in self._answers:
            rows = list(zip(*map(self.values, columns), strict=True))
            self._budget.spend(len(rows), "following what ranks hold")
            answers = {row: function(*row, *fixed) for row in dict.fromkeys(rows)}
            self._answers[key] = self.number(map(answers.__getitem__, rows))
        return self._answers[key]
