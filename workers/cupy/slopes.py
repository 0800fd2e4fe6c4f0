"""The slopes of attention on a GPU, in 16 bits, by cuDNN through torch; all others: `dense_slopes`.

cuDNN goes over blocks of queries and keys and gives all slopes at once, of which a task stores those it is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ...dtypes import name_of
from ...expr import Affine, Bound
from ...program import Block, Operation
from ..device import Evaluation, Stored
from .cells import Cell, Runs, cells_of
from .heads import KNOWN, WIDTHS, WORTH, Names
from .jobs import Renaming
from .machine import Heads, Machine

SIDES = "qkv"
Made = list[tuple[Any, Any, Any]]
"""The slopes of q, k and v of every stretch of a call."""


@dataclass(frozen=True)
class Stretch:
    """So many queries from one on and so many keys: each query sees all of them, or (causal) the t-th those up to the
    t-th."""

    row: int
    rows: int
    key: int
    keys: int
    causal: bool

    @property
    def mine(self) -> slice:
        return slice(self.row, self.row + self.rows)

    @property
    def theirs(self) -> slice:
        return slice(self.key, self.key + self.keys)


@dataclass(frozen=True)
class Slopes:
    """Slopes of queries, keys or values (``side``) of some stretches. ``sides``: q, k, v, result and slope; ``sums``:
    of every query and head the sum of its weights and the largest of its scores."""

    sides: tuple[Heads, ...]
    sums: tuple[Heads, Heads]
    into: Heads
    batches: int
    rows: int
    keys: int
    heads: int
    groups: int
    width: int
    scale: float
    side: str
    stretches: tuple[Stretch, ...]


def slopes_of(task: Evaluation) -> list[list[Slopes]] | None:
    """The calls that a task is, those together whose slopes are added up in the same elements; None where a library has
    not all of them."""
    found = [[_slopes(task, cell, folds) for folds in cell.folds] for cell in cells_of(task.op, task.points)]
    if any(one is None for calls in found for one in calls):
        return None
    return [[one for one in calls if one is not None] for calls in found]


@dataclass(frozen=True)
class Roles:
    """The dimensions of a task. ``heads``: of keys, and of queries that read one; or of queries alone."""

    batch: tuple[str, ...]
    row: str
    key: str
    heads: tuple[str, ...]
    column: str
    side: str

    @property
    def keyed(self) -> bool:
        """Whether the slopes are those of keys or values."""
        return self.side != "q"

    @staticmethod
    def of(op: Operation) -> Roles:
        assert isinstance(op.body, Block)
        names, side = tuple(dim.name for dim in op.dims), op.body.kernel[-1]
        if side != "q":
            *batch, key, group, row, inner, column = names
            return Roles(tuple(batch), row, key, (group, inner), column, side)
        *batch, row, head, key, column = names
        return Roles(tuple(batch), row, key, (head,), column, side)


def _slopes(task: Evaluation, cell: Cell, folds: Runs) -> Slopes | None:
    op = task.op
    assert isinstance(op.body, Block)
    roles, width = Roles.of(op), op.dims[-1].extent
    stored = [task.reads[read.tensor] for read in op.body.reads]
    if width not in WIDTHS or len(roles.batch) > 1:
        return None
    if any(isinstance(s.array, np.ndarray) or name_of(s.array.dtype) not in KNOWN for s in stored[:5]):
        return None
    runs = {**cell.kept, **folds}
    rows, keys = len(runs[roles.row]), len(runs[roles.key])
    if rows * keys < WORTH:
        return None
    lie = _Lie(Names(Renaming("n", {**runs, roles.column: range(width)}), runs), roles)
    stretches = stretches_of(
        lie.names.renaming.bounds(op.where), lie.names.of(roles.row), lie.names.of(roles.key), rows, keys
    )
    by_key = roles.key, roles.heads[:1]
    reads = [(read.index, s) for read, s in zip(op.body.reads, stored, strict=True)]
    found = [
        lie.heads(index, s, *(by_key if place in (1, 2) else (roles.row, roles.heads)))
        for place, (index, s) in enumerate(reads)
    ]
    into = lie.heads(op.write, task.write, *(by_key if roles.keyed else (roles.row, roles.heads)))
    sides = [side for side in found if side is not None]
    if not stretches or into is None or len(sides) < len(found):
        return None
    shares = [share for _, share in sides]
    each = len(runs[roles.heads[1]]) if roles.keyed else shares[1]  # heads of queries that read one of keys
    if shares != [1 if roles.keyed or k not in (1, 2) else each for k in range(len(shares))] or into[1] != 1:
        return None
    count = prod(len(runs[name]) for name in roles.heads)
    q, k, v, result, slope, total, largest = (side for side, _ in sides)
    batches = prod(len(runs[name]) for name in roles.batch)
    return Slopes(
        (q, k, v, result, slope), (total, largest), into[0], batches, rows, keys, count, count // each, width,
        float(op.body.attrs["scale"]), roles.side, stretches,
    )  # fmt: skip


@dataclass(frozen=True)
class _Lie:
    """How operands lie, by the names of dimensions."""

    names: Names
    roles: Roles

    def heads(
        self, index: tuple[Affine, ...], stored: Stored, row: str, heads: Sequence[str]
    ) -> tuple[Heads, int] | None:
        """Vectors, or numbers, of rows and heads, which one or two dimensions count; and how many heads share one."""
        found = self.names.steps(index, stored)
        if found is None:
            return None
        offset, steps, parts = found
        if steps.pop(self.names.of(self.roles.column), 1) != 1:
            return None
        batch = self.roles.batch[0] if self.roles.batch else None
        shared = parts.pop(self.names.of(heads[0]), 1)
        if len(heads) == 1 and self.names.of(heads[0]) not in steps:
            shared = len(self.names.runs[heads[0]])
        taken = [steps.pop(self.names.of(name), 0) if name else 0 for name in (batch, row, *heads)]
        if len(heads) == 2:
            outer, inner = (len(self.names.runs[name]) for name in heads)
            *taken, before, step = taken
            if outer > 1 and inner > 1 and before != inner * step:
                return None
            taken.append(step if inner > 1 else before)
        return None if steps or parts else (Heads(stored.array, offset, *taken), shared)


def stretches_of(where: tuple[Bound, ...] | None, row: str, key: str, rows: int, keys: int) -> tuple[Stretch, ...]:
    """What queries see of keys, if that is everything or all keys before some place that moves on with the query;
    nothing where it is otherwise, or where they see none.

    >>> from tapestry.expr import Affine, Bound
    >>> seen = Bound(Affine.dim("s") - Affine.dim("t"), None, 3)  # keys before the third from the query's own on
    >>> for one in stretches_of((seen,), "t", "s", 8, 4):
    ...     print(one)
    Stretch(row=0, rows=8, key=0, keys=2, causal=False)
    Stretch(row=0, rows=2, key=2, keys=2, causal=True)
    Stretch(row=2, rows=6, key=2, keys=2, causal=False)
    """
    if where is None or not where:
        return () if where is None else (Stretch(0, rows, 0, keys, False),)
    [bound, *more] = where
    past = Affine.dim(key) * (keys > 1) - Affine.dim(row) * (rows > 1)
    ahead, behind = bound.expr - past, bound.expr + past
    if not ahead.terms and bound.lo is None and bound.hi is not None:
        first = bound.hi - ahead.const - 1  # the last key that the first query sees
    elif not behind.terms and bound.hi is None and bound.lo is not None:
        first = behind.const - bound.lo
    else:
        return ()
    if more:
        return ()
    skipped, first = max(0, -first), max(0, first)
    square = max(0, min(rows - skipped, keys - first))
    found = (
        Stretch(skipped, rows - skipped, 0, min(first, keys), False),
        Stretch(skipped, square, first, square, True),
        Stretch(skipped + square, rows - skipped - square, first, keys - first, False),
    )
    return tuple(one for one in found if one.rows > 0 and one.keys > 0)


class LibrarySlopes:
    """A bound task. What it allocates is torch's.

    The library makes the slopes of q, k and v at once: what tasks that ``follow`` store of the same calls is kept for
    them.
    """

    def __init__(self, machine: Machine, calls: Sequence[Sequence[Slopes]], task: Evaluation) -> None:
        self.machine, self.together = machine, calls
        self.calls = [one for ones in calls for one in ones]
        self.key = task.lane, task.op.operands, [replace(one, into=one.sides[0], side="") for one in self.calls]
        self.sides = {one.side for one in self.calls}
        self.before: LibrarySlopes | None = None
        self.followers = 0
        self._kept: list[Made] | None = None
        self._taken = 0

    @property
    def kernels(self) -> tuple[str, ...]:
        """What makes them."""
        return ("cuDNN attention slopes",) if self.before is None else ("slopes stored",)

    @property
    def complete(self) -> bool:
        """Whether nobody is left to follow: all sides are stored."""
        return self.sides == set(SIDES)

    def follow(self, before: LibrarySlopes) -> bool:
        """Take what another task makes, which runs before on the same lane, if its calls are the same."""
        if before.key != self.key or before.sides & self.sides:
            return False
        self.before, before.followers = before, before.followers + 1
        before.sides |= self.sides
        return True

    def __call__(self) -> None:
        made = None if self.before is None else self.before.taken()
        if made is None:
            made = [self._made(one) for one in self.calls]
        parts = iter(made)
        for ones in self.together:
            self._store(ones, [next(parts) for _ in ones])
        self._kept, self._taken = (made if self.followers else None), 0

    def taken(self) -> list[Made] | None:
        """What this step's calls made; the last follower lets it go."""
        found, self._taken = self._kept, self._taken + 1
        if self._taken >= self.followers:
            self._kept = None
        return found

    def _made(self, one: Slopes) -> Made:
        """What the library makes of every stretch."""
        library, found = self.machine.attention_slopes, []
        assert library is not None
        for part in one.stretches:
            mine, theirs = (part.row, part.rows, one.heads), (part.key, part.keys, one.groups)
            sides = zip(one.sides, (mine, theirs, theirs, mine, mine), strict=True)
            q, k, v, result, slope = (self._view(x, one, *place, one.width) for x, place in sides)
            total, largest = (self._view(x, one, *mine, 1) for x in one.sums)
            found.append(library(slope, q, k, v, result, largest + total.log(), part.causal, one.scale))
        return found

    def _store(self, ones: Sequence[Slopes], made: Sequence[Made]) -> None:
        """The slopes of some calls that go to the same elements, those of several stretches added up."""
        import torch

        first, *_ = ones
        count, heads = (first.rows, first.heads) if first.side == "q" else (first.keys, first.groups)
        into, side = self._view(first.into, first, 0, count, heads, first.width), SIDES.index(first.side)
        parts = [
            (part.mine if one.side == "q" else part.theirs, slopes[side])
            for one, each in zip(ones, made, strict=True)
            for part, slopes in zip(one.stretches, each, strict=True)
        ]
        steps = in_steps([place for place, _ in parts], count)
        if steps is None:  # of three numbers the sum of two would be rounded before the third is added
            added = torch.zeros(into.shape, dtype=torch.float32, device=into.device)
            for place, slopes in parts:
                added[:, :, place].add_(slopes)
            into.copy_(added)
            return
        for part, place, how in steps:
            if part is None:
                into[:, :, place].zero_()
                continue
            start, slopes = parts[part][0].start, parts[part][1]
            some = slopes[:, :, place.start - start : place.stop - start]
            into[:, :, place].add_(some) if how == "add" else into[:, :, place].copy_(some)

    def _view(self, x: Heads, one: Slopes, first: int, count: int, heads: int, width: int) -> Any:
        """[batch, head, row, element], of so many rows from one on."""
        flat = self.machine.tensor(x.array.reshape((x.array.size,)))
        shape, steps = (one.batches, heads, count, width), (x.batch, x.head, x.row, 1)
        return flat.as_strided(shape, steps, x.offset + first * x.row)


