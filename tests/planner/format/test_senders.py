"""Who sends by the hosts of the ranks: counted without messages, by the planner and by the checker, as it is sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner.check import senders
from tapestry.planner.check.algebra import Algebra
from tapestry.planner.format.loads import loads_of
from tapestry.planner.format.senders import Groups, moves_by_host, shares
from tapestry.records import Width
from tapestry.space import Box, Grid, IntSet, Region

WIDTH = Width(4, 12)
WHOLE = Box((0, 0), (6, 8)).region()
PIECES = [Box((a, b), (a + 2, b + 4)).region() for a in (0, 2, 4) for b in (0, 4)]
WOVEN = [Region.of(Grid((IntSet.interval(0, 6), IntSet.of(range(k, 8, 3))))) for k in range(3)]
MIDDLE = Box((1, 3), (4, 6)).region()
REGIONS = [Region(), WHOLE, MIDDLE, WHOLE - MIDDLE, PIECES[0] | PIECES[5], *PIECES, *WOVEN]


@dataclass(frozen=True)
class Case:
    held: list[Region]
    needed: list[Region]
    groups: Groups
    parts: list[int] | None
    records: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to six ranks on up to three hosts, which together have all: one of them, or each a piece of its own."""
    ranks = draw(st.integers(1, 6))
    pool = st.sampled_from(draw(st.sampled_from([PIECES, WOVEN, REGIONS])))
    held, needed = ([draw(pool) for _ in range(ranks)] for _ in range(2))
    held[draw(st.integers(0, ranks - 1))] = WHOLE
    if draw(st.booleans()):
        apart = draw(st.permutations([PIECES[0] | PIECES[5], *PIECES[1:5]] if ranks > 4 else WOVEN))
        held = [apart[k] if k < len(apart) else Region() for k in range(max(ranks, len(apart)))]
        needed += [WHOLE] * (len(held) - ranks)
        ranks = len(held)
    hosts, number = [], 0
    for _ in range(ranks):
        number += bool(hosts) and draw(st.booleans()) and number < 2
        hosts.append(int(number))
    parts = [draw(st.integers(0, 2)) for _ in range(ranks)] if draw(st.booleans()) else None
    size, islands = draw(st.sampled_from([1, 2])), dict[tuple[int, int], int]()  # ranks of a host next to one another
    island = tuple(islands.setdefault((host, rank // size), len(islands)) for rank, host in enumerate(hosts))
    near = [island, tuple(hosts), (0,) * ranks]
    return Case(held, needed, tuple(near), parts, draw(st.booleans()))


def level(case: Case, one: int, other: int) -> int:
    """How far apart two ranks are: 0 in one island, 1 on one host, 2 on two."""
    return next(k for k, of in enumerate(case.groups) if of[one] == of[other])


def counted(case: Case) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Bytes by (received or sent, level, rank), of the messages one by one."""
    found = np.zeros((2, 3, len(case.held)), dtype=np.int64)
    for m in moves_by_host(case.held, case.needed, case.groups, case.parts, records=case.records):
        found[0, level(case, m.src, m.dst), m.dst] += m.moved_bytes(WIDTH)
        found[1, level(case, m.src, m.dst), m.src] += m.moved_bytes(WIDTH)
    return found


@given(cases())
def test_counted_as_sent(case: Case) -> None:
    loads = loads_of(case.held, case.needed, case.groups, case.parts, records=case.records)
    assert (loads.nbytes(WIDTH) == counted(case)).all()


@given(cases())
def test_the_checker_counts_the_same(case: Case) -> None:
    algebra = Algebra()
    have, need = (tuple(map(algebra.number, regions)) for regions in (case.held, case.needed))
    if case.parts is None:
        sent = senders.complete(algebra, have, need, case.groups, WIDTH.complete)
    else:
        sizes = (WIDTH.partial, WIDTH.complete)
        sent = senders.folded(algebra, have, need, case.parts, case.groups, sizes, packed=case.records)
    assert (np.array([sent.arrives, sent.leaves]) == counted(case)).all()


@given(cases())
def test_who_is_near_is_asked(case: Case) -> None:
    """What crosses hosts nobody of the receiver's host holds, or holds of that part; and so with islands."""
    for m in moves_by_host(case.held, case.needed, case.groups, case.parts, records=case.records):
        if m.phase == 0:
            able = [r for r in range(len(case.held)) if case.parts is None or case.parts[r] == m.part]
            nearer = [r for r in able if level(case, r, m.dst) < level(case, m.src, m.dst)]
            assert not any(m.region & case.held[r] for r in nearer)


@given(st.sampled_from([region for region in REGIONS if region]), st.integers(1, 5), st.booleans())
def test_shares_are_disjoint_and_make_up_the_piece(piece: Region, count: int, records: bool) -> None:
    cut = list(shares(piece, count, records))
    assert len(cut) == count
    assert sum(share.size for share in cut) == piece.size == Region.union([share for share in cut if share]).size
    if len(piece.grids) == 1:
        extents = piece.grids[0].shape[: 1 if records else 2]
        rest = piece.size // max(extents)
        assert all(abs(share.size - piece.size / count) < rest for share in cut)
