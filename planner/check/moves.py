"""Seventh proof: transfers are named, and go over the links, as the plan says. What they are, by their layouts alone.

The names (`named`) are those of libraries, and choose the measured curve that times it. Bytes go by the rule of the
format: that of `senders`, or, where a plan does not say who sends, the first: what a rank lacks comes from the next
holder after it, counted round the ranks; a fold is made in equal shares along the longest axis by the ranks that need
it (of these, by those that contribute, if any), each contribution from the next holder after the one who folds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...expr import MONOIDS
from ..format.document import Transfer
from . import senders
from .algebra import EMPTY
from .case import Case
from .cells import length
from .count import received
from .divided import Stream
from .near import Near
from .rates import Rates
from .report import Code, Findings

Column = tuple[int, ...]


@dataclass(frozen=True)
class Move:
    """``within``: bytes between ranks of one group, for the groups that links of every scope connect, the nearest
    first; of ``loose`` bytes more that is not settled.

    Loose are folds of regions that are not one grid, whose shares the format leaves to who makes the messages.
    ``streams``: the seconds by levels, where some are over links that devices have together.
    """

    kind: str
    within: tuple[int, ...]
    loose: tuple[int, ...]
    seconds: float
    streams: tuple[Stream, ...] = ()


def prove(case: Case, moves: Moves, findings: Findings) -> None:
    """Findings KIND and LINKS."""
    scopes = [scope for scope, _ in moves.rates.reach]
    within, loose = [0] * len(scopes), [0] * len(scopes)
    for task in case.tasks:
        if isinstance(task, Transfer):
            move = moves.of(task)
            within = [a + b for a, b in zip(within, move.within, strict=True)]
            loose = [a + b for a, b in zip(loose, move.loose, strict=True)]
            if task.kind != move.kind:
                message = f"it is called {task.kind}; by what is there and what is needed it is {move.kind}"
                findings.add(Code.KIND, message, task=task.id, tensor=task.tensor)
    least, most = Counter[str](), Counter[str]()
    nearer, unsettled = 0, 0
    for scope, near, open_ in zip(scopes, within, loose, strict=True):
        if near + open_ > nearer:
            kind = str(moves.rates.link(scope)[0]["kind"])
            least[kind] += max(0, near - nearer - unsettled)
            most[kind] += near + open_ - nearer
        nearer, unsettled = near, open_
    stated = case.document.traffic.bytes_by_link
    for kind in sorted({*most, *stated}):
        said = stated.get(kind, 0)
        if not least[kind] <= said <= most[kind] or sum(stated.values()) != within[-1]:
            at_most = f" to {most[kind]}" if most[kind] > least[kind] else ""
            message = f"bytes_by_link states {said} over {kind}; the transfers move {least[kind]}{at_most}"
            findings.add(Code.LINKS, message, witness=(least[kind],))


class Groups:
    """The ranks whose devices links of one scope connect. ``of``: by rank the number of its group."""

    def __init__(self, scope: str, of: list[int]) -> None:
        self.scope, self.of = scope, of
        self.members: dict[int, list[int]] = {}
        for rank, group in enumerate(of):
            self.members.setdefault(group, []).append(rank)


class Moves:
    """The transfers of one plan; equal ones are looked at once."""

    def __init__(self, case: Case, rates: Rates) -> None:
        self.case, self.rates = case, rates
        devices = case.document.devices
        self.groups = [Groups(scope, [device // size for device in devices]) for scope, (size, _) in rates.reach]
        self._known: dict[tuple[object, ...], Move] = {}

    def of(self, task: Transfer) -> Move:
        case = self.case
        sizes = case.record_bytes(task.tensor), case.item_bytes(task.tensor)
        key = (task.have, task.need, task.ranks, task.monoid, *sizes)
        if key not in self._known:
            self._known[key] = self._move(task, *sizes)
        return self._known[key]

    def _move(self, task: Transfer, record: int, item: int) -> Move:
        """Ranks that take no part have nothing and need nothing."""
        have, need = (self._among(task, self.case.layouts[name]) for name in (task.have, task.need))
        parts = self.case.parts(task.have)
        if self.case.document.senders == "by_host":
            return self._by_host(task, have, need, (record, item))
        contributions, elements = received(self.case, task)
        total = contributions * record + elements * item
        if parts is None:
            lacks = [self.case.algebra.size(self.case.algebra.minus(n, h)) for h, n in zip(have, need, strict=True)]
            kind = self._named(have, need, lacks)
            own = tuple(self._own_complete(have, need, groups) * item for groups in self.groups)
            outside = [self._outside(have, need, groups) * item for groups in self.groups]
            receiving = [rank for rank, lack in enumerate(lacks) if lack]
            seconds = self._seconds(kind, max(lacks) * item, outside, receiving)
            return Move(kind, own, (0,) * len(own), seconds)
        kind = self._named_folds([need])
        counted = [self._own_fold(task, have, need, parts, (record, item), groups) for groups in self.groups]
        receiving = [rank for rank, region in enumerate(need) if region != EMPTY]
        busiest = -(-total // max(1, len(receiving)))
        outside = [busiest if len(groups.members) > 1 else 0 for groups in self.groups]
        seconds = self._seconds(kind, busiest, outside, receiving)
        return Move(kind, tuple(own for own, _ in counted), tuple(loose for _, loose in counted), seconds)

    def _by_host(self, task: Transfer, have: Column, need: Column, sizes: tuple[int, int]) -> Move:
        """Senders are chosen by hosts: a link moves what the busiest rank receives or sends."""
        algebra, parts, levels = self.case.algebra, self.case.parts(task.have), self._levels()
        near = [groups.of for groups in levels]
        lacks = [algebra.size(algebra.minus(n, h)) for h, n in zip(have, need, strict=True)]
        if parts is None:
            kind, receiving = self._named(have, need, lacks), [rank for rank, lack in enumerate(lacks) if lack]
            sent = senders.complete(algebra, have, need, near, sizes[1])
        else:
            apart = [(self._only(ranks, have), self._only(ranks, need)) for ranks in self.case.meeting(task)]
            kind, receiving = self._named_folds([n for _, n in apart]), [r for r, n in enumerate(need) if n != EMPTY]
            if self.case.parts(task.need) is not None:
                sizes = sizes[0], sizes[0]  # what comes of it are records as well
            packed = self._packed(task)
            folds = (senders.folded(algebra, h, n, parts, near, sizes, packed=packed) for h, n in apart)
            sent = senders.together(folds)
        devices, seconds, streams = [self.case.document.devices[rank] for rank in receiving], 0.0, list[Stream]()
        for groups, nbytes in zip(levels, sent.busiest(), strict=True):
            largest = max(map(len, groups.members.values()))
            took = self.rates.receive(nbytes, kind, largest, groups.scope, devices) if nbytes else 0.0
            shared, users = self.rates.streamed(nbytes, groups.scope, devices)
            streams.append(Stream(took - shared, shared, users))
            seconds += took
        received = dict(zip([groups.scope for groups in levels], sent.received(), strict=True))
        within = [*accumulate(received.get(groups.scope, 0) for groups in self.groups)]
        divided = any(stream.users for stream in streams)
        return Move(kind, tuple(within), (0,) * len(within), seconds, tuple(streams) if divided else ())

    def _levels(self) -> list[Groups]:
        """The groups, without those that a nearer link connects as well."""
        return [g for k, g in enumerate(self.groups) if k == 0 or g.members != self.groups[k - 1].members]

    def _packed(self, task: Transfer) -> bool:
        return task.monoid is not None and task.monoid in MONOIDS and MONOIDS[task.monoid].packed

    def _among(self, task: Transfer, column: Column) -> Column:
        return column if task.ranks is None else self._only(task.ranks, column)

    def _only(self, ranks: Sequence[int], column: Column) -> Column:
        """Of some ranks; others have nothing."""
        members = set(ranks)
        return tuple(region if rank in members else EMPTY for rank, region in enumerate(column))

    def _disjoint(self, column: Column) -> bool:
        algebra = self.case.algebra
        return sum(map(algebra.size, column)) == algebra.size(algebra.join(column))

    # Names

    def _named(self, have: Column, need: Column, lacks: Sequence[int]) -> str:
        """What a library would call it: the first of these that fits."""
        algebra = self.case.algebra
        wanting = {need[rank] for rank, lack in enumerate(lacks) if lack}
        if not wanting:
            return "local"
        if sum(region != EMPTY for region in have) == 1:
            return "broadcast" if len(wanting) == 1 else "sends"
        apart = self._disjoint(have)
        if apart and len(wanting) == 1 and all(lacks):
            return "all_gather"
        if apart and self._disjoint(need) and sum(map(algebra.size, need)) == sum(map(algebra.size, have)):
            return "all_to_all"
        if all(algebra.within(h, n) for h, n in zip(have, need, strict=True)):
            return "shift" if self._from_neighbours(have, need) else "all_gather"
        return "sends"

    def _from_neighbours(self, have: Column, need: Column) -> bool:
        algebra = self.case.algebra
        near = ((have[max(0, rank - 1) : rank + 2]) for rank in range(len(have)))
        return all(algebra.within(n, algebra.join(around)) for n, around in zip(need, near, strict=True))

    def _named_folds(self, needs: Sequence[Column]) -> str:
        """Of groups that fold each for itself: what most there is to do."""
        names = {self._named_fold(need) for need in needs if any(region != EMPTY for region in need)}
        return next((name for name in ("all_reduce", "reduce_scatter", "reduce") if name in names), "reduce_scatter")

    def _named_fold(self, need: Column) -> str:
        if sum(region != EMPTY for region in need) == 1:
            return "reduce"
        return "reduce_scatter" if self._disjoint(need) else "all_reduce"

    # Seconds

    def _seconds(self, kind: str, received: int, outside: Sequence[int], receiving: Sequence[int]) -> float:
        """Of the busiest rank: what it can only get from outside of a group takes the link that connects groups."""
        devices = [self.case.document.devices[rank] for rank in receiving]
        seconds, taken, ranks = 0.0, 0, self.case.ranks
        for k in reversed(range(len(self.groups))):
            if k and self.groups[k - 1].members == self.groups[k].members:
                continue  # a nearer link connects the same ranks
            nbytes = received if k == 0 else outside[k - 1]
            if nbytes > taken and any(len(members) > 1 for members in self.groups[k].members.values()):
                seconds += self.rates.receive(nbytes - taken, kind, ranks, self.groups[k].scope, devices)
                taken, ranks = nbytes, 2
        return seconds

    def _outside(self, have: Column, need: Column, groups: Groups) -> int:
        """Most elements that a rank can only get from outside of its group."""
        if len(groups.members) == 1:
            return 0
        algebra = self.case.algebra
        near = {group: algebra.join(have[rank] for rank in ranks) for group, ranks in groups.members.items()}
        return max(algebra.size(algebra.minus(n, near[groups.of[rank]])) for rank, n in enumerate(need))

    # Bytes by link

    def _own_complete(self, have: Column, need: Column, groups: Groups) -> int:
        """Elements that a rank gets from another one of its group."""
        algebra = self.case.algebra
        lacking = [algebra.minus(n, h) for h, n in zip(have, need, strict=True)]
        if len(groups.members) == 1:
            return sum(map(algebra.size, lacking))
        if self._disjoint(have):
            near = {group: algebra.join(have[rank] for rank in ranks) for group, ranks in groups.members.items()}
            return sum(algebra.size(algebra.meet(lack, near[groups.of[r]])) for r, lack in enumerate(lacking))
        holders, of = senders.by_region(have), groups.of
        return sum(self._taken_near(rank, lack, holders, of) for rank, lack in enumerate(lacking) if lack != EMPTY)

    def _taken_near(self, rank: int, lacking: int, holders: dict[int, list[int]], of: Sequence[int]) -> int:
        """The next holder after the rank sends; regions in the order of their next holders."""
        algebra, size, found = self.case.algebra, self.case.ranks, 0
        nearest = sorted(((_next(ranks, rank) - rank) % size, region) for region, ranks in holders.items())
        for step, region in nearest:
            algebra.budget.spend(1, "holders of what is moved")
            if of[(rank + step) % size] == of[rank]:
                found += algebra.size(algebra.meet(lacking, region))
            lacking = algebra.minus(lacking, region)
            if lacking == EMPTY:
                break
        return found

    def _own_fold(
        self, task: Transfer, have: Column, need: Column, parts: Sequence[int], sizes: tuple[int, int], groups: Groups
    ) -> tuple[int, int]:
        """Bytes between ranks of one group, and bytes of which it is not settled."""
        algebra, (record, item), own, loose = self.case.algebra, sizes, 0, 0
        if len(groups.members) == 1:
            contributions, elements = received(self.case, task)
            return contributions * record + elements * item, 0
        packed = self._packed(task)
        holding = senders.by_region(have)
        near = Near(algebra, holding)
        for piece, needers in senders.pieces(algebra, senders.by_region(need)):
            held: dict[int, list[int]] = {}
            for region in near.to(piece):
                held.setdefault(algebra.meet(piece, region), []).extend(holding[region])
            held.pop(EMPTY, None)
            for part, holders in senders.pieces(algebra, held):
                tiles = algebra.form(part).tiles
                fold = _Fold(needers, holders, parts, groups.of)
                if len(tiles) > 1 and len(fold.roots) > 1:
                    count = len({parts[rank] for rank in holders}) - bool(set(needers) & set(holders))
                    loose += algebra.size(part) * (count * record + (len(needers) - 1) * item)
                    continue
                extents = [length(runs) for runs in tiles[0]]
                for root, share in zip(fold.roots, _shares(extents, len(fold.roots), packed), strict=True):
                    algebra.budget.spend(1, "shares of folds")
                    own += share * (fold.contributed(root) * record + fold.told(root) * item) if share else 0
        return own, loose


class _Fold:
    """Who folds one piece, and how many messages of it come from the host of the one who folds."""

    def __init__(
        self, needers: Iterable[int], holders: Iterable[int], parts: Sequence[int], host: Sequence[int]
    ) -> None:
        self.needers, self.holders, self.host = set(needers), set(holders), host
        self.roots = sorted(self.needers & self.holders) or sorted(self.needers)
        self.by_part: dict[int, list[int]] = {}
        for rank in sorted(self.holders):
            self.by_part.setdefault(parts[rank], []).append(rank)
        self.alone = len(self.by_part) == len(self.holders)
        self.holding, self.needing = (Counter(host[rank] for rank in ranks) for ranks in (self.holders, self.needers))

    def contributed(self, root: int) -> int:
        home = self.host[root]
        if self.alone:
            return self.holding[home] - (root in self.holders)
        chosen = (_next(ranks, root) for ranks in self.by_part.values())
        return sum(rank != root and self.host[rank] == home for rank in chosen)

    def told(self, root: int) -> int:
        return self.needing[self.host[root]] - 1


def _next(ranks: Sequence[int], after: int) -> int:
    """Of ascending ranks the first from ``after`` on, round the ranks."""
    k = bisect_left(ranks, after)
    return ranks[k] if k < len(ranks) else ranks[0]


def _shares(extents: Sequence[int], count: int, packed: bool) -> Iterator[int]:
    """Elements of each of equal shares of a grid along its longest axis; records, along the last, are not cut."""
    able = extents[: len(extents) - packed]
    total = 1
    for extent in extents:
        total *= extent
    if count == 1 or not able:
        yield from (total if k == 0 else 0 for k in range(count))
        return
    longest = max(able)
    for k in range(count):
        yield total // longest * ((k + 1) * longest // count - k * longest // count)
