"""The memory of a rank: one arena per tier, every buffer a view at its offset."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import numpy_dtype
from ..expr import MONOIDS
from ..planner.format import Buffer, Resolved
from ..program import Program
from ..records import record_dtype
from .device import Device, Stored
from .faults import TaskError


class Memory:
    """Buffers of one rank by name; None where the rank stores nothing of a buffer.

    Each tier is one allocation that ends where the last buffer of the rank ends. ``poison`` fills everything with what
    no computation leaves.
    """

    def __init__(self, device: Device, resolved: Resolved, rank: int, *, poison: bool = False) -> None:
        self.device, self.rank = device, rank
        views = []
        ends: dict[str, int] = {}
        for name, buffer in resolved.buffers.items():
            dtype = buffer_dtype(buffer, resolved.program)
            grid = resolved.storage(name)[rank]
            if grid is not None:
                ends[buffer.tier] = max(ends.get(buffer.tier, 0), buffer.offset + grid.size * dtype.itemsize)
                views.append((buffer, grid, dtype))
        self.tiers = {tier: self._allocated(tier, end) for tier, end in ends.items()}
        self.buffers: dict[str, Stored | None] = dict.fromkeys(resolved.buffers)
        for buffer, grid, dtype in views:
            self.buffers[buffer.name] = device.view(self.tiers[buffer.tier], buffer.offset, grid, dtype)
        if poison:
            self._poison()

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


def buffer_dtype(buffer: Buffer, program: Program) -> np.dtype[Any]:
    """What a buffer holds: elements of its tensor, or records of the fold that makes it."""
    monoid = program.producer[buffer.tensor].monoid if buffer.record is not None else None
    if buffer.record is None or monoid is None:
        return numpy_dtype(program.tensor(buffer.tensor).dtype)  # type: ignore[no-any-return]
    return record_dtype(buffer.record, MONOIDS[monoid])  # type: ignore[no-any-return]
