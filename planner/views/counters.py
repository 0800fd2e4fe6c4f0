"""Bytes over time, as changes: what of each memory of a rank is in use, and what is on its way to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..format import Transfer
from ..format.events import Event
from .memory import KEPT_ROLES, lives
from .sayings import Sayings
from .timeline import Kinds

Change = tuple[float, str, int]  # when, which series of the counter, by how many bytes


def memory_changes(sayings: Sayings, kinds: Kinds, rank: int, events: Sequence[Event]) -> Mapping[str, list[Change]]:
    """By tier, the bytes of the rank's buffers that are "resident" (params, states) and of its other "values"."""
    end_s = max(event.end_s for event in events)
    found: dict[str, list[Change]] = {}
    for life in lives(sayings.resolved, kinds, events, end_s, rank):
        if sayings.resolved.storage(life.buffer.name)[rank] is not None:
            series = "resident" if life.kind in KEPT_ROLES else "values"
            nbytes = life.buffer.nbytes
            changes = found.setdefault(life.buffer.tier, [])
            changes += [(life.start_s, series, nbytes), (life.end_s, series, -nbytes)]
    return found


def coming_changes(sayings: Sayings, rank: int, events: Sequence[Event]) -> list[Change]:
    """The bytes that other ranks send to one, for as long as they are on their way."""
    changes: list[Change] = []
    for event in events:
        task = sayings.tasks[event.task]
        parcel = sayings.parcels(task).get(rank) if isinstance(task, Transfer) else None
        nbytes = sum(parcel.received.values()) if parcel is not None else 0
        if nbytes:
            changes += [(event.start_s, "bytes", nbytes), (event.end_s, "bytes", -nbytes)]
    return changes


def values(changes: Sequence[Change]) -> Iterator[tuple[float, dict[str, int]]]:
    """What each series is from every instant on at which one of them changes."""
    now = dict.fromkeys((series for _, series, _ in changes), 0)
    instants: dict[float, list[Change]] = {}
    for change in changes:
        instants.setdefault(change[0], []).append(change)
    for when in sorted(instants):
        for _, series, by in instants[when]:
            now[series] += by
        yield when, dict(now)
