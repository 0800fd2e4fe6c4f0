"""Prices of transfers as they were before senders were counted: plans saved then say what they take by these.

The time of a transfer was that of what the busiest rank receives: of complete data what it lacks, of which what its
island or host does not hold crosses to it; of a fold an equal share of all, all of it between hosts where there are
several.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ...records import Width
from ..machine import COLLECTIVES, Scope
from .columns import Ints
from .kinds import complete_kind, partial_kind
from .layouts import Layout
from .pairs import Related
from .traffic import NOTHING, Floats, Move, Traffic

Members = tuple[tuple[int, ...], ...]
"""The ranks of each group."""


class FirstTraffic(Traffic):
    """Prices transfers of plans that do not say who sends; a transfer was what there was, and no path."""

    @property
    def pathless(self) -> bool:
        return True

    @cached_property
    def _widest_first(self) -> list[tuple[Scope, Members]]:
        """All ranks together, then the groups within which a nearer link connects."""
        scopes, levels = self.levels
        members = (tuple(tuple(r for r, its in enumerate(of) if its == k) for k in range(max(of) + 1)) for of in levels)
        return [*zip(scopes, members, strict=True)][::-1]

    def _table(self, haves: Sequence[Layout], needs: Sequence[Layout], width: Width, _: Related) -> tuple[Floats, Ints]:
        return self._one_by_one(haves, needs, width)

    def _complete(self, have: Layout, need: Layout, width: Width) -> Move:
        pair = have.pair(need)
        if have is need or not pair.missing:
            return NOTHING
        kind, size, busiest = complete_kind(have, need, pair), width.complete, pair.busiest * width.complete
        around = [have.around(members).pair(need).busiest * size for _, members in self._widest_first[1:]]
        receivers = tuple(rank for rank, lack in enumerate(have.missing(need)) if lack) if self.shared else ()
        seconds = self._received(kind, [*around, busiest], receivers)
        return Move(pair.missing, pair.missing * size, busiest, kind, seconds)

    def _partial(self, have: Layout, need: Layout, width: Width) -> Move:
        total, results = have.moved(need), need.total - need.everything.size
        nbytes = (total - results) * width.partial + results * width.complete
        receivers = tuple(rank for rank, region in enumerate(need.regions) if region) if self.shared else ()
        received, kind = -(-nbytes // max(1, need.holders)), partial_kind(need)
        seconds = self._received(kind, [received] * len(self._widest_first), receivers)
        return Move(total, nbytes, received, kind, seconds)

    def _received(self, kind: str, cumulated: Sequence[int], receivers: tuple[int, ...]) -> float:
        """``cumulated``: per level the bytes from outside of the groups of the next one, all of them at last; what
        crosses groups takes the link that connects them.
        """
        collective = kind if kind in COLLECTIVES else None
        seconds, before, ranks = 0.0, 0, self.mesh.size
        for (scope, members), nbytes in zip(self._widest_first, cumulated, strict=True):
            if nbytes > before and any(len(group) > 1 for group in members):
                seconds += self._link(scope, receivers).seconds(nbytes - before, collective, ranks)
                before, ranks = nbytes, 2
        return seconds
