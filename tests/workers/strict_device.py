"""A second device: host memory like the first one's, but it trusts nobody.

Only arrays that it made are taken. Temporary memory is poisoned each time it is handed out, a runner that is called
after `close` fails, arenas are surrounded by guard bytes that are looked at after every task, and all is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from tapestry.space import Grid, Region
from tapestry.workers.device import Bound, Device, DType, Evaluation, Packed, Replay, Runner, Stored
from tapestry.workers.lanes import HostLanes, InTurn
from tapestry.workers.numpy.device import NumpyDevice

GUARD = 64
MARK = 0x5C


class StrictDevice(Device):
    """Computes by way of the NumPy device. ``opened`` are all that were made in this process."""

    opened: list[StrictDevice] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.within = NumpyDevice()
        self.counts: Counter[str] = Counter()
        self.sizes: list[tuple[str, int]] = []
        self.own: list[np.ndarray[Any, Any]] = []
        self.closed = False
        self.opened.append(self)

    # -- memory ----------------------------------------------------------------------------------------------------

    def allocate(self, tier: str, nbytes: int) -> Any:
        whole = np.full(nbytes + 2 * GUARD, MARK, np.uint8)
        self.sizes.append((tier, nbytes))
        self.own.append(whole)
        return whole[GUARD:-GUARD]

    def view(self, arena: Any, offset: int, grid: Grid, dtype: DType) -> Stored:
        return self.within.view(arena, offset, grid, dtype)

    def poison(self, array: Any) -> None:
        self.within.poison(array)

    def baseline_bytes(self) -> int:
        return 12345

    # -- binding ---------------------------------------------------------------------------------------------------

    def compute(self, task: Evaluation) -> Runner:
        self._demand(task.write)
        return self._watched("compute", self.within.compute(task))

    def copy(self, source: Stored, target: Stored, region: Region) -> Runner:
        return self._watched("copy", self.within.copy(source, target, region))

    def fold(self, parts: Sequence[tuple[Region, Stored | Packed]], target: Stored, monoid: str, lane: str) -> Runner:
        self._demand(target)
        return self._watched("fold", self.within.fold(parts, target, monoid, lane))

    @contextmanager
    def temporaries(self, lane: str) -> Iterator[None]:
        yield

    def take(self, size: int, dtype: DType, lane: str | None) -> Any:
        array = np.empty(size, dtype)
        self.within.poison(array)
        return array

    def pack(self, source: Stored, target: Packed) -> Runner:
        self._demand(source)
        return self._watched("pack", self.within.pack(source, target))

    def unpack(self, source: Packed, target: Stored) -> Runner:
        return self._watched("unpack", self.within.unpack(source, target))

    def tensor(self, array: Any) -> Any:
        return self.within.tensor(array)

    # -- running ---------------------------------------------------------------------------------------------------

    def replay(self, tasks: Sequence[Bound]) -> Replay:
        return HostLanes(tasks)

    def in_turn(self, tasks: Sequence[Bound]) -> Replay:
        return InTurn(self, tasks)

    def running(self) -> AbstractContextManager[Any]:
        return self.within.running()

    def synchronise(self) -> None:
        self.counts["synchronise"] += 1

    def close(self) -> None:
        self.closed = True

    # -- trust -----------------------------------------------------------------------------------------------------

    def _demand(self, stored: Stored) -> None:
        """The array lies in an arena of this device."""
        assert any(np.shares_memory(stored.array, whole) for whole in self.own) or not stored.array.size

    def _watched(self, what: str, run: Callable[[], None]) -> Runner:
        def watched() -> None:
            assert not self.closed, "a runner is called after the device was closed"
            run()
            self.counts[what] += 1
            for whole in self.own:
                assert (whole[:GUARD] == MARK).all(), "bytes before an arena were written"
                assert (whole[-GUARD:] == MARK).all(), "bytes behind an arena were written"

        return watched
