"""Fifth proof: memory. Which buffers share memory, and whether every tier holds what is put there.

Sharing is by allocation: [offset, offset + nbytes) in one tier, the same on every rank. That two *live* buffers never
share follows from `flow`, where a write forgets what other buffers held in its memory, and `order`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product

from ..format.document import Buffer
from .case import Case
from .report import Code, Findings


def clashes(case: Case) -> dict[str, frozenset[str]]:
    """Per buffer the others that share some of its memory."""
    found: dict[str, set[str]] = {name: set() for name in case.buffers}
    spend = case.algebra.budget.spend
    for tier in case.tiers:
        live: list[Buffer] = []
        for buffer in sorted(_sized(case, tier), key=lambda b: b.offset):
            spend(1 + len(live), "buffers that share memory")
            live = [other for other in live if other.offset + other.nbytes > buffer.offset]
            for other in live:
                found[buffer.name].add(other.name)
                found[other.name].add(buffer.name)
            live.append(buffer)
    return {name: frozenset(others) for name, others in found.items()}


def _sized(case: Case, tier: str) -> Iterable[Buffer]:
    return (buffer for buffer in case.document.buffers if buffer.tier == tier and buffer.nbytes)


@dataclass(frozen=True)
class _Place:
    """A stretch of a tier, and what to call it."""

    name: str
    start: int
    end: int
    tensor: str | None = None


def _places(case: Case, tier: str) -> Iterator[_Place]:
    """Buffers, and workspaces behind them."""
    for buffer in case.document.buffers:
        if buffer.tier == tier:
            yield _Place(f"buffer {buffer.name}", buffer.offset, buffer.offset + buffer.nbytes, buffer.tensor)
    for lane, room in case.document.rooms.items():
        if room.tier == tier:
            yield _Place(f"the workspace of {lane}", room.offset, room.offset + room.nbytes)


def _prove_apart(case: Case, findings: Findings) -> None:
    """Finding OVERLAP: a workspace is its lane's for all of the run, since any task may have put something there."""
    for tier in {room.tier: None for room in case.document.rooms.values()}:
        places = list(_places(case, tier))
        rooms, buffers = ([p for p in places if (p.tensor is None) is wanted] for wanted in (True, False))
        for room, other in chain(product(rooms, buffers), combinations(rooms, 2)):
            start = max(room.start, other.start)
            if start < min(room.end, other.end):
                message = f"{room.name} shares memory with {other.name}"
                findings.add(Code.OVERLAP, message, tensor=other.tensor, witness=(start,))


def prove(case: Case, findings: Findings) -> None:
    """Findings OVERLAP of workspaces, CAPACITY and PEAK."""
    _prove_apart(case, findings)
    for tier, memory in case.tiers.items():
        top = max(_places(case, tier), key=lambda place: place.end, default=None)
        taken = 0 if top is None else top.end
        per_host = int(case.document.machine["devices_per_host"])
        together = _fullest_host(case, per_host) if memory.shared else 1
        least = min(memory.capacities)
        if top is not None and taken * together > least:
            rank = memory.capacities.index(least) if least < max(memory.capacities) else None
            message = f"{tier} holds {least} bytes" + (f" for {together} ranks" if memory.shared else "")
            message += f"; {top.name} ends at {taken}"
            findings.add(Code.CAPACITY, message, rank=rank, tensor=top.tensor, witness=(taken * together,))
        _peak(case, tier, taken, findings)


def _fullest_host(case: Case, per_host: int) -> int:
    return max(Counter(device // per_host for device in case.document.devices).values())


def _peak(case: Case, tier: str, taken: int, findings: Findings) -> None:
    """The stated peak is the end of what lies last, as arenas are allocated whole."""
    for rank in case.everyone:
        stated = case.document.peak_bytes.get(str(rank), {}).get(tier, 0)
        if stated != taken:
            message = f"peak_bytes states {stated} of {tier}; what is there ends at {taken}"
            findings.add(Code.PEAK, message, rank=rank, witness=(taken,))
