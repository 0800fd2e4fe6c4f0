"""Memory that torch allocates in bytes that are given: results of its functions lie in an arena.

Torch asks its pool's allocator for segments, keeps them, and hands out blocks of them, those that nobody holds any more
again: so calls that come after one another on a stream have the same bytes for their results. What does not fit lies
elsewhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from weakref import ref

from .arrays import DeviceArray, Memory

ALIGN = 512
# What torch asks for beyond the results themselves: of up to 1 MiB in segments of 2, of up to 10 MiB in segments of 20,
# larger ones up to a multiple of 2 MiB each (its CUDACachingAllocator). Two results and their logs at a time.
SEGMENTS = (2 * 2 + 2 * 20) << 20
# void* (size, device, stream), and void (pointer, size, device, stream): what torch calls.
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)

# Torch may call them for as long as it lasts, whatever has become of a pool.
_called: list[Any] = []


class Segments:
    """Stretches of an array, one behind the other; those that do not fit are what ``elsewhere`` gives."""

    def __init__(self, elsewhere: Callable[[int], Memory], room: DeviceArray) -> None:
        self.elsewhere, self.room = elsewhere, room
        self.first = self.used = -room.pointer % ALIGN
        self.inside: set[int] = set()
        self.beside: dict[int, Memory] = {}

    def allocate(self, nbytes: int) -> int:
        """The address of so many bytes; 0 where there are none."""
        if self.used + nbytes <= self.room.nbytes:
            found = self.room.pointer + self.used
            self.used += -(-nbytes // ALIGN) * ALIGN
            self.inside.add(found)
            return found
        try:
            memory = self.elsewhere(nbytes)
        except MemoryError:
            return 0
        self.beside[memory.pointer] = memory
        return memory.pointer

    def free(self, pointer: int) -> None:
        """What lies beside goes back; the array is free again once nothing is left in it."""
        self.beside.pop(pointer, None)
        self.inside.discard(pointer)
        if not self.inside:
            self.used = self.first


class Pool:
    """A pool of torch's over some bytes. It is `close`d before they go."""

    def __init__(self, elsewhere: Callable[[int], Memory], room: DeviceArray) -> None:
        import torch

        self.segments = Segments(elsewhere, room)
        functions = _functions(ref(self.segments))
        _called.extend(functions)
        own: Any = torch._C
        addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in functions]
        self.torch: Any = torch
        self.pool: Any = torch.cuda.MemPool(own._cuda_customAllocator(*addresses))

    def used(self) -> AbstractContextManager[Any]:
        """Inside, what torch allocates lies there."""
        found: AbstractContextManager[Any] = self.torch.cuda.use_mem_pool(self.pool)
        return found

    def close(self) -> None:
        """Torch forgets it."""
        self.pool = None


def _functions(held: ref[Segments]) -> tuple[Any, Any]:
    """What torch calls to allocate and to free, which keeps no memory alive."""

    def allocate(nbytes: int, _device: int, _stream: int) -> int:
        segments = held()
        return segments.allocate(nbytes) if segments is not None else 0

    def free(pointer: int, _nbytes: int, _device: int, _stream: int) -> None:
        segments = held()
        if segments is not None:
            segments.free(pointer)

    return _ALLOCATE(allocate), _FREE(free)
