"""The NumPy device: arenas in the memory of the host, tasks as NumPy calls, lanes as threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...space import Grid, Region
from ..device import Bound, Device, DType, Evaluation, Packed, Replay, Runner, Stored
from ..lanes import HostLanes, InTurn
from .binding import bind_compute
from .blas import single_threaded
from .moving import bind_fold, bind_move, bind_pack, bind_unpack, contiguous
from .scratch import Scratch, aligned_empty

if TYPE_CHECKING:
    import torch

    from .folding import Array

_PAGE = 4096


class NumpyDevice(Device):
    """Results depend on the values of operands and on the shards alone: not on addresses, lanes or ranks."""

    def __init__(self) -> None:
        self._scratch: dict[str, Scratch] = {}

    def _of(self, lane: str) -> Scratch:
        return self._scratch.setdefault(lane, Scratch())

    def allocate(self, tier: str, nbytes: int) -> Array:
        """Every tier is host memory."""
        arena = aligned_empty(nbytes)
        arena[::_PAGE] = 0  # the system finds the pages now, not in the middle of a task
        return arena

    def view(self, arena: Array, offset: int, grid: Grid, dtype: DType) -> Stored:
        end = offset + grid.size * dtype.itemsize
        return Stored(arena[offset:end].view(dtype).reshape(grid.shape), grid)

    def poison(self, array: Array) -> None:
        """Floats become NaN, integers 0xA5 bytes, truths alternate."""
        if array.dtype.names:
            for name in array.dtype.names:
                self.poison(array[name])
        elif array.dtype.kind == "b":
            array[...] = np.arange(array.size).reshape(array.shape) % 2 == 0
        elif array.dtype.kind in "iu":
            array[...] = np.frombuffer(b"\xa5" * array.itemsize, array.dtype)[0]
        else:
            array[...] = np.nan

    def compute(self, task: Evaluation) -> Runner:
        return _quiet(bind_compute(task, self._of(task.lane)))

    def copy(self, source: Stored, target: Stored, region: Region) -> Runner:
        return bind_move(source, target, region)

    def fold(self, parts: Sequence[tuple[Region, Stored | Packed]], target: Stored, monoid: str, lane: str) -> Runner:
        return _quiet(bind_fold(parts, target, monoid))

    def temporaries(self, lane: str) -> AbstractContextManager[None]:
        return self._of(lane).frame()

    def take(self, size: int, dtype: DType, lane: str | None) -> Array:
        return np.empty(size, dtype) if lane is None else self._of(lane).take((size,), dtype)

    def pack(self, source: Stored, target: Packed) -> Runner:
        return bind_pack(source, target)

    def unpack(self, source: Packed, target: Stored) -> Runner:
        return bind_unpack(source, target)

    def contiguous(self, stored: Stored, region: Region) -> Array | None:
        return contiguous(stored, region)

    def tensor(self, array: Array) -> torch.Tensor:
        import torch

        return torch.from_numpy(array.view(np.uint8))

    def replay(self, tasks: Sequence[Bound]) -> Replay:
        return HostLanes(tasks)

    def in_turn(self, tasks: Sequence[Bound]) -> Replay:
        return InTurn(self, tasks)

    def running(self) -> AbstractContextManager[Any]:
        return single_threaded()


def _quiet(run: Callable[[], None]) -> Runner:
    """Overflow, division by zero and NaN are values, as in the reference, not warnings."""

    def quietly() -> None:
        with np.errstate(all="ignore"):
            run()

    return quietly


DEVICE = NumpyDevice
