"""The memory of a rank: one arena per tier, every buffer a view at its offset."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import numpy_dtype
from ..planner.format import Resolved
from ..space import Grid
from .faults import TaskError
from .numpy.folding import Array
from .numpy.scratch import aligned_empty
from .numpy.views import Stored

_PAGE = 4096


class Arena:
    """Buffers of one rank by name; None where the rank stores nothing of a buffer."""

    def __init__(self, resolved: Resolved, rank: int, *, poison: bool = False) -> None:
        self.rank = rank
        grids = {name: resolved.storage(name)[rank] for name in resolved.buffers}
        ends: dict[str, int] = {}
        for name, buffer in resolved.buffers.items():
            dtype = numpy_dtype(resolved.program.tensor(buffer.tensor).dtype)
            grid = grids[name]
            if grid is not None:
                ends[buffer.tier] = max(ends.get(buffer.tier, 0), buffer.offset + grid.size * dtype.itemsize)
        self.tiers = {tier: self._allocated(tier, end) for tier, end in ends.items()}
        self.buffers: dict[str, Stored | None] = {}
        for name, buffer in resolved.buffers.items():
            dtype = numpy_dtype(resolved.program.tensor(buffer.tensor).dtype)
            self.buffers[name] = self._view(self.tiers.get(buffer.tier), buffer.offset, grids[name], dtype)
        if poison:
            self._poison()

    def _allocated(self, tier: str, nbytes: int) -> Array:
        try:
            arena = aligned_empty(nbytes)
            arena[::_PAGE] = 0  # the system finds the pages now, not in the middle of a task
            return arena
        except MemoryError:
            raise TaskError(f"no memory for {nbytes} bytes of {tier}", rank=self.rank) from None

    @staticmethod
    def _view(tier: Array | None, offset: int, grid: Grid | None, dtype: np.dtype[Any]) -> Stored | None:
        if tier is None or grid is None:
            return None
        view = tier[offset : offset + grid.size * dtype.itemsize].view(dtype).reshape(grid.shape)
        return Stored(view, grid)

    def _poison(self) -> None:
        """Fill everything with what no computation leaves: NaN for floats, 0xA5 bytes for the rest."""
        for tier in self.tiers.values():
            tier[...] = 0xA5
        for stored in self.buffers.values():
            if stored is not None:
                poison(stored.array)

    def __getitem__(self, name: str) -> Stored | None:
        return self.buffers[name]


def poison(array: Array) -> None:
    """Overwrite an array: floats with NaN, integers with 0xA5 bytes, truths with alternating values."""
    if array.dtype.kind == "b":
        array.reshape(-1)[::2] = True
        array.reshape(-1)[1::2] = False
    elif array.dtype.kind == "i":
        array.reshape(-1).view(np.uint8)[...] = 0xA5
    else:
        array[...] = np.nan
