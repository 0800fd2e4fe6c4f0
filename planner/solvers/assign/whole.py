"""The least of all choices, by elimination."""

from __future__ import annotations

from collections.abc import Mapping

from .answer import EliminationCertificate, Prices
from .eliminate import Elimination
from .factors import PRICE_UNIT, Factors
from .places import Places
from .problem import Ints


class Whole:
    """A problem eliminated as a whole under any multipliers. Raises TooWide."""

    whole = True

    def __init__(self, places: Places, most_work: int) -> None:
        self._nodes = range(places.problem.node_count)
        self._factors = Factors(places)
        self._elimination = Elimination(self._factors.sizes, self._factors.scopes(), most_work, self._factors.place)
        self._last: tuple[int, list[Ints]] = 0, []
        self._kept = self._last

    @property
    def work(self) -> int:
        """Entries of all arrays together."""
        return self._elimination.work

    def least(self, multipliers: Mapping[int, int], worth: int = 0) -> tuple[int, tuple[int, ...]]:  # noqa: ARG002
        """The least, and a choice that has it, whether it is worth that or not."""
        least, values, known = self._elimination.least(self._factors.under(multipliers))
        self._last = least, known
        return least, tuple(values[v] for v in self._nodes)

    def keep(self) -> None:
        """Keep what the last bound is of."""
        self._kept = self._last

    def spare(self) -> dict[int, Ints]:
        """Per node, for each strategy how much more than what is kept every choice with it costs at least."""
        least, known = self._kept
        with_each = self._elimination.least_with(known)
        return {v: with_each[v] - least for v in self._nodes}

    def certificate(self, prices: Prices) -> EliminationCertificate:
        """The order in which variables are eliminated."""
        order = tuple(self._factors.origin[v] for v in self._elimination.order)
        return EliminationCertificate(order, prices, PRICE_UNIT)
