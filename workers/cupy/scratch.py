"""Temporary memory of a lane, which its tasks use one after another: the plan's workspace, or blocks of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from ..device import DType
from .arrays import DeviceArray, Memory, of_memory

ALIGN = 256
BLOCK = 1 << 20
BYTES = np.dtype(np.uint8)


class Scratch:
    """Hands out arrays; what is handed out inside `frame` is given back at its end, for the next task to use.

    ``room``: bytes that a plan has for the lane. What does not fit there, or any of it where there are none, is in
    blocks that ``allocate`` gives.
    """

    def __init__(self, allocate: Callable[[int], Memory], room: DeviceArray | None = None) -> None:
        self.allocate, self.planned = allocate, room is not None
        self.blocks = [] if room is None else [room]
        self.block, self.used = 0, 0

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Everything taken inside is free again afterwards."""
        mark = self.block, self.used
        try:
            yield
        finally:
            self.block, self.used = mark

    def take(self, size: int, dtype: DType) -> DeviceArray:
        """An uninitialised array of one axis."""
        nbytes = -(-size * dtype.itemsize // ALIGN) * ALIGN
        while self.block < len(self.blocks) and self.used + nbytes > self.blocks[self.block].nbytes:
            self.block, self.used = self.block + 1, 0
        if self.block == len(self.blocks):
            self.blocks.append(of_memory(self.allocate(max(nbytes, BLOCK))))
            self.used = 0
        block, start = self.blocks[self.block], self.used
        self.used += nbytes
        return DeviceArray(block.memory, block.offset + start, (size,), dtype)

    def bytes(self, nbytes: int) -> DeviceArray:
        """So many bytes."""
        return self.take(nbytes, BYTES)

    def most(self, nbytes: int) -> int:
        """So many bytes, or those that are left of what the plan has: who can do with less takes no more than that."""
        if not self.planned:
            return nbytes
        left = self.blocks[0].nbytes - self.used if self.block == 0 else 0
        return max(0, min(nbytes, left // ALIGN * ALIGN))

    def rest(self) -> DeviceArray | None:
        """All that is left of what the plan has; None where it has nothing."""
        left = self.most(self.blocks[0].nbytes) if self.planned else 0
        return self.bytes(left) if left else None
