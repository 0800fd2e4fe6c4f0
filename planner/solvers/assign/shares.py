"""A bound for problems too wide for elimination: nodes meet in pairs, and readers of one supply divide what it costs.

What a supply brings depends on all of its readers together. Whatever they ask for, every reader is served by an item
that is supplied: its own, or one that it lies within. So for any shares ≥ 0 of the readers j, together no more than the
costs of the items,

    all that is supplied  ≥  Σ over readers j of  min over items k that serve j of share_j[source's strategy, k],

which is a sum over pairs of nodes. Messages (`messages`) and shares are moved until the bound rises no further: this is
the dual of the linear relaxation that has a marginal for every pair and every item.

Everything is a multiple of a power of two, so large that sums in floating point are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import frexp

import numpy as np

from .answer import PairDuals, Prices, ShareCertificate
from .factors import PRICE_UNIT, charged_costs
from .messages import Meeting, Messages
from .pairs import Floats, Group, groups_of
from .places import Places
from .problem import FORBIDDEN, Ints, cost_bound

_SWEEPS = 96  # there and back at most, under the same multipliers
_EACH = 4  # after so many it is looked how far the bound rose
_SETTLED = 5e-5  # no more than this part of it: it is left at that
_EXACT = 2**53  # up to here floating point has all integers
_FARTHEST = 2.0**60  # what is moved to a node at most: more would not be counted in 64 bits


class Shares:
    """The relaxation of a problem. `most_work`: entries of tables that are gone through under the same multipliers."""

    whole = False

    def __init__(self, places: Places, most_work: int) -> None:
        self.places, self.groups = places, groups_of(places)
        counts = places.problem.strategy_counts.tolist()
        entries = sum((len(group.pair) + len(group.readers) * group.items) * group.width for group in self.groups)
        self._sweeps = max(_EACH, min(_SWEEPS, most_work // max(1, 2 * entries)))
        self.work = 2 * entries * self._sweeps
        # More than any choice costs, and a unit of which sums of all that meets in a node are few enough.
        self._never = float(min(2 * cost_bound(places.problem) + 2, FORBIDDEN))
        crowd = 4 * (max(_pairs_of_nodes(self.groups, len(counts)), default=0) + 2)
        self._unit = 2.0 ** max(0, frexp(self._never * crowd / _EXACT)[1])
        self._farthest = min(self._unit * (_EXACT // crowd), _FARTHEST)
        begun = Messages([self._begun(group) for group in self.groups], [np.zeros(count) for count in counts])
        self._duals = self._last = self._kept = begun

    def _begun(self, group: Group) -> Meeting:
        """Nothing is moved yet."""
        found = Meeting.begun(group)
        if not group.shared:
            found.table[:] = self._counted(self.places.problem.matrix(group.number)).T
        return found

    def follow(self, other: Shares, near: Sequence[Sequence[int]]) -> None:
        """Begins where the bound stands that another relaxation keeps, of the problem that this one is a part of: of
        its strategies `near` are left.
        """
        known = {(m.group.number, m.group.shared): m for m in other._kept.meetings}
        mine = [np.array(some, dtype=np.int64) for some in near]
        for meeting in self._duals.meetings:
            old = known.get((meeting.group.number, meeting.group.shared))
            if old is not None:
                meeting.follow(old, mine)

    def _counted(self, costs: Ints) -> Floats:
        """In whole units, rounded down; what is forbidden costs more than any choice."""
        counted: Floats = np.minimum(np.floor(costs / self._unit) * self._unit, self._never)
        return counted

    def least(self, multipliers: Mapping[int, int], worth: int = -FORBIDDEN) -> tuple[int, tuple[int, ...]]:
        """A bound under multipliers, and a choice that is likely to be good.

        It rises less and less: where it would not come up to `worth` if it went on rising as it does, it is left.
        """
        self._charge(multipliers)
        before = self._duals.bound(np.sum)
        for count in range(1, self._sweeps + 1):
            self._duals.sweep(forward=True)
            self._duals.sweep(forward=False)
            if count % _EACH == 0:
                total = self._duals.bound(np.sum)
                rise, left = total - before, (self._sweeps - count) // _EACH
                if rise <= _SETTLED * abs(total) or total + left * rise < worth:
                    break
                before = total
        self._last = self._rounded()
        least = int(self._last.bound(lambda costs: sum(map(int, costs))))
        return least, tuple(self._last.decided())

    def keep(self) -> None:
        """Keep what the last bound is of."""
        self._kept = self._last

    def _charge(self, multipliers: Mapping[int, int]) -> None:
        """Takes the costs under multipliers; shares keep their proportions."""
        problem = self.places.problem
        unary, supplied = charged_costs(self.places, multipliers)
        for e, (u, v) in enumerate(problem.edges.tolist()):
            if u == v:
                unary[u] = np.minimum(unary[u], FORBIDDEN) + np.minimum(problem.matrix(e).diagonal(), FORBIDDEN)
        self._duals.unary = [self._counted(costs) for costs in unary]
        for meeting in self._duals.meetings:
            if meeting.group.shared:
                meeting.charge(self._counted(supplied[meeting.group.number][meeting.group.first].T))

    def _rounded(self) -> Messages:
        """The duals in whole units: shares together no more than what there is to share."""
        found, unit = self._duals.copied(), self._unit
        for meeting in found.meetings:
            for moved in (meeting.to_source, meeting.to_reader):
                moved[:] = np.clip(np.rint(moved / unit) * unit, -self._farthest, self._farthest)
            meeting.shares[:] = np.floor(meeting.shares / unit) * unit
            rest = meeting.costs.copy()
            for share in meeting.shares:
                share[:] = np.clip(share, 0.0, rest)
                rest -= share
            meeting.fill()
        return found

    def spare(self) -> dict[int, Ints]:
        """Per node, for each strategy how much more than the bound that is kept every choice with it costs at least."""
        return {v: spare.astype(np.int64) for v, spare in enumerate(self._kept.spared())}

    def certificate(self, prices: Prices) -> ShareCertificate:
        """What proves the bound that is kept."""
        supplies, edges = (
            {m.group.number: tuple(_of_pairs(m)) for m in self._kept.meetings if m.group.shared is shared}
            for shared in (True, False)
        )
        return ShareCertificate(supplies, {e: pair for e, (pair,) in edges.items()}, prices, PRICE_UNIT)


def _of_pairs(meeting: Meeting) -> Iterator[PairDuals]:
    """By strategy what the faces of every pair have."""
    group = meeting.group
    for j, face in enumerate(group.faces):
        to_source, to_reader = meeting.to_source[j][group.ends.of], meeting.to_reader[group.rows[j]][face.of]
        share = meeting.shares[j].T[group.ends.of]
        yield PairDuals(to_source.astype(np.int64), to_reader.astype(np.int64), share.astype(np.int64))


def _pairs_of_nodes(groups: Iterable[Group], nodes: int) -> list[int]:
    """By node how many pairs it is in."""
    found = [0] * nodes
    for group in groups:
        for reader in group.readers:
            for node in {group.source, reader}:
                found[node] += 1
    return found
