"""What transfers take, of all pairs of some layouts at once: by one transfer, or on paths over plain layouts.

Other paths are looked for by pair (`traffic`). What such take at least is said here, so that most need not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...records import Width
from .columns import Ints
from .counted import Moved, Where
from .layouts import Layout, relate
from .pairs import Related

if TYPE_CHECKING:
    from .traffic import Traffic

Floats = NDArray[np.float64]

MOST_RANKS = 16  # among which detours are looked for: what each rank has on the way is different pieces
FOLDING = ("reduce_scatter", "reduce")  # what it may be called where each element is folded by one rank


class AtOnce:
    """At the prices of one `Traffic`, which says what single transfers take."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic

    def found(
        self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width, related: Related
    ) -> tuple[Floats, Ints, Floats]:
        """[have, need] seconds and bytes by one transfer, or on paths over plain layouts; and what other paths take at
        least, where these may be shorter.
        """
        plain = np.array([self._traffic.ways.number(need, width) is not None for need in needs], dtype=bool)
        seconds, nbytes = np.zeros(related.missing.shape), related.missing.astype(np.int64) * width.complete
        complete = np.array([have.parts is None for have in haves], dtype=bool)
        lacking = np.where(complete[:, None], related.missing > 0, False).astype(bool)
        least = np.full(seconds.shape, inf)
        self._moves_in(seconds, least, haves, needs, width, np.nonzero(lacking & ~plain), related)
        self._folds_in(
            seconds, least, nbytes, haves, needs, width, np.nonzero(~complete[:, None] & np.ones_like(lacking))
        )
        self._traffic.ways.shorten(seconds, haves, needs, width)
        least[:, plain] = inf
        return seconds, nbytes, np.minimum(least, seconds)

    def _moves_in(
        self,
        seconds: Floats,
        least: Floats,
        haves: Sequence[Layout],
        needs: Sequence[Layout],
        width: Width,
        where: Where,
        related: Related,
    ) -> None:
        """Of the pairs of complete layouts with these numbers, by one transfer, and on paths that lie within what is
        needed.
        """
        if not len(where[0]):
            return
        of, classes = self._traffic.counts.all_moved(haves, needs, where, related)
        seconds[where] = np.array([self._moving(moved, width) for moved in classes])[of]
        if self._traffic.mesh.size > MOST_RANKS:
            return
        start, rate = self._traffic.quickest
        lacking = related.busiest[where].astype(np.float64) * width.complete / rate
        crooked = np.array([any(map(max, moved.received[1:], moved.sent[1:])) or one_sided(moved) for moved in classes])
        slow = crooked[of] & (seconds[where] > start + np.maximum(start, lacking))
        if slow.any():
            least[where] = np.where(slow, start + self._traffic.floor.seconds(haves, needs, width, related)[where], inf)

    def _folds_in(
        self,
        seconds: Floats,
        least: Floats,
        nbytes: Ints,
        haves: Sequence[Layout],
        needs: Sequence[Layout],
        width: Width,
        where: Where,
    ) -> None:
        """Of the pairs of a partial and a complete layout with these numbers, by one transfer, and with what is folded
        handed on by others.
        """
        if not len(where[0]):
            return
        of, classes = self._traffic.counts.all_folded(haves, needs, where, width)
        seconds[where] = np.array([self._traffic.seconds_of(fold.kind, fold.busiest, ()) for fold in classes])[of]
        nbytes[where] = np.array([fold.nbytes for fold in classes], dtype=np.int64)[of]
        if not self._traffic.by_pair:
            return
        start, rate = self._traffic.quickest
        folded = [
            min(self._traffic.seconds_of(kind, fold.contributed, ()) for kind in FOLDING) + fold.handed / rate
            for fold in classes
        ]
        wide = np.array([need.total > need.everything.size for need in needs], dtype=bool)[where[1]]
        least[where] = np.where(wide & (seconds[where] > 2 * start), start + np.array(folded)[of], inf)

    def _moving(self, moved: Moved, width: Width) -> float:
        """Seconds of one transfer of complete data."""
        busiest = tuple(elements * width.complete for elements in map(max, moved.received, moved.sent))
        return self._traffic.seconds_of(moved.kind, busiest, ())

    def directly(self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width) -> Floats:
        """[have, need] seconds of one transfer each, all from complete layouts or all from partial ones."""
        if self._traffic.shared:
            return np.array([[self._traffic.direct(have, need, width).seconds for need in needs] for have in haves])
        seconds, nbytes = np.zeros((len(haves), len(needs))), np.zeros((len(haves), len(needs)), dtype=np.int64)
        if haves[0].parts is not None:
            self._folds_in(seconds, seconds.copy(), nbytes, haves, needs, width, np.nonzero(nbytes == 0))
            return seconds
        related = relate(haves, needs)
        where = np.nonzero(related.missing > 0)
        if len(where[0]):
            of, classes = self._traffic.counts.all_moved(haves, needs, where, related)
            seconds[where] = np.array([self._moving(moved, width) for moved in classes])[of]
        return seconds


def one_sided(moved: Moved) -> bool:
    """Some rank has clearly more to send than any has to receive."""
    return any(sent > 1.25 * received for received, sent in zip(moved.received, moved.sent, strict=True))
