"""Fifth proof: memory. Which buffers share memory, and whether every tier holds what is put there.

Sharing is by allocation: [offset, offset + nbytes) in one tier, the same on every rank. That two *live* buffers never
share follows from `flow`, where a write forgets what other buffers held in its memory, and `order`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

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


def prove(case: Case, findings: Findings) -> None:
    """Findings CAPACITY and PEAK."""
    for tier, memory in case.tiers.items():
        mine = (buffer for buffer in case.document.buffers if buffer.tier == tier)
        top = max(mine, key=lambda b: b.offset + b.nbytes, default=None)
        taken = 0 if top is None else top.offset + top.nbytes
        per_host = int(case.document.machine["devices_per_host"])
        together = _fullest_host(case, per_host) if memory.shared else 1
        least = min(memory.capacities)
        if top is not None and taken * together > least:
            rank = memory.capacities.index(least) if least < max(memory.capacities) else None
            message = f"{tier} holds {least} bytes" + (f" for {together} ranks" if memory.shared else "")
            message += f"; buffer {top.name} ends at {taken}"
            findings.add(Code.CAPACITY, message, rank=rank, tensor=top.tensor, witness=(taken * together,))
        _peak(case, tier, taken, findings)


def _fullest_host(case: Case, per_host: int) -> int:
    return max(Counter(device // per_host for device in case.document.devices).values())


def _peak(case: Case, tier: str, taken: int, findings: Findings) -> None:
    """The stated peak is the end of the last buffer, as arenas are allocated whole."""
    for rank in case.everyone:
        stated = case.document.peak_bytes.get(str(rank), {}).get(tier, 0)
        if stated != taken:
            message = f"peak_bytes states {stated} of {tier}; the buffers end at {taken}"
            findings.add(Code.PEAK, message, rank=rank, witness=(taken,))
