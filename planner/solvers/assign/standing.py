"""A choice that is being made, node after node: what each strategy of one node costs and holds while the others stay.

Plain NumPy, so that it is there at once. It serves problems as they are (`Terms.of`) and reduced ones alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .places import Places
from .problem import FORBIDDEN, Ints
from .supply import Supply, supplied

_HALF = FORBIDDEN // 2
_ENTRIES = 4096  # gone through in one decision; where there are more, it counts for several
_PER_DECISION = 5  # nodes that take as long to set up as one decision
_DEAR = 1000  # entries that the count of what a supply brings is worth
OPEN = -1  # in place of a strategy: not decided yet


@dataclass(frozen=True, eq=False)
class Span:
    """`amounts` per strategy of a node, or [strategy of the source, item], over the places [begin[i], end[i])."""

    amounts: Ints
    begin: Ints
    end: Ints


@dataclass(frozen=True, eq=False)
class _Reach:
    """What a node itself holds (`amounts[i]` per strategy from place begin[i] to end[i]), and its stretches of places.

    Between `cuts[j]` and the next one (`stop` after the last) neither it nor its supplies ever begin or end anything.
    """

    amounts: Ints
    begin: Ints
    end: Ints
    cuts: Ints
    stop: int

    @staticmethod
    def of(own: Sequence[Span], supplied: Sequence[Span], strategies: int, everywhere: int) -> _Reach:
        """`everywhere`: so many places, each a stretch of its own; 0: only those that matter."""
        times = [len(span.begin) for span in own]
        amounts = np.array([span.amounts for span in own], dtype=np.int64).reshape(-1, strategies)
        none = np.zeros(0, dtype=np.int64)
        begin, end = [none, *(span.begin for span in own)], [none, *(span.end for span in own)]
        ends = [part for span in supplied for part in (span.begin, span.end)]
        cuts = np.arange(everywhere + 1) if everywhere else np.unique(np.concatenate([*begin, *end, *ends]))
        stop = int(cuts[-1]) if len(cuts) else 0
        return _Reach(np.repeat(amounts, times, axis=0), np.concatenate(begin), np.concatenate(end), cuts[:-1], stop)

    @cached_property
    def lengths(self) -> Ints:
        return np.diff(np.append(self.cuts, self.stop))


@dataclass(frozen=True, eq=False)
class _Brought:
    """Per strategy of a source how many forbidden items it supplies, what the others cost, and what they hold."""

    forbidden: Ints
    paid: Ints
    amounts: Ints  # [row, strategy], from place begin[row] to end[row]
    begin: Ints
    end: Ints

    @staticmethod
    def of(supply: Supply, given: Sequence[Span], asked: frozenset[int]) -> _Brought:
        items = supplied(supply, [*asked])
        costs = supply.costs[:, items]
        ruled_out = costs >= _HALF
        held = _Reach.of(
            [Span(span.amounts[:, items].sum(axis=1), span.begin, span.end) for span in given], (), len(costs), 0
        )
        paid = np.where(ruled_out, 0, costs).sum(axis=1)
        return _Brought(ruled_out.sum(axis=1), paid, held.amounts, held.begin, held.end)

    def add(self, change: Ints, columns: Sequence[int], sources: Sequence[int], cuts: Ints) -> None:
        """Adds what is held under each of these strategies to a column each, over stretches that begin at `cuts`."""
        amounts = self.amounts[:, sources]
        where = np.array(columns, dtype=np.int64)
        np.add.at(change, (np.searchsorted(cuts, self.begin)[:, None], where), amounts)
        np.add.at(change, (np.searchsorted(cuts, self.end)[:, None], where), -amounts)


@dataclass(frozen=True, eq=False)
class _Alone:
    """What a supply of one reader brings, by [strategy of the source, item]; the last column is for no item.

    `amounts` [row, strategy, item] are held from place begin[row] to end[row].
    """

    forbidden: Ints
    paid: Ints
    amounts: Ints
    begin: Ints
    end: Ints

    @staticmethod
    def of(supply: Supply, given: Sequence[Span]) -> _Alone:
        def with_none(amounts: Ints) -> Ints:
            return np.pad(amounts, ((0, 0), (0, 1)))

        costs = with_none(supply.costs)
        ruled_out = costs >= _HALF
        spans = [Span(with_none(span.amounts).ravel(), span.begin, span.end) for span in given]
        held = _Reach.of(spans, (), costs.size, 0)
        amounts = held.amounts.reshape(-1, *costs.shape)
        return _Alone(ruled_out.astype(np.int64), np.where(ruled_out, 0, costs), amounts, held.begin, held.end)

    def add(self, change: Ints, cuts: Ints, at: tuple[Any, Any], now: tuple[int, int] | None) -> None:
        """Adds what is held `at` a strategy of the source and an item, a column each, over stretches that begin at
        `cuts`; to the last column what is held `now`.
        """
        before = np.zeros_like(self.begin) if now is None else self.amounts[:, *now]
        amounts = np.column_stack([self.amounts[:, *at], before])
        np.add.at(change, np.searchsorted(cuts, self.begin), amounts)
        np.add.at(change, np.searchsorted(cuts, self.end), -amounts)


@dataclass(eq=False)
class Terms:
    """A problem by node: its costs, its neighbours with the matrix [its strategies, theirs], what it holds and gives.

    `limit` per place; `priced` are (price, places) of the resources whose peak costs something.
    """

    costs: Sequence[Ints]
    limit: Ints
    near: list[list[tuple[int, Ints]]] = field(init=False)
    held: list[list[Span]] = field(init=False)
    supplies: tuple[Supply, ...] = ()
    given: list[list[Span]] = field(default_factory=list)  # per supply
    priced: list[tuple[int, Ints]] = field(default_factory=list)
    member: list[list[int]] = field(init=False)  # per node the supplies that it gives or asks
    _known: dict[tuple[int, frozenset[int]], _Brought] = field(default_factory=dict)

    def __post_init__(self) -> None:
        nodes = range(len(self.costs))
        self.near, self.held, self.member = [[] for _ in nodes], [[] for _ in nodes], [[] for _ in nodes]
        for k, supply in enumerate(self.supplies):
            for v in supply.nodes:
                self.member[v].append(k)

    @cached_property
    def reach(self) -> list[_Reach]:
        """What each node holds and where it has a say, once all of `held` is there."""
        everywhere = len(self.limit) if self.priced else 0
        return [
            _Reach.of(spans, [span for k in self.member[v] for span in self.given[k]], len(self.costs[v]), everywhere)
            for v, spans in enumerate(self.held)
        ]

    @cached_property
    def alone(self) -> list[_Alone | None]:
        """Per supply what it brings to its one reader, where it has one."""
        return [
            _Alone.of(supply, given) if len(supply.nodes) == 2 and len(supply.readers) == 1 else None
            for supply, given in zip(self.supplies, self.given, strict=True)
        ]

    def brought(self, k: int, asked: frozenset[int]) -> _Brought:
        """What supply k brings where these items are asked for."""
        found = self._known.get((k, asked))
        if found is None:
            found = self._known[k, asked] = _Brought.of(self.supplies[k], self.given[k], asked)
        return found

    @staticmethod
    def of(places: Places) -> Terms:
        """The terms of a problem as it is."""
        problem = places.problem
        priced = [(problem.price(r), np.flatnonzero(places.resource == r)) for r in places.limited if problem.price(r)]
        costs = [problem.costs[v] for v in range(problem.node_count)]
        terms = Terms(costs, places.limit, problem.supplies, [[] for _ in problem.supplies], priced)
        for e, (u, v) in enumerate(problem.edges.tolist()):
            terms.join(u, v, problem.matrix(e))
        for row in places.rows:
            where = terms.held[row.node] if row.supply < 0 else terms.given[row.supply]
            where.append(Span(row.amounts, row.begin, row.end))
        return terms

    def join(self, u: int, v: int, matrix: Ints) -> None:
        """Adds the costs of a pair of nodes, or of one node with itself."""
        if u == v:
            self.costs = [*self.costs]
            self.costs[u] = np.minimum(self.costs[u], FORBIDDEN) + np.minimum(matrix.diagonal(), FORBIDDEN)
        else:
            self.near[u].append((v, matrix))
            self.near[v].append((u, matrix.T))


@dataclass(frozen=True, order=True)
class Rank:
    """How good a choice is: how many forbidden things it chooses, how far it is over the limits, what it costs."""

    forbidden: int
    over: int
    cost: int

    @property
    def allowed(self) -> bool:
        return not self.forbidden and not self.over


class Standing:
    """Strategies decided so far, and what they hold at every place. An open node holds its least."""

    def __init__(self, terms: Terms, choice: Sequence[int]) -> None:
        self.terms, self.choice = terms, list(choice)
        self.work = 1 + len(self.choice) // _PER_DECISION  # decisions so far, large ones counted several times
        change = np.zeros(len(terms.limit) + 1, dtype=np.int64)
        for v, s in enumerate(self.choice):
            held = terms.reach[v]
            amounts = held.amounts.min(axis=1) if s == OPEN else held.amounts[:, s]
            np.add.at(change, held.begin, amounts)
            np.add.at(change, held.end, -amounts)
        for k, supply in enumerate(terms.supplies):
            if (source := self.choice[supply.source]) != OPEN:
                terms.brought(k, self._asked(k)).add(change[:, None], [0], [source], np.arange(len(change)))
        self.profile = np.cumsum(change)[:-1]

    def rank(self) -> Rank:
        """Of the choice as it stands; everything is decided."""
        terms, forbidden, cost = self.terms, 0, 0
        for v, s in enumerate(self.choice):
            entries = [int(terms.costs[v][s])]
            entries += [int(matrix[s, self.choice[u]]) for u, matrix in terms.near[v] if u > v]
            forbidden += sum(entry >= _HALF for entry in entries)
            cost += sum(entry for entry in entries if entry < _HALF)
        for k, supply in enumerate(terms.supplies):
            brought, source = terms.brought(k, self._asked(k)), self.choice[supply.source]
            forbidden, cost = forbidden + int(brought.forbidden[source]), cost + int(brought.paid[source])
        cost += sum(price * int(self.profile[places].max(initial=0)) for price, places in terms.priced)
        return Rank(forbidden, int(np.maximum(self.profile - terms.limit, 0).sum()), cost)

    def decide(self, v: int) -> bool:
        """Gives node v the strategy that is best while all others stay; says whether that is another one.

        It keeps what it has where nothing is better. Pairs with open nodes count at their least.
        """
        before, reach = self.choice[v], self.terms.reach[v]
        forbidden, cost = self._own(v)
        now = reach.amounts.min(axis=1) if before == OPEN else reach.amounts[:, before]
        change = np.zeros((len(reach.cuts) + 1, len(cost) + 1), dtype=np.int64)  # the last column: as it is now
        amounts = np.column_stack([reach.amounts, now])
        np.add.at(change, np.searchsorted(reach.cuts, reach.begin), amounts)
        np.add.at(change, np.searchsorted(reach.cuts, reach.end), -amounts)
        for k in self.terms.member[v]:
            add = self._supply if self.terms.alone[k] is None else self._supply_alone
            add(v, k, change, forbidden, cost)
        more = np.cumsum(change[:-1], axis=0)
        more = more[:, :-1] - more[:, -1:]
        over = self._over(reach, more)
        for price, places in self.terms.priced:
            cost += price * (self.profile[places, None] + more[places]).max(axis=0, initial=0)
        self.work += 1 + (more.size + _DEAR * len(cost) * len(self.terms.member[v])) // _ENTRIES
        best = min(range(len(cost)), key=lambda s: (forbidden[s], over[s], cost[s], s != before))
        self.choice[v] = best
        if best != before and len(reach.cuts):
            self.profile[reach.cuts[0] : reach.stop] += np.repeat(more[:, best], reach.lengths)
        return best != before

    def _over(self, reach: _Reach, more: Ints) -> Ints:
        """How far the limits are exceeded with so much more in every stretch, each taken to be full throughout."""
        if not len(reach.cuts):
            return np.zeros(more.shape[1], dtype=np.int64)
        window = slice(reach.cuts[0], reach.stop)
        excess = np.maximum.reduceat(self.profile[window] - self.terms.limit[window], reach.cuts - reach.cuts[0])
        over: Ints = np.maximum(excess[:, None] + more, 0).T @ reach.lengths
        return over

    def _own(self, v: int) -> tuple[Ints, Ints]:
        """Per strategy how many forbidden things it means among its own cost and its pairs, and what the rest costs."""
        entries = [self.terms.costs[v]]
        for u, matrix in self.terms.near[v]:
            entries.append(matrix.min(axis=1) if self.choice[u] == OPEN else matrix[:, self.choice[u]])
        stacked = np.stack(entries)
        ruled_out = stacked >= _HALF
        return ruled_out.sum(axis=0), np.where(ruled_out, 0, stacked).sum(axis=0)

    def _supply(self, v: int, k: int, change: Ints, forbidden: Ints, cost: Ints) -> None:
        """Adds what supply k costs and holds under each strategy of v, and holds now."""
        supply, cuts, source = (
            self.terms.supplies[k],
            self.terms.reach[v].cuts,
            self.choice[self.terms.supplies[k].source],
        )
        mine = [asks for reader, asks in zip(supply.readers, supply.asks, strict=True) if reader == v]
        others = self._asked(k, without=v)
        alike: dict[tuple[int, ...], list[int]] = {}
        for s, asks in enumerate(zip(*(asks.tolist() for asks in mine), strict=True) if mine else [()] * len(cost)):
            alike.setdefault(asks, []).append(s)
        for asked, same in ((others.union(asks), same) for asks, same in alike.items()):
            sources = same if supply.source == v else [source] * len(same)
            if sources[0] != OPEN:
                brought = self.terms.brought(k, asked)
                forbidden[same] += brought.forbidden[sources]
                cost[same] += brought.paid[sources]
                brought.add(change, same, sources, cuts)
        if source != OPEN:
            self.terms.brought(k, self._asked(k)).add(change, [len(cost)], [source], cuts)

    def _supply_alone(self, v: int, k: int, change: Ints, forbidden: Ints, cost: Ints) -> None:
        """The same of a supply of one reader, for all strategies at once."""
        supply, alone = self.terms.supplies[k], self.terms.alone[k]
        assert alone is not None
        source, reader = self.choice[supply.source], self.choice[supply.readers[0]]
        item = OPEN if reader == OPEN else int(supply.asks[0][reader])
        if v != supply.source and source == OPEN:
            return
        at = (slice(None), item) if v == supply.source else (source, supply.asks[0])
        forbidden += alone.forbidden[at]
        cost += alone.paid[at]
        alone.add(change, self.terms.reach[v].cuts, at, None if source == OPEN else (source, item))

    def _asked(self, k: int, without: int = OPEN) -> frozenset[int]:
        supply = self.terms.supplies[k]
        pairs = zip(supply.readers, supply.asks, strict=True)
        return frozenset(int(asks[self.choice[v]]) for v, asks in pairs if v != without and self.choice[v] != OPEN)
