"""What moving a tensor costs, from all layouts that it may lie in to all that are asked for: known, or at least.

Where there are many pairs, most are of no plan worth having. They cost at least what can be said of all at once until
somebody asks for more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...records import Width
from ..strategy.layouts import Layout
from .model import PICO, Model

Ints = NDArray[np.int64]

_BELOW = 1 - 1e-9  # more than what rounding adds to a bound in floating point


class Priced:
    """[have, need] of different layouts: ``prices``, whether they are ``known``, and where nothing is moved
    (``free``).
    """

    def __init__(
        self, model: Model, haves: Sequence[Layout], needs: Sequence[Layout], width: Width, *, lazy: bool
    ) -> None:
        """``lazy``: what takes time to find out is not asked for yet."""
        self._model, self._haves, self._needs, self._width = model, haves, needs, width
        self._rows, self._columns = ({layout: k for k, layout in enumerate(some)} for some in (haves, needs))
        complete = np.array([have.parts is None for have in haves], dtype=bool)[:, None]
        if not lazy or not needs:
            self.prices = np.array(model.prices(haves, needs, width))
            self.free = complete & (model.traffic.costs(haves, needs, width)[1] == 0)
            self.known = np.ones(self.prices.shape, dtype=bool)
        else:
            seconds, self.known = model.traffic.at_least(haves, needs, width)
            below = np.floor(seconds * PICO * _BELOW).astype(np.int64)
            self.prices = np.where(self.known, np.rint(seconds * PICO).astype(np.int64), below)
            self.free = complete & (seconds == 0)
        self.prices[self.free] = 0

    def least(self, have: Layout, need: Layout) -> int:
        """What it costs, or costs at least."""
        return int(self.prices[self._rows[have], self._columns[need]])

    def unknown(self, rows: Sequence[int], columns: Sequence[int]) -> int:
        """How many pairs of these haves and needs have no price yet."""
        return int((~self.known[np.ix_(rows, columns)]).sum())

    def settle(self, rows: Iterable[int], columns: Iterable[int]) -> int:
        """Prices all pairs of these; how many had none."""
        mine, theirs = sorted(set(rows)), sorted(set(columns))
        new = ~self.known[np.ix_(mine, theirs)]
        if not new.any():
            return 0
        mine = [mine[i] for i in np.unique(np.nonzero(new)[0]).tolist()]
        theirs = [theirs[j] for j in np.unique(np.nonzero(new)[1]).tolist()]
        at = np.ix_(mine, theirs)
        found = self._model.prices([self._haves[i] for i in mine], [self._needs[j] for j in theirs], self._width)
        self.prices[at] = np.where(self.free[at], 0, found)
        self.known[at] = True
        return int(new.sum())
