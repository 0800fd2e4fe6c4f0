"""Attention as libraries take it: dense heads, all keys seen or those up to the query's own."""

from __future__ import annotations

import numpy as np

from ...dtypes import name_of
from ...expr import Affine, Bound, Floor, Table
from ...program import Block
from ..device import Evaluation, Stored
from .cells import Cell, cells_of
from .few_queries import ROWS
from .jobs import Renaming
from .machine import Attention, Heads, Keys
from .places import place

# Scores from which a library's kernel is worth its call, the types it has, and the widths of heads.
WORTH = 1 << 13
KNOWN = ("bf16", "f16")
WIDTHS = (64, 128)


def attentions_of(task: Evaluation) -> list[Attention] | None:
    """The calls that an attention task is; None where one of its boxes is none."""
    found = [_attention(task, cell) for cell in cells_of(task.op, task.points)]
    return None if None in found else [one for one in found if one is not None]


def for_library(a: Attention) -> bool:
    """Whether a library's kernel is worth its call, also for few rows, which may see fewer keys than there are."""
    keys = sum(part.count for part in a.parts)
    return a.rows > ROWS or (a.rows * keys >= WORTH and min(a.rows, keys) >= 2)


def _attention(task: Evaluation, cell: Cell) -> Attention | None:
    op = task.op
    assert isinstance(op.body, Block)
    *outer, key, column = (dim.name for dim in op.dims)
    width = op.extents[column] - 2
    stored = [task.reads[read.tensor] for read in op.body.reads]
    if len(cell.folds) != 1 or width not in WIDTHS or not 2 <= len(outer) <= 3:
        return None
    if any(isinstance(s.array, np.ndarray) or name_of(s.array.dtype) not in KNOWN for s in stored):
        return None
    runs = {**cell.kept, key: cell.folds[0][key]}
    counts = [len(runs[name]) for name in outer[-2:]]
    rows, heads, keys = counts[0], counts[1], len(runs[key])
    if rows > ROWS and (rows * keys < WORTH or keys < 2):
        return None
    names = Names(Renaming("n", {**runs, column: range(width)}), runs)
    parts = _seen(names.renaming.bounds(op.where), names.of(outer[-2]), names.of(key), rows, keys)
    batch = outer[0] if len(outer) == 3 else None
    found = [
        names.heads(read.index, s, batch, row, outer[-1], column)
        for read, s, row in zip(op.body.reads, stored, (outer[-2], key, key), strict=True)
    ]
    state = names.heads(op.write, task.write, batch, outer[-2], outer[-1], column)
    if not parts or state is None or None in found or name_of(task.write.array.dtype) != "f32":
        return None
    [(q, one), (k, ratio), (v, other)] = [pair for pair in found if pair is not None]
    if one != 1 or ratio != other or state[1] != 1 or heads % ratio:
        return None
    batches = len(runs[batch]) if batch else 1
    scale = float(op.body.attrs["scale"])
    return Attention(q, k, v, state[0], batches, rows, heads, heads // ratio, width, scale, parts)


def _seen(where: tuple[Bound, ...] | None, row: str, key: str, rows: int, keys: int) -> tuple[Keys, ...]:
    """The keys that all rows see, then the square of those that row after row sees one more of.

    Nothing where the rows see other keys: key - row < d has to hold with 1 <= d, and all rows to end among the keys.
    """
    if where is None or not where:
        return () if where is None else (Keys(0, keys, False),)
    if keys < 2:
        return ()
    [bound, *more] = where
    past = Affine.dim(key) - (Affine.dim(row) if rows > 1 else Affine())
    ahead, behind = bound.expr - past, bound.expr + past
    if not ahead.terms and bound.lo is None and bound.hi is not None:
        before = bound.hi - ahead.const - 1
    elif not behind.terms and bound.hi is None and bound.lo is not None:
        before = behind.const - bound.lo
    else:
        return ()
    if more or before < 0 or before + rows > keys:
        return ()
    return tuple(part for part in (Keys(0, before, False), Keys(before, rows, True)) if part.count)


class Names:
    """The fresh names of dimensions, empty for those of one value."""

    def __init__(self, renaming: Renaming, runs: dict[str, range]) -> None:
        self.renaming, self.runs = renaming, runs

    def of(self, name: str) -> str:
        value = self.renaming.values[name]
        return str(value.terms[0][0]) if value.terms else ""

    def heads(
        self, index: tuple[Affine, ...], stored: Stored, batch: str | None, row: str, head: str, column: str
    ) -> tuple[Heads, int] | None:
        """How the vectors lie, and how many heads share one; None where they lie otherwise."""
        found = self.steps(index, stored)
        if found is None or found[1].pop(self.of(column), None) != 1:
            return None
        offset, steps, parts = found
        shared = parts.pop(self.of(head), 1)
        if self.of(head) and self.of(head) not in steps:  # all heads share one
            shared = len(self.runs[head])
        taken = [steps.pop(self.of(name), 0) if name else 0 for name in (batch, row, head)]
        return None if steps or parts else (Heads(stored.array, offset, *taken), shared)

    def steps(self, index: tuple[Affine, ...], stored: Stored) -> tuple[int, dict[str, int], dict[str, int]] | None:
        """Where elements lie: the offset, the step along each fresh dimension, and of those of which only each so many
        values have a step of their own, how many; None where they lie otherwise.
        """
        at = place([self.renaming.index(i) for i in index], stored, self.renaming.ranges)
        steps: dict[str, int] = {}
        parts: dict[str, int] = {}
        for atom, step in at.plain.terms:
            if isinstance(atom, Table):
                return None
            if isinstance(atom, Floor):
                inner = next(iter(atom.inner.dims), "")
                if atom.inner != Affine.dim(inner):
                    return None
                parts[inner], atom = atom.divisor, inner
            steps[atom] = step
        return None if at.broken else (at.plain.const, steps, parts)
