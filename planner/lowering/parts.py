"""The parts in which a tensor is moved to a layout that is needed: what each piece of its readers is the first to need,
as soon as the pieces of its operation that it comes from are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...space import Region
from ..strategy.layouts import Layout, Layouts, united


class Written(NamedTuple):
    """A part of a tensor, and the position of the task that leaves it; -1: it is there before the run."""

    at: int
    layout: Layout


class Reader(NamedTuple):
    """What a task reads of a tensor, by its position; ``piece`` of all that operation ``op`` reads.

    The end of the program reads outputs and states: it has no name and is in no pieces.
    """

    at: int
    need: Layout
    op: str
    piece: int = 0


class Part(NamedTuple):
    """A transfer to be: it follows the task at position ``after``, and the one at ``first`` is the first to need it."""

    have: Layout
    need: Layout
    after: int
    first: int


def written_by(tasks: Sequence[tuple[int, int, Layout]], layouts: Layouts) -> list[Written]:
    """What the pieces of an operation leave, from the position, the piece and the layout of each of its tasks."""
    pieces: dict[int, list[tuple[int, Layout]]] = {}
    for at, piece, layout in tasks:
        pieces.setdefault(piece, []).append((at, layout))
    return [
        Written(max(at for at, _ in made), united([layout for _, layout in made], layouts)) for made in pieces.values()
    ]


def by_piece(readers: Sequence[Reader], layouts: Layouts) -> list[Reader]:
    """The readers in the order of the tasks, those of one piece as one."""
    groups: dict[tuple[str, int], list[Reader]] = {}
    for reader in sorted(readers, key=lambda reader: reader.at):
        groups.setdefault((reader.op, reader.piece), []).append(reader)
    return [group[0]._replace(need=united([r.need for r in group], layouts)) for group in groups.values()]


def apart(need: Layout, groups: Sequence[Reader], layouts: Layouts) -> list[Layout]:
    """By piece what it reads of the layout, in one operation or another, where pieces share it out among them; nothing
    where they do not, or some operation reads it at once.
    """
    by_number: dict[int, list[Layout]] = {}
    for group in groups:
        by_number.setdefault(group.piece, []).append(group.need)
    found = [united(needs, layouts) for needs in by_number.values()]
    return found if len(found) > 1 and sum(mine.total for mine in found) == need.total else []


def parts(need: Layout, groups: Sequence[Reader], written: Sequence[Written], layouts: Layouts) -> Iterator[Part]:
    """The transfers that complete ``need`` for its readers (`by_piece`).

    What an operation reads that is computed at once comes at once, with all else that is lacking.
    """
    left, pieced = need, {group.op for group in groups if group.piece}
    for group in groups:
        mine = left if group.op not in pieced or group is groups[-1] else _common(group.need, left, layouts)
        if mine.total:
            yield from _from_pieces(mine, written, group.at, layouts)
        if mine is left:
            return
        left = layouts.without(left, mine)


def _from_pieces(need: Layout, written: Sequence[Written], first: int, layouts: Layouts) -> Iterator[Part]:
    """A transfer for each piece of the operation that brings something."""
    if len(written) == 1:
        yield Part(written[0].layout, need, written[0].at, first)
    elif written[0].layout.parts is not None:
        yield from reversed([*_folded(need, written, first, layouts)])
    else:
        yield from _copied(need, written, first, layouts)


def _copied(need: Layout, written: Sequence[Written], first: int, layouts: Layouts) -> Iterator[Part]:
    """Of complete elements the first copy, but to a rank that makes one itself its own."""
    own = united([made.layout for made in written], layouts)
    shared = own.total > own.everything.size
    left = need
    for made in written:
        mine = layouts.inside(left, made.layout.everything)
        if shared and mine.total:
            mine = united([layouts.without(mine, own), layouts.both(mine, made.layout)], layouts)
        if mine.total:
            yield Part(_restricted([made.layout], mine.everything, layouts), mine, made.at, first)
            left = layouts.without(left, mine)


def _folded(need: Layout, written: Sequence[Written], first: int, layouts: Layouts) -> Iterator[Part]:
    """All contributions to a fold must be there: the last parts first."""
    left = need
    for k in reversed(range(len(written))):
        mine = layouts.inside(left, written[k].layout.everything)
        if mine.total:
            earlier = [made.layout for made in written[: k + 1]]
            yield Part(_restricted(earlier, mine.everything, layouts), mine, written[k].at, first)
            left = layouts.without(left, mine)


def _restricted(held: Sequence[Layout], to: Region, layouts: Layouts) -> Layout:
    """What the pieces so far hold together of some elements: mostly the last one alone holds any."""
    met = [layout for layout in held if layout.everything.meet_size(to)]
    if len(met) == 1:
        return layouts.inside(met[0], to, held[0].parts)
    columns = zip(*(layout.regions for layout in met), strict=True)
    regions = [Region.union(regions) & to for regions in columns]
    return layouts.of(held[0].shape, regions, held[0].parts)


def _common(one: Layout, other: Layout, layouts: Layouts) -> Layout:
    if one.within(other):
        return one
    return layouts.both(one, other)
