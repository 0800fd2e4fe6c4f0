"""The memories of ranks where devices have different ones: what lies on devices of one kind has a place of its own."""

from __future__ import annotations

from dataclasses import dataclass

from ..machine import Machine


@dataclass(frozen=True)
class Room:
    """``ranks`` whose devices the machine describes as its ``kind``-th others (0: as none of them), and the bytes that
    each of them may use beyond what the rank with the least memory may.
    """

    kind: int
    ranks: tuple[int, ...]
    spare: int


def rooms_of(machine: Machine, tier: str, ranks: int) -> tuple[Room, ...]:
    """One for each kind of device of the first ranks; none where all may use as much."""
    kinds = [machine.kind_of(number) for number in range(ranks)] if machine.others else []
    sizes = {kind: machine.capacity_bytes(tier, kinds.index(kind)) for kind in sorted(set(kinds))}
    if len(set(sizes.values())) < 2:
        return ()
    least = min(sizes.values())
    members = {kind: tuple(rank for rank, mine in enumerate(kinds) if mine == kind) for kind in sizes}
    return tuple(Room(kind, members[kind], size - least) for kind, size in sizes.items())
