"""What a shard of an operation takes, remembered: equal shards of equal operations are priced once, for every strategy
and every plan that has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np

from ...convolution import convolution
from ...expr import Affine
from ...program import Block, Operation, Program
from ...space import Region
from ..machine import Machine
from .columns import Ints
from .cost import kernel_seconds, machine_seconds, roofs, start_seconds, touched
from .images import boxes_of, read_sizes, sizes_of_points, sizes_written
from .layouts import Layout

BOXES = 16  # of a block's shards that are looked at one by one
MANY = 16  # ranks, of which it pays to tell apart what their shards take before any is priced


class Work(NamedTuple):
    """Seconds and points of a shard; ``measured``: by the model of its kernel, which says more than the machine."""

    seconds: float
    points: int
    measured: bool


class Works:
    """The work of shards on so many devices of a machine: the given ones, or the first. One table for one program."""

    def __init__(self, machine: Machine, ranks: int, devices: Sequence[int] | None = None) -> None:
        self.ranks = ranks
        kinds = list(machine.devices)
        self.machines = [machine.of_one_kind(kind) for kind in kinds]
        numbers = range(ranks) if devices is None else devices
        self.kinds = [kinds.index(machine.device_of(number)) for number in numbers] if machine.others else [0] * ranks
        self._known: dict[tuple[str, Region | tuple[int, ...], int, bool, bool], Work] = {}
        self._of_machine: dict[tuple[str, tuple[int, ...], int, bool, bool], float] = {}  # by how much is touched

    def of(
        self, op: Operation, program: Program, region: Region, *, partial: bool, onto: bool = False, kind: int = 0
    ) -> Work:
        """What one shard of an operation takes, which may leave partial results, or be folded onto some; nothing where
        there are no points. ``kind``: the number of the device in `Machine.devices`.
        """
        alike = _extents(op, region)
        key = (program.graph.structure(op), region if alike is None else alike, kind, partial, onto)
        if key not in self._known:
            empty = Work(0.0, 0, False)
            priced = self._priced(op, program, region, kind, partial=partial, onto=onto) if region else empty
            self._known[key] = priced
        return self._known[key]

    def each(
        self, op: Operation, program: Program, points: Layout, *, partial: bool, onto: bool = False
    ) -> tuple[Work, ...]:
        """What every rank's shard takes on its device. ``points``: of each, as a layout of the index space."""
        alike = self._alike(op, program, points)
        if alike is not None:
            found = [
                self.of(op, program, points.region(rank), partial=partial, onto=onto, kind=self.kinds[rank])
                for rank in np.unique(alike, return_index=True)[1].tolist()
            ]
            return tuple(map(found.__getitem__, alike.tolist()))
        pairs = list(zip(points.regions, self.kinds, strict=True))
        known = {
            (region, kind): self.of(op, program, region, partial=partial, onto=onto, kind=kind)
            for region, kind in dict.fromkeys(pairs)
        }
        return tuple(known[pair] for pair in pairs)

    def _alike(self, op: Operation, program: Program, points: Layout) -> Ints | None:
        """Numbers from 0 on, equal for ranks whose shards take as long: on devices of a kind, as many points that read
        and write as many elements. None where that is not known at once for all ranks, or more matters.
        """
        cut = points.by_axes
        if cut is not None and _even(op):
            return _numbered(zip(self.kinds, *(axis.sizes.tolist() for axis in cut), strict=True))
        if cut is None or len(self.kinds) < MANY or convolution(op, program) is not None:
            return None
        boxes = [*islice(boxes_of(cut), BOXES + 1)] if isinstance(op.body, Block) else []
        if len(boxes) > BOXES:
            return None
        sizes = [read_sizes(op, name, cut) for name in op.operands]
        for some in (cut, *boxes):  # a library's kernel takes the boxes of a block one after another
            sizes += [sizes_of_points(op, some), sizes_written(op, some)]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return None
        found: Ints = np.unique(np.stack([np.array(self.kinds), *known]), axis=1, return_inverse=True)[1].reshape(-1)
        return found

    def shares(self, op: Operation, program: Program, work: Sequence[Work], times: Sequence[float]) -> tuple[Work, ...]:
        """By rank so many times the share of a library's call that an operation is priced by; the start comes once. A
        shard all of whose points are masked takes nothing.
        """
        found = []
        for one, each, kind in zip(work, times, self.kinds, strict=True):
            start = start_seconds(op, program, self.machines[kind], self.ranks)
            whole = Work(start + each * (one.seconds - start), one.points, True)
            found.append(whole if one.points and each != 1 else one)
        return tuple(found)

    def shape(self, op: Operation, program: Program, region: Region, *, partial: bool, kind: int = 0) -> str:
        """The class and shape of which a table of the machine says what a shard takes; "" where something else does."""
        shard = touched(op, program, region, partial=partial)
        if not shard.points:
            return ""
        found = roofs(op, program, self.machines[kind], shard, self.ranks)
        return max(found, key=lambda roof: roof.seconds).shape

    def _priced(self, op: Operation, program: Program, region: Region, kind: int, *, partial: bool, onto: bool) -> Work:
        shard, machine = touched(op, program, region, partial=partial, onto=onto), self.machines[kind]
        sizes = (shard.points, *(image.region.size for image in shard.reads.values()), shard.written.size)
        key = (program.graph.structure(op), sizes, kind, partial, onto)
        if key not in self._of_machine:
            self._of_machine[key] = machine_seconds(op, program, machine, shard, self.ranks)
        least = self._of_machine[key]
        seconds = max(least, kernel_seconds(op, program, machine, shard) or 0.0)
        return Work(seconds, shard.points, seconds > least)


def _numbered(keys: Iterable[tuple[int, ...]]) -> Ints:
    """Numbers from 0 on, equal where keys are."""
    seen: dict[tuple[int, ...], int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)


def _extents(op: Operation, region: Region) -> tuple[int, ...] | None:
    """How many values of each dimension a shard has, where that says what it takes; None where more matters."""
    return region.grids[0].shape if len(region.grids) == 1 and _even(op) else None


@lru_cache(maxsize=65536)
def _even(op: Operation) -> bool:
    """All points have work, and what any grid of them reads and writes has an element for each of the values of the
    dimensions that it is indexed by.
    """
    rows = [op.write, *(read.index for read in op.reads)]
    once = len({read.tensor for read in op.reads}) == len(op.reads)
    return once and not op.where and not any(read.guard for read in op.reads) and all(map(_apart, rows))


def _apart(rows: tuple[Affine, ...]) -> bool:
    """No row has more than one dimension, and no dimension stands in two rows."""
    dims = [name for row in rows for name in row.dims]
    return all(row.is_affine and len(row.terms) <= 1 for row in rows) and len(set(dims)) == len(dims)
