"""Indices of the data that are outside of their axis, on a device on which no kernel can raise.

A kernel leaves such an index in a word of page-locked memory, one for each axis, and goes on with the first element:
what it makes is thrown away. The host looks at the words after it has waited for a step, which takes no longer for
them, replayed from a graph or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import IndexOutside
from ...expr import Expr, Read, walk
from ...program import Block, Operation
from ...selection import demands, uncast
from ..device import Evaluation
from .arrays import DeviceArray, Memory
from .jobs import Job
from .machine import Machine

WORD = np.dtype(np.int64)
WORDS = 512  # of a memory


def axes_of(job: Job) -> tuple[int, ...]:
    """The extents of the axes that some indices of a job have to be within."""
    return tuple(sorted({extent for expr in job.expressions for _, extent in demands(expr)}))


@dataclass(frozen=True)
class _Watch:
    """The word of one axis of a task, 0 while nothing is wrong: 0 is in every axis."""

    task: Evaluation
    extent: int
    word: np.ndarray[Any, np.dtype[np.int64]]


class Outside:
    """The words of all tasks of a device."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._memory: Memory | None = None
        self._used = 0
        self._all: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        self._watches: list[_Watch] = []

    def words(self, task: Evaluation, axes: tuple[int, ...]) -> DeviceArray:
        """Where a kernel of a task leaves what is outside of each of some axes."""
        if self._memory is None or self._used + len(axes) > WORDS:
            self._memory, self._used = self._machine.memory("host", WORDS * WORD.itemsize), 0
            self._all.append(_host(self._memory))
            self._all[-1][...] = 0
        start, self._used = self._used, self._used + len(axes)
        places = self._all[-1][start : self._used]
        self._watches += [_Watch(task, extent, places[k : k + 1]) for k, extent in enumerate(axes)]
        return DeviceArray(self._memory, start * WORD.itemsize, (len(axes),), WORD)

    def demand_none(self) -> None:
        """TaskError, caused by `IndexOutside`, for the first task that met such an index since this was asked last.

        All that was run is done.
        """
        if not any(words.any() for words in self._all):
            return
        watch, value = next((watch, int(watch.word[0])) for watch in self._watches if watch.word[0])
        for words in self._all:
            words[...] = 0
        with watch.task.place:
            raise self._error(watch, value)

    def _error(self, watch: _Watch, value: int) -> IndexOutside:
        op = watch.task.op
        assert not isinstance(op.body, Block)
        index = next(index for index, extent in demands(op.body) if extent == watch.extent)
        read = next((node for node in walk(index) if isinstance(node, Read)), None)
        if read is None:
            return IndexOutside(value, watch.extent, read=_looked_up(op, index))
        place = read.tensor
        if uncast(index) == read:
            place += self._found(watch.task, read.tensor, value)
        else:
            place = f"the index computed from {place}"
        return IndexOutside(value, watch.extent, place, _looked_up(op, index))

    def _found(self, task: Evaluation, tensor: str, value: int) -> str:
        """Where an operand holds a value, as "[3, 1]"; nothing where it holds it no more."""
        stored = task.reads[tensor]
        array = np.frombuffer(self._machine.download(stored.array), stored.array.dtype).reshape(stored.array.shape)
        at = np.argwhere(array == value)
        if not len(at):
            return ""
        numbers = [
            [x for run in axis.runs for x in run][k] for axis, k in zip(stored.grid.axes, map(int, at[0]), strict=True)
        ]
        return f"[{', '.join(map(str, numbers))}]" if numbers else "[]"


def _host(memory: Memory) -> np.ndarray[Any, np.dtype[np.int64]]:
    assert memory.host is not None, "page-locked memory is the host's too"
    return memory.host.view(WORD)


def _looked_up(op: Operation, index: Expr) -> str:
    """The tensors that an index is of: those that are read along the dimension that is selected by it."""
    dims = {one.dim for one in op.selections if index in walk(one.value)}
    return ", ".join(dict.fromkeys(read.tensor for read in op.reads if any(dims & {*row.dims} for row in read.index)))
