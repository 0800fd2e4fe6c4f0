"""Cutting a chain of operations into stages for groups of ranks, and a batch into pieces that go through them.

Stages are stretches of the program's order, with what goes with their operations (`anchors`): gradients and updates.
The slowest one sets the pace, so stages are chosen to have the least largest time, transfers over their ends included,
with what is resident on each within the memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...expr import Affine
from ...program import Operation, Program

Floats = NDArray[np.float64]

NEARLY = 1.1  # times the least largest pace, within which ends are chosen by work


@dataclass(frozen=True)
class Chain:
    """Operations in order: seconds of each; ``crossing``: of what has to be moved where a stage ends before each (and
    after the last); ``resident``: by operation the tensors that it needs there for the whole run, with bytes;
    ``moving``: by operation the seconds of what is moved of its result on its own stage.
    """

    seconds: Sequence[float]
    crossing: Sequence[float]
    resident: Sequence[Mapping[str, int]]
    moving: Sequence[float]

    def work(self) -> Floats:
        """[first, end] the seconds of operations first..end-1; infinite where there are none."""
        work = _between(self.seconds)
        return np.where(work > 0, work, np.inf)

    def paces(self) -> Floats:
        """[first, end] the seconds of a stage of operations first..end-1: of its work, or of its transfers, with those
        of what enters and leaves.
        """
        over = np.asarray(self.crossing)
        found: Floats = np.maximum(self.work(), _between(self.moving) + over[:, None] + over[None, :])
        return found

    def run(self, ends: Sequence[int], pieces: int) -> float:
        """Seconds of a batch that goes through stages with these ends in so many pieces, each a stage at a time: all of
        the slowest stage, and what one piece takes on the others.
        """
        ways = sum(self.seconds) + sum(self.moving) + sum(self.crossing[end] for end in ends)
        paces = self.paces()
        slowest = max(float(paces[first, end]) for first, end in pairwise([0, *ends, len(self.seconds)]))
        return (ways + (pieces - 1) * slowest) / pieces

    def fits(self, capacity: int) -> NDArray[np.bool_]:
        """[first, end] whether what is resident for a stage has room."""
        count = len(self.seconds)
        found = np.zeros((count + 1, count + 1), dtype=bool)
        for first in range(count):
            held: dict[str, int] = {}
            total = 0
            for end in range(first + 1, count + 1):
                for name, nbytes in self.resident[end - 1].items():
                    total += 0 if name in held else nbytes
                    held.setdefault(name, nbytes)
                if total > capacity:
                    break
                found[first, end] = True
        return found


def _between(seconds: Sequence[float]) -> Floats:
    """[first, end] the sum of those numbered first..end-1."""
    passed = np.concatenate(([0.0], np.cumsum(seconds)))
    found: Floats = passed[None, :] - passed[:, None]
    return found


def stages(chain: Chain, count: int, capacity: int) -> tuple[int, ...] | None:
    """Where each of so many stages but the first begins: the least largest pace, nearly, and among those the least
    largest work, as links may set the pace wherever stages end. None where none fit.
    """
    paces = np.where(chain.fits(capacity), chain.paces(), np.inf)
    least, _ = _least_largest(paces, count)
    if not np.isfinite(least):
        return None
    return _least_largest(np.where(paces <= NEARLY * least, chain.work(), np.inf), count)[1]


def _least_largest(of: Floats, count: int) -> tuple[float, tuple[int, ...]]:
    """The least that the largest of so many stages [first, end] is, and where all but the first begin."""
    best, begins = of[0], list[NDArray[np.int64]]()
    for _ in range(count - 1):
        both = np.maximum(best[:, None], of)
        begins.append(both.argmin(axis=0))
        best = both.min(axis=0)
    end, found = len(of) - 1, list[int]()
    for begin in reversed(begins):
        end = int(begin[end])
        found.append(end)
    return float(best[-1]), tuple(reversed(found))


def anchors(program: Program) -> list[int]:
    """For each operation the number of the one on whose stage it is computed: mostly its own.

    What reads a resident tensor goes with its first reader, so that it lies on one stage: a layer's gradients and its
    update go with the layer. From the first such operation on others go with what reads them, or with what they read.
    """
    ops = program.operations
    first: dict[str, int] = {}
    for k, op in enumerate(ops):
        for name in op.operands:
            if program.tensor(name).role in ("param", "state"):
                first.setdefault(name, k)
    shared = [min((first[name] for name in op.operands if name in first), default=k) for k, op in enumerate(ops)]
    turn = next((k for k, at in enumerate(shared) if at < k), len(ops))
    place = {op.name: k for k, op in enumerate(ops)}
    found = [k if k < turn else shared[k] for k in range(len(ops))]
    loose = [k for k in range(turn, len(ops)) if shared[k] == k]
    for k in reversed(loose):
        after = [found[place[reader.name]] for reader in program.consumers[ops[k].output]]
        found[k] = next((at for at in after if at < turn), k)
    made = {op.output: k for k, op in enumerate(ops)}
    for k in loose:
        if found[k] >= turn:
            found[k] = max((found[made[name]] for name in ops[k].operands if name in made), default=turn - 1)
    return found


def carried(program: Program, tensor: str, axis: int) -> dict[str, str]:
    """The dimension of each operation that an axis of an input is carried to through plain reads and writes.

    Operations that fold it, or compute nothing of it, are left out.
    """
    axes = {tensor: axis}
    found: dict[str, str] = {}
    for op in program.operations:
        dims = [_plain(read.index[axes[read.tensor]]) for read in op.reads if read.tensor in axes]
        dim = next((dim for dim in dims if dim in op.parallel_dims and op.dim(dim).cut), None)
        written = [k for k, row in enumerate(op.write) if _plain(row) == dim]
        if dim is not None and written:
            found[op.name] = dim
            axes[op.output] = written[0]
    return found


def independent(program: Program, dims: Mapping[str, str]) -> bool:
    """Whether no operation that is cut in pieces along these dimensions reads of a piece of another what is not of the
    same piece, as attention does of keys.
    """
    axes = {op.output: list(map(_plain, op.write)).index(dims[op.name]) for op in program.operations if op.name in dims}
    reads = ((dims[op.name], read) for op in program.operations if op.name in dims for read in op.reads)
    return all(_plain(read.index[axes[read.tensor]]) == dim for dim, read in reads if read.tensor in axes)


def _plain(row: Affine) -> str | None:
    """The dimension that a row is, alone."""
    if row.const or len(row.terms) != 1:
        return None
    [(name, factor)] = row.terms
    return name if isinstance(name, str) and factor == 1 else None


def extents(program: Program, dims: Mapping[str, str]) -> int:
    """The least extent of the dimensions."""
    by_name: Mapping[str, Operation] = program.op_by_name
    return min(by_name[name].extents[dim] for name, dim in dims.items())
