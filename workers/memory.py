"""The memory of a rank: one arena per tier, every buffer a view at its offset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..dtypes import numpy_dtype
from ..expr import MONOIDS
from ..planner.format import Buffer, Resolved
from ..program import Program
from ..records import record_dtype
from ..space import Box, Grid
from .device import Device, Stored
from .faults import TaskError


class Memory:
    """Buffers of one rank by name; None where the rank stores nothing of a buffer.

    Each tier is one allocation that ends where the last buffer of the rank ends, or the workspaces of the plan, whose
    bytes by lane are ``rooms``, where the device works in them. ``poison`` fills everything with what no computation
    leaves.
    """

    def __init__(
        self,
        device: Device,
        resolved: Resolved,
        rank: int,
        *,
        poison: bool = False,
        arenas: Mapping[str, Any] | None = None,
    ) -> None:
        """arenas: those by tier of a rank that has allocated them, elsewhere."""
        self.device, self.rank = device, rank
        self.rooms: dict[str, Any] = {}
        if arenas is None:
            ends = arena_bytes(resolved, rank, rooms=device.works_in_plan)
            arenas = {tier: self._allocated(tier, end) for tier, end in ends.items()}
            self.rooms = dict(self._rooms(resolved, arenas)) if device.works_in_plan else {}
        self.tiers = arenas
        self.buffers: dict[str, Stored | None] = dict.fromkeys(resolved.buffers)
        kind = resolved.kinds[rank]
        for buffer, grid, dtype in _stored(resolved, rank):
            if buffer.tier in self.tiers:
                offset = buffer.place(kind).offset
                self.buffers[buffer.name] = device.view(self.tiers[buffer.tier], offset, grid, dtype)
        if poison:
            self._poison()

    def _rooms(self, resolved: Resolved, arenas: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for lane, room in resolved.document.rooms.items():
            grid = Box.of_shape((room.nbytes,)).grid()
            yield lane, self.device.view(arenas[room.tier], room.offset, grid, np.dtype(np.uint8)).array

    def _allocated(self, tier: str, nbytes: int) -> object:
        try:
            return self.device.allocate(tier, nbytes)
        except MemoryError:
            raise TaskError(f"no memory for {nbytes} bytes of {tier}", rank=self.rank) from None

    def _poison(self) -> None:
        for arena in self.tiers.values():
            self.device.poison(arena)
        for stored in self.buffers.values():
            if stored is not None:
                self.device.poison(stored.array)

    def __getitem__(self, name: str) -> Stored | None:
        return self.buffers[name]


def _stored(resolved: Resolved, rank: int) -> Iterator[tuple[Buffer, Grid, np.dtype[Any]]]:
    """The buffers of which a rank stores something, and what."""
    for name, buffer in resolved.buffers.items():
        grid = resolved.storage(name)[rank]
        if grid is not None:
            yield buffer, grid, buffer_dtype(buffer, resolved.program)


def arena_bytes(resolved: Resolved, rank: int, *, rooms: bool = False) -> dict[str, int]:
    """The size of a rank's arena in each tier. rooms: with the workspaces."""
    found: dict[str, int] = {}
    kind = resolved.kinds[rank]
    for buffer, grid, dtype in _stored(resolved, rank):
        end = buffer.place(kind).offset + grid.size * dtype.itemsize
        found[buffer.tier] = max(found.get(buffer.tier, 0), end)
    for room in resolved.document.rooms.values() if rooms else ():
        found[room.tier] = max(found.get(room.tier, 0), room.offset + room.nbytes)
    return found


def buffer_dtype(buffer: Buffer, program: Program) -> np.dtype[Any]:
    """What a buffer holds: elements of its tensor, or records of the fold that makes it."""
    monoid = program.producer[buffer.tensor].monoid if buffer.record is not None else None
    if buffer.record is None or monoid is None:
        return numpy_dtype(program.tensor(buffer.tensor).dtype)  # type: ignore[no-any-return]
    return record_dtype(buffer.record, MONOIDS[monoid])  # type: ignore[no-any-return]
