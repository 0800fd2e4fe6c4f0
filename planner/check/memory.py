"""Fifth proof: memory. Which buffers share memory, and whether every tier holds what is put there.

Sharing is by allocation: [offset, offset + nbytes) in one tier, the same on every rank, or on those whose devices are
described together; what shares memory on some of them is taken to share it on all. That two *live* buffers never
share follows from `flow`, where a write forgets what other buffers held in its memory, and `order`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product

from ..format.document import Buffer, Place
from .case import Case
from .report import Code, Findings


def clashes(case: Case) -> dict[str, frozenset[str]]:
    """Per buffer the others that share some of its memory, on devices of whatever kind."""
    found: dict[str, set[str]] = {name: set() for name in case.buffers}
    spend = case.algebra.budget.spend
    for tier, kind in product(case.tiers, sorted(set(case.kinds)) if _apart(case) else [0]):
        live: list[tuple[Buffer, int]] = []
        for buffer, place in sorted(_sized(case, tier, kind), key=lambda pair: pair[1].offset):
            spend(1 + len(live), "buffers that share memory")
            live = [(other, end) for other, end in live if end > place.offset]
            for other, _ in live:
                found[buffer.name].add(other.name)
                found[other.name].add(buffer.name)
            live.append((buffer, place.offset + place.nbytes))
    return {name: frozenset(others) for name, others in found.items()}


def _apart(case: Case) -> bool:
    """Whether some buffer lies elsewhere on some of the machine's others."""
    return any(buffer.others for buffer in case.document.buffers)


def _sized(case: Case, tier: str, kind: int) -> Iterable[tuple[Buffer, Place]]:
    pairs = ((buffer, buffer.place(kind)) for buffer in case.document.buffers if buffer.tier == tier)
    return (pair for pair in pairs if pair[1].nbytes)


@dataclass(frozen=True)
class _Stretch:
    """A stretch of a tier, and what to call it."""

    name: str
    start: int
    end: int
    tensor: str | None = None


def _places(case: Case, tier: str, kind: int) -> Iterator[_Stretch]:
    """Buffers, and workspaces behind them."""
    for buffer in case.document.buffers:
        if buffer.tier == tier:
            place = buffer.place(kind)
            yield _Stretch(f"buffer {buffer.name}", place.offset, place.offset + place.nbytes, buffer.tensor)
    for lane, room in case.document.rooms.items():
        if room.tier == tier:
            yield _Stretch(f"the workspace of {lane}", room.offset, room.offset + room.nbytes)


def _prove_apart(case: Case, findings: Findings) -> None:
    """Finding OVERLAP: a workspace is its lane's for all of the run, since any task may have put something there."""
    tiers = {room.tier: None for room in case.document.rooms.values()}
    for tier, kind in product(tiers, sorted(set(case.kinds)) if _apart(case) else [0]):
        places = list(_places(case, tier, kind))
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
        per_host = int(case.document.machine["devices_per_host"])
        together = _fullest_host(case, per_host) if memory.shared else 1
        for ranks in _told_apart(case):
            top = max(_places(case, tier, case.kinds[ranks[0]]), key=lambda place: place.end, default=None)
            taken = 0 if top is None else top.end
            least = min(memory.capacities[rank] for rank in ranks)
            if top is not None and taken * together > least:
                small = [rank for rank in ranks if memory.capacities[rank] == least]
                rank = small[0] if least < max(memory.capacities) else None
                message = f"{tier} holds {least} bytes" + (f" for {together} ranks" if memory.shared else "")
                message += f"; {top.name} ends at {taken}"
                findings.add(Code.CAPACITY, message, rank=rank, tensor=top.tensor, witness=(taken * together,))
            _peak(case, tier, ranks, taken, findings)


def _told_apart(case: Case) -> list[list[int]]:
    """The ranks on which buffers lie alike, together."""
    if not _apart(case):
        return [[*case.everyone]]
    return [[rank for rank in case.everyone if case.kinds[rank] == kind] for kind in sorted(set(case.kinds))]


def _fullest_host(case: Case, per_host: int) -> int:
    return max(Counter(device // per_host for device in case.document.devices).values())


def _peak(case: Case, tier: str, ranks: Iterable[int], taken: int, findings: Findings) -> None:
    """The stated peak is the end of what lies last, as arenas are allocated whole."""
    for rank in ranks:
        stated = case.document.peak_bytes.get(str(rank), {}).get(tier, 0)
        if stated != taken:
            message = f"peak_bytes states {stated} of {tier}; what is there ends at {taken}"
            findings.add(Code.PEAK, message, rank=rank, witness=(taken,))
