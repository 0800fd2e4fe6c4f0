"""Which algorithm of cuBLASLt is the quickest for a large product of f32: often not the library's first answer.

Of the products of examples on an H200 (2026-11-23): 8 x [640, 512] x [512, 2048] takes 263 us by the first and 235 by
the second, [262144, 384] x [384, 96] 589 and 560 by the sixth. What tensor cores compute depends on what else the chip
does, and no choice was better than the first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from ...dtypes import numpy_dtype
from ...kernels.errors import LaunchError
from .lt import Algorithm, Call, Described, Matrix
from .machine import Machine

# Multiplications from which on a product is measured; algorithms, rounds, and calls of each in a round. What another
# program does to one round it seldom does to the next. An algorithm has to be so much quicker than the first.
LARGE = 1 << 30
CANDIDATES, ROUNDS, CALLS = 8, 3, 2
BETTER = 0.98


class Quickest:
    """What was measured on a machine: once for every shape."""

    def __init__(self, machine: Machine, stream: Callable[[], int]) -> None:
        self.machine, self.stream = machine, stream
        self.known: dict[Hashable, int] = {}

    def of(self, described: Described, workspace: int) -> Algorithm | None:
        """The algorithm of a call. What is at its operands is read, and nothing written but of its own memory."""
        call = described.call
        if described.algorithm is None or not worth_measuring(call):
            return described.algorithm
        found, shape = described.algorithms(CANDIDATES), (shape_of(call), described.workspace)
        if shape not in self.known:
            try:
                self.known[shape] = least(self._times(described, found, workspace))
            except MemoryError:
                return described.algorithm
        return found[self.known[shape]] if self.known[shape] < len(found) else described.algorithm

    def _times(self, described: Described, algorithms: Sequence[Algorithm], workspace: int) -> list[float]:
        """Seconds of each: of its rounds the least; infinity where the library refuses."""
        out = self.machine.memory("", _bytes(described.call.out, described.call.batches, described.call.stored))
        times = [float("inf")] * len(algorithms)
        for turn in range(ROUNDS + 1):
            for k, algorithm in enumerate(algorithms):
                try:
                    took = self._took(described, described.arguments(workspace, by=algorithm, into=out.pointer))
                except LaunchError:
                    continue
                times[k] = min(times[k], took) if turn else times[k]  # at first kernels are loaded
        return times

    def _took(self, described: Described, arguments: Sequence[object]) -> float:
        start = self.machine.mark()
        for _ in range(CALLS):
            described.lt.multiply(arguments, self.stream())
        end = self.machine.mark()
        self.machine.synchronise()
        return end() - start()


def worth_measuring(call: Call) -> bool:
    """Whether a call is of f32, and large."""
    folded = call.a.rows if call.transposed[0] else call.a.columns
    return call.dtype == "f32" and call.out.rows * call.out.columns * folded * call.batches >= LARGE


def shape_of(call: Call) -> Hashable:
    """What two calls have in common that are as quick by the same algorithm: all but where their operands are."""

    def lying(x: Matrix) -> Matrix:
        return replace(x, array=0, pointer=min(256, x.pointer & -x.pointer))

    c = None if call.c is None else lying(call.c)
    return replace(call, a=lying(call.a), b=lying(call.b), c=c, out=lying(call.out))


def least(times: Sequence[float]) -> int:
    """The number of the quickest; the first where none is quicker by more than measuring is exact.

    >>> least([10.0, 9.0, 9.5]), least([10.0, 9.9])
    (1, 0)
    """
    best = min(range(len(times)), key=times.__getitem__)
    return best if times[best] < BETTER * times[0] else 0


def _bytes(x: Matrix, batches: int, dtype: str) -> int:
    elements = (batches - 1) * x.step + (x.columns - 1) * x.lead + x.rows
    return elements * int(numpy_dtype(dtype).itemsize)
