"""The second engine for sets of index tuples: it reads what the first one answers as bare runs of integers, and counts.

The first engine (`tapestry.space`) makes plans too, so a fault of it would be planned and checked as right. Nothing
here calls it. Several sets cut each axis into classes of values that lie in the same of them; products of such classes,
each with its number of tuples, are all there is to say about how the sets lie to one another. So an answer is proved by
looking at every class once: no set is subtracted, met or joined here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import lcm, prod

from ...space import Region

Runs = tuple[range, ...]
Tile = tuple[Runs, ...]
"""The product of one set per axis."""
Spend = Callable[[int, str], None]
WORK = "looking at how index sets lie to one another"


class Disagreement(Exception):
    """The two engines answer a question differently; the text says which."""


@dataclass(frozen=True, eq=False)
class Form:
    """A set as tiles. ``size`` is right where no tuple is in two of them."""

    tiles: tuple[Tile, ...]

    @cached_property
    def size(self) -> int:
        return sum(prod(map(length, tile)) for tile in self.tiles)

    @cached_property
    def hulls(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per tile and axis the interval around it."""
        return tuple(
            tuple((min(r.start for r in runs), max(r.stop for r in runs)) for runs in tile)
            for tile in self.tiles
            if all(tile)
        )

    @cached_property
    def dense(self) -> bool:
        """Every tile is a box: what is in its hull is in it."""
        return all(len(runs) == 1 and runs[0].step == 1 for tile in self.tiles for runs in tile)

    def least(self) -> tuple[int, ...] | None:
        """A tuple of it, None when it is empty."""
        return tuple(lo for lo, _ in self.hulls[0]) if self.hulls else None


NOTHING = Form(())


def length(runs: Runs) -> int:
    return sum(max(0, -((run.start - run.stop) // run.step)) for run in runs)


def last(run: range) -> int:
    """The greatest of a run that is not empty."""
    return run.start + (run.stop - run.start - 1) // run.step * run.step


def runs(extent: int) -> Runs:
    """All from zero to an extent."""
    return (range(extent),) if extent else ()


def box(extents: Sequence[int]) -> Form:
    """All tuples from zero to the extents."""
    return Form((tuple(map(runs, extents)),)) if all(extents) else NOTHING


def bare(region: Region) -> Form:
    """What a region of the first engine is made of."""
    return Form(tuple(tuple(axis.runs for axis in grid.axes) for grid in region.grids))


def read(text: str) -> Form:
    """A region as plans write it: grids between +, axes between commas, runs between |. ValueError for anything else.

    >>> read("0:4,0:8|12:16").size, read("()").size, read("empty").size
    (48, 1, 0)
    """
    if text == "empty":
        return NOTHING
    return Form(tuple(_tile(grid.strip()) for grid in text.split("+")))


def _tile(text: str) -> Tile:
    if text == "()":
        return ()
    return tuple(() if axis == "-" else tuple(_run(part) for part in axis.split("|")) for axis in text.split(","))


def _run(text: str) -> range:
    lo, hi, *step = map(int, text.split(":"))
    return range(lo, hi, *step)


def classes(tiles: Sequence[Tile], spend: Spend) -> dict[int, int]:
    """Which tiles (as bits) hold a tuple together and alone -> how many such tuples there are."""
    found = {(1 << len(tiles)) - 1: 1} if tiles else {}
    for axis in zip(*tiles, strict=True):
        there = _classes(axis, spend)
        spend(len(found) * len(there) >> 2, WORK)
        both: dict[int, int] = {}
        for one, many in found.items():
            for other, count in there.items():
                if one & other:
                    both[one & other] = both.get(one & other, 0) + many * count
        found = both
    return found


def _classes(sets: Sequence[Runs], spend: Spend) -> dict[int, int]:
    """The same of one axis, by walking over the ends of all runs. The runs of a set do not overlap."""
    if all(runs == sets[0] for runs in sets):
        return {(1 << len(sets)) - 1: length(sets[0])} if sets[0] else {}
    turns: dict[int, int] = {}
    woven: list[tuple[int, range]] = []
    for k, runs in enumerate(sets):
        for run in runs:
            ends = (run.start, run.stop)
            for end in ends:
                turns[end] = turns.get(end, 0) ^ (1 << k if run.step == 1 else 0)
            if run.step != 1:
                woven.append((1 << k, run))
    found: dict[int, int] = {}
    inside, places = 0, sorted(turns)
    for lo, hi in pairwise(places):
        inside ^= turns[lo]
        through = [(bit, run) for bit, run in woven if run.start <= lo and hi <= run.stop]
        spend(1 + len(woven), WORK)
        for mask, count in _segment(lo, hi, inside, through, spend) if through else ((inside, hi - lo),):
            if mask:
                found[mask] = found.get(mask, 0) + count
    return found


def _segment(
    lo: int, hi: int, inside: int, through: Sequence[tuple[int, range]], spend: Spend
) -> Iterable[tuple[int, int]]:
    """Between two neighbouring ends membership repeats with the steps: one class per remainder."""
    period = min(hi - lo, lcm(*(run.step for _, run in through)))
    spend(period, WORK)
    masks = [inside] * period
    for bit, run in through:
        for at in range((run.start - lo) % run.step, period, run.step):
            masks[at] ^= bit
    return ((mask, (hi - lo - at + period - 1) // period) for at, mask in enumerate(masks))


def holds(groups: Sequence[Form], rule: Callable[..., bool], spend: Spend) -> bool:
    """Whether the rule is true of every tuple of any of the forms, given how many tiles of each form hold it."""
    masks, first = [], 0
    for form in groups:
        masks.append(((1 << len(form.tiles)) - 1) << first)
        first += len(form.tiles)
    tiles = [tile for form in groups for tile in form.tiles]
    return all(rule(*((where & mask).bit_count() for mask in masks)) for where in classes(tiles, spend))


def apart(a: Form, b: Form) -> bool:
    """No tuple of one is in the other; False where intervals cannot tell."""
    return all(_apart(one, other) for one in a.hulls for other in b.hulls)


def _apart(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> bool:
    return any(hi <= low or high <= lo for (lo, hi), (low, high) in zip(one, other, strict=True))


def within(a: Form, b: Form) -> bool:
    """All of one is in the other; False where intervals cannot tell."""
    return b.dense and all(any(_within(one, other) for other in b.hulls) for one in a.hulls)


def _within(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> bool:
    return all(low <= lo and hi <= high for (lo, hi), (low, high) in zip(one, other, strict=True))


def well_formed(form: Form, spend: Spend) -> bool:
    """Runs go upward and do not overlap, nor do tiles."""
    for tile in form.tiles:
        for runs in tile:
            if any(run.step < 1 or run.start >= run.stop for run in runs):
                return False
            if len(runs) > 1 and any(mask.bit_count() > 1 for mask in _classes([(run,) for run in runs], spend)):
                return False
    return len(form.tiles) < 2 or holds((form,), lambda tiles: tiles < 2, spend)
