"""A fault that planner and checker share is found by the check, though both have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tapestry import records
from tapestry.expr import Affine, Bound, simplify
from tapestry.planner.check import check
from tapestry.planner.format import Resolved, loads, senders
from tapestry.planner.strategy.columns import Column
from tapestry.program import Operation
from tapestry.space import cases, counting, cuts, image, intset, projection, proofs, region, runs
from tapestry.space.image import Image
from tapestry.space.intset import IntSet
from tapestry.space.region import Grid, Region

from . import planted
from .planted import GIVEN, Fault


def after(change: Callable[..., Any]) -> Fault:
    """What the function gives is changed; the change is handed the arguments too."""
    return lambda good: lambda *args, **more: change(good(*args, **more), *args)


def before(change: Callable[..., tuple[Any, ...]]) -> Fault:
    """The arguments are changed."""
    return lambda good: lambda *args: good(*change(*args))


def instead(bad: Callable[..., Any]) -> Fault:
    return lambda good: bad


def shorter(found: IntSet, *_: object) -> IntSet:
    """Without the greatest of several."""
    if found.size < 2:
        return found
    return IntSet(tuple(run for run in (*found.runs[:-1], found.runs[-1][:-1]) if run))


def more(found: IntSet, *_: object) -> IntSet:
    """With one past the greatest."""
    if not found.runs:
        return found
    *others, last = found.runs
    return IntSet((*others, range(last.start, last.stop + last.step, last.step)))


def on_first(change: Callable[..., Any]) -> Fault:
    """The first of several things that the function gives is changed."""
    return after(lambda found, *args: (change(found[0]), *found[1:]))


def dropped(found: Region, *_: object) -> Region:
    """Without the last of several grids."""
    return Region(found.grids[:-1]) if len(found.grids) > 1 else found


def short(found: Grid) -> Grid:
    return Grid((shorter(found.axes[0]), *found.axes[1:]))


def dense(found: IntSet) -> IntSet:
    return IntSet.interval(found.lo, found.lo + found.size) if found else found


def hull_of(a: Grid, b: Grid) -> Grid:
    return Grid(tuple(x | y for x, y in zip(a.axes, b.axes, strict=True)))


def one_late(found: range, a: range, b: range) -> range:
    return found if a.step == b.step == 1 else range(found.start + 1, found.stop, found.step)


def closed(found: tuple[range, ...], *_: object) -> tuple[range, ...]:
    return (range(found[0].start, found[-1].stop),) if found and all(r.step == 1 for r in found) else found


def without_last(found: Iterable[range]) -> list[range]:
    """Of several, or of one that is longer than one, all but the end."""
    *others, last = list(found) or [range(0)]
    return [run for run in (*others, last[:-1] if len(last) > 1 else last) if run]


def filled(found: tuple[range, ...], *_: object) -> tuple[range, ...]:
    return tuple(range(r.start, r.stop) for r in found)


def across(chain: list[range], run: range) -> bool:
    return run.step > 1 and run.step == chain[-1].step


def all_of(_: object, start: int, a: int, b: int, total: int, unit: int) -> tuple[list[range], bool]:
    return [range(start, start + total * unit + 1, unit)], True


def not_turned(run: range, factor: int) -> range:
    step = abs(factor) * run.step
    return range(run.start * factor, run.start * factor + (len(run) - 1) * step + 1, step if len(run) > 1 else 1)


def turned(lo: int | None, hi: int | None) -> tuple[int | None, int | None]:
    return (None if hi is None else -hi), (None if lo is None else -lo)


def apart(members: list[Any]) -> list[list[int]]:
    return [[k] for k in range(len(members))]


def unbounded(problem: Any) -> Any:
    return cases.Cases([replace(problem, bounds=())])


def with_fewer(found: Any, *_: object) -> Any:
    """The dimensions that are left have one value less."""
    less = [replace(p, sets={name: shorter(values) for name, values in p.sets.items()}) for p in found.problems]
    return cases.Cases(less, found.exact)


def within_where(op: Operation, domain: Region) -> Image:
    return projection.projection(tuple(dim.name for dim in op.dims), op.write, op.where).image(domain)


def moved_on(found: Image, *_: object) -> Image:
    grids = (Grid((grid.axes[0].shift(1), *grid.axes[1:])) for grid in found.region.grids)
    return Image(Region(tuple(grids)), found.exact)


def first_floor(rest: Affine, divisor: int, ranges: Any, apart: bool) -> Affine:
    return Affine((), rest.bounds(ranges)[0] // divisor)


BLIND: Fault = instead(lambda *_: None)  # the planner's own proof that cuts cover, which would stop it
FAULTS: list[tuple[str, str, Any, str, Fault]] = [
    # Regions
    ("a difference loses a piece", "corner", Region, "__sub__", after(dropped)),
    ("a difference is the whole", "corner", Region, "__sub__", instead(lambda a, b: a)),
    ("a meeting loses a piece", "corner", Region, "__and__", after(dropped)),
    ("a meeting is the first", "product", Region, "__and__", instead(lambda a, b: a)),
    ("a union loses a piece", "split", Region, "of", after(dropped)),
    ("a union is the first", "diagonal", Region, "__or__", instead(lambda a, b: a or b)),
    ("pieces overlap", "cyclic", region, "_coalesce", after(lambda found, *_: [*found, found[0]])),
    ("grids are joined to their hull", "split", region, "_joined", instead(hull_of)),
    ("a buffer has room for one row less", "halo", Column, "stored", after(lambda found, *_: np.maximum(found - 1, 0))),
    ("a buffer has no room for gaps", "cyclic", IntSet, "cover", instead(dense)),
    ("texts of regions start one late", "product", region, "parse_intset", after(lambda s, *_: s.shift(1))),
    ("texts of regions end one early", "product", region, "parse_intset", after(shorter)),
    # Grids
    ("grids meet in less", "product", Grid, "__and__", after(lambda g, *_: short(g))),
    ("a slab is lost", "corner", Grid, "minus", after(lambda parts, *_: parts[1:] if len(parts) > 1 else parts)),
    ("slabs overlap", "corner", Grid, "minus", instead(lambda a, b: [] if not a or a <= b else [a])),
    ("grids have one element less", "product", Grid, "size", after(lambda n, *_: n - 1)),
    # Sets of integers
    ("intervals meet one early", "product", intset, "_meet", after(lambda r, *_: r[:-1] if len(r) > 1 else r)),
    ("strides meet in the wrong place", "polyphase", intset, "_meet", after(one_late)),
    ("a difference loses its end", "halo", intset, "_without", after(lambda p, *_: without_last(p))),
    ("strides leave too little of one another", "cyclic", intset, "_minus", after(lambda p, *_: p[:-1] or p)),
    (
        "intervals have less in common",
        "zigzag cut",
        intset,
        "_common",
        after(lambda p, *_: without_last(p)),
    ),
    ("what is between is lost", "cyclic", intset, "_minus", after(lambda p, a, b: p[:1] if b.step > 1 else p)),
    ("gaps are closed", "cyclic", intset, "_canonical", after(closed)),
    ("gaps between intervals are closed", "zigzag cut", intset, "_joined", after(closed)),
    ("every second is every one", "backward", intset, "_canonical", after(filled)),
    ("strides are woven across a gap", "thirds", intset, "_continues", instead(across)),
    ("sets are shifted one too far", "halo", IntSet, "shift", before(lambda s, by: (s, by + 1 if by else by))),
    ("a union is the first set", "product", IntSet, "union", instead(lambda s, *others: s)),
    ("zero is left out", "product", IntSet, "interval", before(lambda lo, hi: (lo + (lo == 0 and hi > 4), hi))),
    ("sets end one late", "zigzag", IntSet, "hi", after(lambda n, *_: n + 1)),
    # Arithmetic of runs
    ("sums have one too many", "polyphase", runs, "add", on_first(more)),
    ("sums have one too few", "polyphase", runs, "add", on_first(shorter)),
    ("sums have no gaps", "sparse", runs, "add", on_first(lambda s: IntSet.interval(s.lo, s.hi))),
    ("interlocked sums are dense", "polyphase", runs, "_interlocked", after(all_of)),
    ("the ends of interlocked sums are lost", "polyphase", runs, "_interlocked", on_first(lambda parts: parts[-1:])),
    ("multiples start one late", "polyphase", runs, "scale", after(lambda s, _, f: s.shift(1) if f > 1 else s)),
    ("multiples are not turned round", "backward", runs, "_scaled", instead(not_turned)),
    ("values are clipped one short", "halo", runs, "clip", before(lambda s, lo, hi: (s, lo, hi and hi - 1))),
    (
        "conditions leave one too many",
        "halo",
        runs,
        "clip_linear",
        before(lambda s, f, c, lo, hi: (s, f, c, lo, hi and hi + 1)),
    ),
    (
        "conditions leave one too few",
        "halo",
        runs,
        "clip_linear",
        before(lambda s, f, c, lo, hi: (s, f, c, lo if lo is None else lo + 1, hi)),
    ),
    ("conditions turn round one off", "masked", runs, "flipped", instead(turned)),
    (
        "the last row of digits is lost",
        "split",
        runs,
        "_interval_digits",
        after(lambda p, *_: p[:-1] if len(p) > 1 else p),
    ),
    (
        "rows of digits are whole",
        "split",
        runs,
        "_interval_digits",
        after(lambda p, lo, hi, base: [(q, range(base)) for q, _ in p]),
    ),
    # Images
    ("rows are one off", "product", projection._Plain, "image", on_first(lambda s: s.shift(1))),
    ("rows lose their end", "product", projection._Plain, "image", on_first(shorter)),
    ("rows that share a dimension are apart", "diagonal", image, "connected", instead(apart)),
    ("of two reads the second is forgotten", "diagonal", Image, "__or__", instead(lambda a, b: a)),
    ("images lose a piece", "split", image, "solve_rows", on_first(lambda pieces: pieces[:-1] or pieces)),
    ("conditions on two dimensions are dropped", "masked", image, "_tighten", instead(lambda p: unbounded(p))),
    (
        "a dimension leaves with its condition",
        "near",
        image,
        "_project",
        instead(lambda p: unbounded(p) if p.bounds else None),
    ),
    ("a dimension that leaves takes one along", "near", image, "_project_single", after(with_fewer)),
    (
        "one limit leaves one out",
        "zigzag",
        projection._OneSided,
        "values",
        after(lambda values, *_: shorter(values)),
    ),
    (
        "a case of digits is lost",
        "split",
        cases,
        "digit_cases",
        after(lambda c, *_: c and replace(c, problems=c.problems[:1])),
    ),
    ("a hull is called exact", "masked", image._Search, "_hull", after(lambda answer, *_: replace(answer, exact=True))),
    ("a fold over nothing writes nothing", "squares", projection, "write_image", instead(within_where)),
    ("writes are one off", "halo", projection, "write_image", after(moved_on)),
    # Counts
    ("there is one point more", "squares", counting, "count_grid", after(lambda n, *_: counting.Exact(n.value + 1))),
    ("there are no points", "zigzag", projection, "count_points", instead(lambda *_: counting.Exact(0))),
    ("pairs under a line are one short", "zigzag", counting, "_count_pairs", after(lambda n, *_: n - 1)),
    # Simplification and bounds
    ("floors are what they are at first", "split", simplify, "_proper_floor", instead(first_floor)),
    (
        "expressions end one early",
        "masked",
        Affine,
        "bounds",
        after(lambda b, *_: (b[0], b[1] - 1) if b[1] - b[0] > 1 else b),
    ),
    (
        "conditions are granted that may fail",
        "squares",
        Bound,
        "decided",
        after(lambda d, *_: True if d is None else d),
    ),
    (
        "conditions are refused that may hold",
        "zigzag",
        Bound,
        "decided",
        after(lambda d, *_: False if d is None else d),
    ),
    # Cuts
    ("blocks overlap", "block cut", cuts.Block, "part", after(more)),
    ("blocks leave a gap", "block cut", cuts.Block, "part", after(shorter)),
    ("zigzags overlap", "zigzag cut", cuts.Zigzag, "part", after(more)),
    ("zigzags leave a gap", "zigzag cut", cuts.Zigzag, "part", after(shorter)),
    ("every second starts late", "cyclic cut", cuts.Cyclic, "part", after(lambda s, *_: s.shift(1))),
    ("every second loses one", "cyclic cut", cuts.Cyclic, "part", after(shorter)),
    ("tables overlap", "balanced cut", cuts.Table, "part", after(more)),
    ("tables leave a gap", "balanced cut", cuts.Table, "part", after(shorter)),
    # Bytes and what is moved
    ("records are as small as elements", "halves", records, "record_bytes", instead(lambda record: 2)),
    ("elements weigh nothing", "cyclic", Resolved, "received_by_level", after(lambda found, *_: (0,) * len(found))),
    ("half of what is moved is forgotten", "halo", loads, "complete_loads", after(lambda found, *_: found // 2)),
    ("pieces of a fold are lost", "product", senders, "atoms", after(lambda found, *_: found[:-1])),
]


@pytest.mark.parametrize(("program", "owner", "name", "fault"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_planted_fault_is_found(program: str, owner: Any, name: str, fault: Fault) -> None:
    given = GIVEN[program]()
    with planted.planted(proofs, "prove_regions", BLIND), planted.planted(owner, name, fault):
        report = check(given.plan())
    assert not report.ok


@pytest.mark.parametrize("program", GIVEN)
def test_without_a_fault_the_same_plans_pass(program: str) -> None:
    report = check(GIVEN[program]().plan())
    assert report.ok, str(report)