def in_steps(places: Sequence[slice], count: int) -> list[tuple[int | None, slice, str]] | None:
    """How parts at some places become their sum over so many elements: a part (None: nothing, zeros), where, and
    whether it is copied or added to what is there. None where three parts meet.

    >>> for step in in_steps([slice(0, 6), slice(6, 8), slice(0, 2)], 9):
    ...     print(*step)
    0 slice(0, 6, None) copy
    1 slice(6, 8, None) copy
    2 slice(0, 2, None) add
    None slice(8, 9, None) copy
    """
    edges = sorted({0, count, *(edge for place in places for edge in (place.start, place.stop))})
    parts = dict.fromkeys(edges[:-1], 0)  # so many from there to the next edge
    found: list[tuple[int | None, slice, str]] = []
    for number, place in enumerate(places):
        for first, end in pairwise(edge for edge in edges if place.start <= edge <= place.stop):
            how = "add" if parts[first] else "copy"
            parts[first] += 1
            if found and found[-1][0] == number and found[-1][1].stop == first and found[-1][2] == how:
                first = found.pop()[1].start
            found.append((number, slice(first, end), how))
    found += [(None, slice(first, end), "copy") for first, end in pairwise(edges) if not parts[first]]
    return None if max(parts.values(), default=0) > 2 else found
