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

from collections.abc import Mapping
from math import frexp

import numpy as np

from .answer import PairDuals, Prices, ShareCertificate
from .factors import PRICE_UNIT, charged_costs
from .messages import NEVER, Duals, Floats, decided, fill, leasts, spared, sweep
from .pairs import Pairs
from .places import Places
from .problem import FORBIDDEN, Ints, cost_bound

_SWEEPS = 96  # there and back at most, under the same multipliers
_EACH = 8  # after so many it is looked how far the bound rose
_SETTLED = 1e-5  # no more than this part of it: it is left at that
_EXACT = 2**53  # up to here floating point has all integers
_FARTHEST = 2.0**60  # what is moved to a node at most: more would not be counted in 64 bits


class Shares:
    """The relaxation of a problem. `most_work`: entries of tables that are gone through under the same multipliers."""

    whole = False

    def __init__(self, places: Places, most_work: int) -> None:
        self.places, self.pairs = places, Pairs.of(places)
        self.at = self.pairs.layout
        entries = int(self.at.table_first[-1]) + int(self.at.share_first[-1])
        self._sweeps = max(_EACH, min(_SWEEPS, most_work // max(1, 2 * entries)))
        self.work = 2 * entries * self._sweeps
        # More than any choice costs, and a unit of which sums of all that meets in a node are few enough.
        self._never = float(min(2 * cost_bound(places.problem) + 2, FORBIDDEN))
        crowd = 4 * (int(np.diff(self.at.near_first).max(initial=0)) + 2)
        self._unit = 2.0 ** max(0, frexp(self._never * crowd / _EXACT)[1])
        self._farthest = min(self._unit * (_EXACT // crowd), _FARTHEST)
        self._duals = self._last = self._kept = self._begun()

    def _begun(self) -> Duals:
        """Nothing is moved yet."""
        at, problem = self.at, self.places.problem
        tables = np.zeros(int(at.table_first[-1]))
        for p, pair in enumerate(self.pairs.pairs):
            table = tables[at.table_first[p] : at.table_first[p + 1]].reshape(pair.sizes)
            if pair.barred is not None:
                table[pair.barred] = NEVER
            if pair.group < 0:
                table[:] = self._counted(problem.matrix(self.pairs.edges[p - int(at.pair_first[-1])]))
        sizes = (at.node_first[-1], at.cost_first[-1], at.share_first[-1], at.size.sum())
        unary, costs, shares, messages = (np.zeros(int(size)) for size in sizes)
        return Duals(unary, tables, costs, shares, messages)

    def _counted(self, costs: Ints) -> Floats:
        """In whole units, rounded down; what is forbidden costs more than any choice."""
        counted: Floats = np.minimum(np.floor(costs / self._unit) * self._unit, self._never)
        return counted

    def least(self, multipliers: Mapping[int, int]) -> tuple[int, tuple[int, ...]]:
        """A bound under multipliers, and a choice that is likely to be good."""
        self._charge(multipliers)
        before = -np.inf
        for count in range(self._sweeps):
            sweep(self.at, self._duals, True)
            sweep(self.at, self._duals, False)
            if count % _EACH == _EACH - 1:
                total = sum(map(np.sum, leasts(self.at, self._duals)))
                if total <= before + _SETTLED * abs(total):
                    break
                before = total
        self._last = self._rounded()
        least = sum(int(costs) for part in leasts(self.at, self._last) for costs in part)
        return least, tuple(decided(self.at, self._last).tolist())

    def keep(self) -> None:
        """Keep what the last bound is of."""
        self._kept = self._last

    def _charge(self, multipliers: Mapping[int, int]) -> None:
        """Takes the costs under multipliers; shares keep their proportions."""
        at, duals, problem = self.at, self._duals, self.places.problem
        unary, supplied = charged_costs(self.places, multipliers)
        for e, (u, v) in enumerate(problem.edges.tolist()):
            if u == v:
                unary[u] = np.minimum(unary[u], FORBIDDEN) + np.minimum(problem.matrix(e).diagonal(), FORBIDDEN)
        for v, costs in enumerate(unary):
            duals.unary[at.node_first[v] : at.node_first[v + 1]] = self._counted(costs)
        for g, (k, first) in enumerate(zip(self.pairs.supplies, self.pairs.firsts, strict=True)):
            now = self._counted(supplied[k][first].reshape(-1))
            before = duals.costs[at.cost_first[g] : at.cost_first[g + 1]]
            count = int(at.pair_first[g + 1] - at.pair_first[g])
            for p in range(at.pair_first[g], at.pair_first[g + 1]):
                share = duals.shares[at.share_first[p] : at.share_first[p + 1]]
                share[:] = np.where(before > 0, share * (now / np.where(before > 0, before, 1.0)), now / count)
            before[:] = now
            fill(at, duals, g)

    def _rounded(self) -> Duals:
        """The duals in whole units: shares together no more than what there is to share."""
        at, unit, duals = self.at, self._unit, self._duals
        messages = np.clip(np.rint(duals.messages / unit) * unit, -self._farthest, self._farthest)
        shares = np.floor(duals.shares / unit) * unit
        for g in range(len(self.pairs.supplies)):
            rest = duals.costs[at.cost_first[g] : at.cost_first[g + 1]].copy()
            for p in range(at.pair_first[g], at.pair_first[g + 1]):
                share = shares[at.share_first[p] : at.share_first[p + 1]]
                share[:] = np.clip(share, 0.0, rest)
                rest -= share
        found = Duals(duals.unary.copy(), duals.tables.copy(), duals.costs.copy(), shares, messages)
        for g in range(len(self.pairs.supplies)):
            fill(at, found, g)
        return found

    def spare(self) -> dict[int, Ints]:
        """Per node, for each strategy how much more than the bound that is kept every choice with it costs at least."""
        spare = spared(self.at, self._kept).astype(np.int64)
        return dict(enumerate(np.split(spare, self.at.node_first[1:-1])))

    def certificate(self, prices: Prices) -> ShareCertificate:
        """What proves the bound that is kept."""
        shared = [
            tuple(self._of_pair(p) for p in range(self.at.pair_first[g], self.at.pair_first[g + 1]))
            for g in range(len(self.pairs.supplies))
        ]
        edges = [self._of_pair(p) for p in range(int(self.at.pair_first[-1]), len(self.pairs.pairs))]
        return ShareCertificate(
            dict(zip(self.pairs.supplies, shared, strict=True)),
            dict(zip(self.pairs.edges, edges, strict=True)),
            prices,
            PRICE_UNIT,
        )

    def _of_pair(self, p: int) -> PairDuals:
        """By strategy what its faces have."""
        at, pair = self.at, self.pairs.pairs[p]
        share = self._kept.shares[at.share_first[p] : at.share_first[p + 1]].reshape(pair.sizes[0], -1)
        to_source, to_reader = (
            self._kept.messages[at.message_first[p, side] + pair.faces[side]].astype(np.int64) for side in (0, 1)
        )
        return PairDuals(to_source, to_reader, share[pair.faces[0]].astype(np.int64))
