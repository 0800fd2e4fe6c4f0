"""Ranks that hold the same stretches of what an operation reads: one of them is asked for all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...program import Operation
from ...space.projection import Projection, read_projections
from ..strategy.columns import Columns, Ints, joined, met
from ..strategy.images import image_columns
from ..strategy.layouts import Layout

NOWHERE = -1  # the number of ranks that hold none of it whole


def alike(op: Operation, tensor: str, points: Layout, have: Layout, axis: int) -> list[int] | None:
    """Per rank a number, equal for ranks of which the same indices of one axis of their ``points`` read what they have.

    Reads and layouts are products, so along other axes all of what is read is there whatever the index, or is not.
    None where that is not known.
    """
    if points.by_axes is None or have.by_axes is None:
        return None
    facts, nowhere = list[Ints](), np.zeros(len(points.sizes), dtype=bool)
    for read, projection in read_projections(op).items():
        if read.tensor != tensor:
            continue
        image = image_columns(projection, points.by_axes)
        if image is None:
            return None
        codes, complete, *others = _facts(projection, points.by_axes, image, have.by_axes, axis)
        facts += [codes, complete, *others]
        nowhere |= ~complete.astype(bool) & (not op.where and not read.guard)
    numbers = np.unique(np.stack(facts), axis=1, return_inverse=True)[1].reshape(-1)
    found: list[int] = np.where(nowhere, NOWHERE, numbers).tolist()
    return found


def _facts(projection: Projection, points: Columns, read: Columns, have: Columns, axis: int) -> Iterator[Ints]:
    """What one read of ranks hangs on: the sets of all axes that go with one; whether along the others all that is read
    is there, and whether any of it is; whether anything is read.
    """
    along = [part for part in projection.parts if axis in part.axes]
    rows = sorted(row for part in along for row in part.rows)
    axes = sorted({axis, *(k for part in along for k in part.axes)})
    yield joined([*(points[k] for k in axes), *(have[row] for row in rows)])[0]
    both = [(mine.sizes, met(mine, have[row]).sizes) for row, mine in enumerate(read) if row not in rows]
    for fact in ([held == size for size, held in both], [held > 0 for _, held in both], [c.sizes > 0 for c in read]):
        yield np.all(fact, axis=0) * np.ones(len(points[0].codes), dtype=np.int64)
