"""What ranks receive, counted without messages, is what the messages bring."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tapestry.planner.format.messages import moves, received
from tapestry.space import Box, Region

PIECES = [Box((a, b), (a + 2, b + 4)).region() for a in (0, 2, 4) for b in (0, 4)]
REGIONS = [Region(), Box((0, 0), (6, 8)).region(), Box((1, 3), (4, 6)).region(), *PIECES]


def test_what_nobody_on_the_host_has_comes_from_another() -> None:
    whole = REGIONS[1]
    assert received([whole, Region()], [Region(), whole], [0, 1]) == {(False, False): 48}


@given(st.data(), st.integers(1, 6), st.booleans(), st.booleans())
def test_counted_as_sent(data: st.DataObject, ranks: int, apart: bool, partial: bool) -> None:
    """Holders of the same or disjoint regions (``apart``), or of any; complete and partial sources."""
    held = data.draw(st.lists(st.sampled_from(PIECES if apart else REGIONS), min_size=ranks, max_size=ranks))
    needed = data.draw(st.lists(st.sampled_from(REGIONS), min_size=ranks, max_size=ranks))
    parts = data.draw(st.lists(st.integers(0, 2), min_size=ranks, max_size=ranks)) if partial else None
    hosts = data.draw(st.lists(st.integers(0, 2), min_size=ranks, max_size=ranks))
    sent: Counter[tuple[bool, bool]] = Counter()
    for message in moves(held, needed, parts):
        if message.remote:
            sent[hosts[message.src] == hosts[message.dst], message.part is not None] += message.region.size
    assert received(held, needed, hosts, parts) == +sent
