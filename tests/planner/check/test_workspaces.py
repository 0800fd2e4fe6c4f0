"""Workspaces: a plan may have them where nothing else lies. Broken ones are among `alterations`."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry.planner.check import Code, check
from tapestry.planner.format import Document, Workspace
from tapestry.planner.format.codec import decode, encode

from . import plans
from .alterations import roomy

LANES = ("compute", "comm", "h2d")


def test_behind_the_buffers_they_are_right_and_are_read_again() -> None:
    document = roomy()
    assert check(document).ok
    assert decode(encode(document)) == document
    assert document.rooms == {"compute": Workspace("hbm", 256, 512)}


def test_a_plan_without_any_says_nothing_of_them() -> None:
    document = plans.elementwise()
    assert b"workspace" not in encode(document)
    assert document.rooms == {}


def _taken(document: Document) -> list[range]:
    """All stretches of memory that something has for itself, buffers of a program without reuse."""
    buffers = [range(b.offset, b.offset + b.nbytes) for b in document.buffers]
    return [*buffers, *(range(r.offset, r.offset + r.nbytes) for r in document.rooms.values())]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 700)), min_size=1, max_size=3))
def test_they_share_no_byte_with_anything(places: list[tuple[int, int]]) -> None:
    rooms = {lane: Workspace("hbm", 256 * k, n) for lane, (k, n) in zip(LANES, places, strict=False)}
    document = replace(plans.elementwise(), workspaces=rooms)
    end = max(each.stop for each in _taken(document))
    document = replace(document, peak_bytes={rank: {"hbm": end} for rank in "01"})
    found = sorted(_taken(document), key=lambda each: each.start)
    apart = all(a.stop <= b.start for a, b in pairwise(found))
    assert check(document).codes == (frozenset() if apart else {Code.OVERLAP})
