"""Messages between nodes and the pairs that they meet in, and shares of what readers pay together.

A pair is a source and one reader, with a table of what each face of the one and of the other costs together. For
messages m from a pair to its two nodes the sum of

    min over strategies of (cost + Σ m),   node by node,      and      min of (table − m − m),   pair by pair,

is a bound, whatever the messages. Nodes are gone through forwards and backwards; each takes all that its pairs can
give and hands equal parts of what it has to the pairs that come later (TRW-S: Kolmogorov, IEEE TPAMI 28, 2006). Readers
of one supply divide its costs: what a share is more than the bound needs of it is divided anew among all of them.

Plain NumPy, the pairs of a source at once, so that it is there at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .pairs import Faces, Floats, Group
from .problem import Ints

NEVER = np.inf  # in a table: what the source's strategy rules out
# Along one axis; arrays are small, and their own methods take twice as long.
_least, _added = np.minimum.reduce, np.add.reduce


@dataclass(eq=False)
class Meeting:
    """The duals of a group: its `table` [row, face of the source], the `costs` [item, face] of its supply and the
    `shares` [pair, item, face] of them, and the messages `to_source` [pair, face] and `to_reader` [row].
    """

    group: Group
    table: Floats
    costs: Floats
    shares: Floats
    to_source: Floats
    to_reader: Floats

    @staticmethod
    def begun(group: Group) -> Meeting:
        """Nothing is moved, and nothing costs anything yet."""
        rows, pairs, width = len(group.pair), len(group.readers), group.width
        table = np.zeros((rows, width))
        if group.barred is not None:
            table[group.barred] = NEVER
        costs, shares = np.zeros((group.items, width)), np.zeros((pairs, group.items, width))
        return Meeting(group, table, costs, shares, np.zeros((pairs, width)), np.zeros(rows))

    def copied(self) -> Meeting:
        """The same, to be changed by itself."""
        arrays = ("table", "costs", "shares", "to_source", "to_reader")
        return replace(self, **{name: getattr(self, name).copy() for name in arrays})

    def follow(self, old: Meeting, near: Sequence[Ints]) -> None:
        """Takes the duals of the same pairs of a problem of which strategies `near` are left, by node. What a face is
        now may have been several: any of theirs will do, as a bound holds whatever the messages.
        """
        group, was = self.group, old.group
        ends = was.ends.of[near[group.source][group.first]]
        self.to_source[:], self.shares[:], self.costs[:] = (
            old.to_source[:, ends],
            old.shares[:, :, ends],
            old.costs[:, ends],
        )
        for j, (reader, faces) in enumerate(zip(group.readers, group.faces, strict=True)):
            first = np.unique(faces.of, return_index=True)[1]
            self.to_reader[group.rows[j]] = old.to_reader[was.rows[j]][was.faces[j].of[near[reader][first]]]

    def charge(self, costs: Floats) -> None:
        """Takes the costs of the supply; shares keep their proportions."""
        before = np.where(self.costs > 0, self.costs, 1.0)
        kept = self.shares * (costs / before)
        self.shares[:] = np.where(self.costs > 0, kept, costs / len(self.shares))
        self.costs[:] = costs
        self.fill()

    def fill(self) -> None:
        """The table from the shares: the least share of an item that serves; 0 where none is asked for."""
        serving = self.group.serving
        if len(serving.of):
            self.table[serving.of] = serving.least(self._flat)
        if self.group.barred is not None:
            self.table[self.group.barred] = NEVER

    @property
    def _flat(self) -> Floats:
        """Shares by their numbers."""
        return self.shares.reshape(-1, self.group.width)

    def divide(self) -> None:
        """Leaves each reader what it needs so that its least stays, and divides the rest equally."""
        group = self.group
        if not group.shared or len(group.readers) < 2 or not len(group.served.of):
            return
        moved = self.to_source + self.leasts()[:, None]
        need = moved[group.pair] + self.to_reader[:, None]
        if group.barred is not None:
            need[group.barred] = 0.0
        self.shares.fill(0.0)
        self._flat[group.served.of] = np.maximum(group.served.most(need), 0.0)
        self.shares += np.maximum(self.costs - _added(self.shares, 0), 0.0) / len(group.readers)
        self.fill()

    def to_give(self) -> Floats:
        """[pair, face] all that pairs can give to the source."""
        return self.group.least(self.table - self.to_reader[:, None])

    def to_give_reader(self, j: int) -> Floats:
        """[face] all that a pair can give to its reader."""
        found: Floats = _least(self.table[self.group.rows[j]] - self.to_source[j], 1)
        return found

    def leasts(self) -> Floats:
        """Of every pair."""
        found: Floats = _least(self.to_give() - self.to_source, 1)
        return found


@dataclass(frozen=True, eq=False)
class _Read:
    """A pair as its reader has it: views of what its meeting holds, which changes in place. ``face``: of the reader's
    strategies; ``above``: whether the source has the larger number.
    """

    table: Floats
    to_source: Floats
    to_reader: Floats
    face: Faces
    above: bool

    @staticmethod
    def of(meeting: Meeting, j: int, *, above: bool) -> _Read:
        rows = meeting.group.rows[j]
        face = meeting.group.faces[j]
        return _Read(meeting.table[rows], meeting.to_source[j], meeting.to_reader[rows], face, above)

    def ask(self) -> None:
        """Takes all that the pair can give."""
        _least(self.table - self.to_source, 1, out=self.to_reader)


@dataclass(eq=False)
class _Near:
    """What a node is in: groups as the source, with those of their pairs whose reader comes before and after it, and
    pairs as the reader, with the node that is the source.
    """

    gives: list[tuple[int, Ints, Ints]] = field(default_factory=list)
    reads: list[tuple[int, int, int]] = field(default_factory=list)
    part: float = 1.0  # of what the node has, that each pair gets which comes later


def _near(groups: Sequence[Group], nodes: int) -> list[_Near]:
    found = [_Near() for _ in range(nodes)]
    sides = np.zeros((nodes, 2), dtype=np.int64)  # pairs with nodes of smaller and of larger numbers
    for g, group in enumerate(groups):
        readers = np.array(group.readers)
        before, after = np.flatnonzero(readers < group.source), np.flatnonzero(readers > group.source)
        found[group.source].gives.append((g, before, after))
        sides[group.source] += len(before), len(after)
        for j, reader in enumerate(group.readers):
            if reader != group.source:
                found[reader].reads.append((g, j, group.source))
                sides[reader, int(group.source > reader)] += 1
    for near, most in zip(found, sides.max(axis=1).tolist(), strict=True):
        near.part = 1.0 / max(most, 1)
    return found


class Messages:
    """The duals of all groups, and the costs of nodes by strategy (`unary`)."""

    def __init__(
        self, meetings: Sequence[Meeting], unary: Sequence[Floats], near: Sequence[_Near] | None = None
    ) -> None:
        self.meetings, self.unary = meetings, list(unary)
        self._near = near or _near([meeting.group for meeting in meetings], len(unary))
        self._reads = [
            [_Read.of(meetings[g], j, above=source > v) for g, j, source in mine.reads]
            for v, mine in enumerate(self._near)
        ]

    def copied(self) -> Messages:
        """The same, to be changed by themselves."""
        return Messages([meeting.copied() for meeting in self.meetings], self.unary, self._near)

    def sweep(self, *, forward: bool) -> None:
        """Once through all nodes. Forwards, what is supplied is divided anew: twice as often helps hardly more."""
        nodes = range(len(self.unary))
        for v in nodes if forward else reversed(nodes):
            near = self._near[v]
            for g, _, _ in near.gives:
                meeting = self.meetings[g]
                if forward:
                    meeting.divide()
                meeting.to_source[:] = meeting.to_give()
            for read in self._reads[v]:
                read.ask()
            self._hand(v, near, forward=forward)

    def _hand(self, v: int, near: _Near, *, forward: bool) -> None:
        """Gives part of what a node has to each pair that comes later."""
        belief = near.part * self._belief(v)
        for g, before, after in near.gives:
            later, meeting = after if forward else before, self.meetings[g]
            if len(later):
                meeting.to_source[later] -= meeting.group.ends.least(belief)
        for read in self._reads[v]:
            if read.above is forward:
                np.subtract(read.to_reader, read.face.least(belief), out=read.to_reader)

    def _belief(self, v: int) -> Floats:
        """What the strategies of a node cost with all that its pairs have given."""
        belief = self.unary[v].copy()
        for g, _, _ in self._near[v].gives:
            meeting = self.meetings[g]
            belief += _added(meeting.to_source, 0).take(meeting.group.ends.of)
        for read in self._reads[v]:
            belief += read.to_reader.take(read.face.of)
        return belief

    def bound(self, add: Callable[[Floats], float]) -> float:
        """What nodes and pairs add to the bound, added up."""
        nodes = np.array([self._belief(v).min() for v in range(len(self.unary))])
        return sum(map(add, (nodes, *(meeting.leasts() for meeting in self.meetings))))

    def spared(self) -> list[Floats]:
        """By node and strategy how much more than the bound every choice with it costs at least: in the node, and in
        its pairs.
        """
        given, least = [m.to_give() for m in self.meetings], [m.leasts() for m in self.meetings]
        found = []
        for v, near in enumerate(self._near):
            spare = self._belief(v)
            spare -= spare.min()
            for g, _, _ in near.gives:
                meeting = self.meetings[g]
                spare += (given[g] - meeting.to_source - least[g][:, None]).sum(axis=0)[meeting.group.ends.of]
            for g, j, _ in near.reads:
                meeting, rows = self.meetings[g], self.meetings[g].group.rows[j]
                more = meeting.to_give_reader(j) - meeting.to_reader[rows] - least[g][j]
                spare += more[meeting.group.faces[j].of]
            found.append(spare)
        return found

    def decided(self) -> list[int]:
        """A strategy for every node, one after another: by the tables of pairs with those before, and by messages."""
        choice: list[int] = []
        for v, near in enumerate(self._near):
            belief = self._belief(v)
            for g, before, _ in near.gives:
                meeting, group = self.meetings[g], self.meetings[g].group
                for j in before.tolist():
                    row = int(group.starts[j] + group.faces[j].of[choice[group.readers[j]]])
                    alone = meeting.table[row] - meeting.to_reader[row] - meeting.to_source[j]
                    belief += alone[group.ends.of]
            for g, j, source in near.reads:
                if source < v:
                    meeting, group = self.meetings[g], self.meetings[g].group
                    x = group.ends.of[choice[source]]
                    rows = group.rows[j]
                    alone = meeting.table[rows, x] - meeting.to_source[j, x] - meeting.to_reader[rows]
                    belief += alone[group.faces[j].of]
            choice.append(int(belief.argmin()))
        return choice
