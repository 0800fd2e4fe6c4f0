"""Temporary memory of a lane: blocks that its tasks use one after another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..device import DType
from .arrays import DeviceArray, Memory
from .machine import Machine

ALIGN = 256
BLOCK = 1 << 20


class Scratch:
    """Hands out arrays; what is handed out inside `frame` is given back at its end, for the next task to use."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.blocks: list[Memory] = []
        self.block, self.used = 0, 0

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Everything taken inside is free again afterwards."""
        mark = self.block, self.used
        yield
        self.block, self.used = mark

    def take(self, size: int, dtype: DType) -> DeviceArray:
        """An uninitialised array of one axis."""
        nbytes = -(-size * dtype.itemsize // ALIGN) * ALIGN
        while self.block < len(self.blocks) and self.used + nbytes > self.blocks[self.block].nbytes:
            self.block, self.used = self.block + 1, 0
        if self.block == len(self.blocks):
            self.blocks.append(self.machine.memory("", max(nbytes, BLOCK)))
            self.used = 0
        start = self.used
        self.used += nbytes
        return DeviceArray(self.blocks[self.block], start, (size,), dtype)
