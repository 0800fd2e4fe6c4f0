"""Scratch memory for temporaries: one growing block list that the tasks of a lane use one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from .folding import Array

_ALIGN = 64
_BLOCK = 1 << 20


def aligned_empty(nbytes: int) -> Array:
    """Bytes that start at a multiple of 64, so that results never depend on where memory happened to be."""
    raw = np.empty(nbytes + _ALIGN, np.uint8)
    start = -raw.ctypes.data % _ALIGN
    return raw[start : start + nbytes]


class Scratch:
    """Hands out arrays; what is handed out inside `frame` is given back at its end, for the next task to use."""

    def __init__(self) -> None:
        self._blocks: list[Array] = []
        self._block, self._used = 0, 0

    @contextmanager
    def frame(self) -> Iterator[None]:
        """Everything taken inside is free again afterwards."""
        mark = self._block, self._used
        yield
        self._block, self._used = mark

    def take(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """An uninitialised array of the shape."""
        nbytes = prod(shape) * dtype.itemsize
        padded = -(-nbytes // _ALIGN) * _ALIGN
        while self._block < len(self._blocks) and self._used + padded > self._blocks[self._block].size:
            self._block, self._used = self._block + 1, 0
        if self._block == len(self._blocks):
            self._blocks.append(aligned_empty(max(padded, _BLOCK)))
            self._used = 0
        start = self._used
        self._used += padded
        return self._blocks[self._block][start : start + nbytes].view(dtype).reshape(tuple(shape))
