"""Ranks that take the same times, shown as one: what they are called, and what each of them does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..format.events import Event
from ..timeline import Timeline

MOST_ALONE = 8  # ranks of a plan that are shown one by one, however alike they are


@dataclass(frozen=True)
class Peers:
    """Ranks, ascending, and the events of the first of them: those of the others take the same times."""

    ranks: tuple[int, ...]
    events: tuple[Event, ...]

    @property
    def name(self) -> str:
        """``rank 3``, or ``ranks 0-7, 16-23 × 16``."""
        count = len(self.ranks)
        return f"rank {self.ranks[0]}" if count == 1 else f"ranks {ranks_text(self.ranks)} × {count}"

    @property
    def lanes(self) -> list[str]:
        """Those with events in the order of their names, compute first."""
        return sorted({event.lane for event in self.events}, key=lambda lane: (lane != "compute", lane))


def ranks_text(ranks: Sequence[int], most: int = 4) -> str:
    """Ascending ranks as stretches, no more than ``most`` of them.

    >>> ranks_text([0, 1, 3, 4, 5, 9]), ranks_text(range(0, 64, 2))
    ('0, 1, 3-5, 9', '0, 2, 4, 6, …')
    """
    found: list[tuple[int, int]] = []
    for rank in ranks:
        if found and found[-1][1] + 1 == rank:
            found[-1] = (found[-1][0], rank)
        else:
            found.append((rank, rank))
    words = []
    for first, last in found[:most]:
        words.append(f"{first}-{last}" if last > first + 1 else ", ".join(map(str, range(first, last + 1))))
    return ", ".join([*words, "…"] if len(found) > most else words)


def predicted_peers(timeline: Timeline, alone: int = MOST_ALONE) -> list[Peers]:
    """Those of a simulated run that have events. Up to ``alone`` ranks are told apart, more go by their times."""
    classes = timeline.classes
    if sum(map(len, classes)) <= alone:
        classes = tuple((rank,) for rank in sorted(rank for ranks in classes for rank in ranks))
    found = (Peers(ranks, tuple(timeline.at(ranks[:1]))) for ranks in classes)
    return [peers for peers in found if peers.events]


def measured_peers(events: Iterable[Event]) -> list[Peers]:
    """Every rank by itself: no two ranks of a run take the same times."""
    found: dict[int, list[Event]] = {}
    for event in events:
        found.setdefault(event.rank, []).append(event)
    return [Peers((rank,), tuple(found[rank])) for rank in sorted(found)]


def left_out(peers: Sequence[Peers]) -> Iterator[str]:
    """What is said of those for which there was no room; nothing if there are none."""
    ranks = sum(len(those.ranks) for those in peers)
    if ranks == len(peers) > 0:
        yield f"and {ranks} ranks more"
    elif peers:
        yield f"and {ranks} ranks more, which take {len(peers)} different times"
