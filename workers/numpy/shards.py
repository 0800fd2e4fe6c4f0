"""First pass, shard → groups of boxes: the points of a task as pieces, those that fold into the same elements together.

The grids of a shard are taken apart into boxes over dimensions that start at 0 (see `pieces`).
"""

from __future__ import annotations

from itertools import combinations, product

from ...expr import MONOIDS, Call, Expr
from ...program import Block, Operation
from ...space import Grid, Region
from ..device import Evaluation
from ..lifting import dtypes_of, value_dtype, values_of
from .folding import Reduction
from .pieces import Piece, whole

# Boxes of one group fold into the same elements, one after another.
Group = list[Piece]


def groups_of(task: Evaluation) -> list[Group]:
    """The groups of a shard, in the order in which they are computed."""
    piece = whole_piece(task)
    grids = [_groups(piece, grid) for grid in task.points.grids]
    if task.op.monoid is not None and len(grids) > 1 and _overlapping(task.op, task.points):
        return [[box for groups in grids for group in groups for box in group]]
    return [group for groups in grids for group in groups]


def whole_piece(task: Evaluation) -> Piece:
    """All points of the operation, with what each contributes."""
    op = task.op
    dims = tuple((dim.name, dim.extent) for dim in op.dims)
    return Piece(dims, frozenset(op.reduce_dims), op.write, _contribution(task), op.where, dtypes_of(task))


def reduction(task: Evaluation) -> Reduction | None:
    """How values are folded; None without a fold, or where what is folded is a record of more than a value."""
    if task.op.monoid is None:
        return None
    return Reduction.of(MONOIDS[task.op.monoid], value_dtype(task), dtypes_of(task)[task.op.output])


def _contribution(task: Evaluation) -> Expr:
    """A value; of a block its reads, of a record its components, as a call of them."""
    op = task.op
    if isinstance(op.body, Block):
        return Call(op.body.kernel, op.body.reads)
    parts = values_of(task)
    if op.monoid is None or reduction(task) is not None:
        return parts[0]
    return Call("'record", tuple(parts))


def _groups(piece: Piece, grid: Grid) -> list[Group]:
    """Boxes of a grid, those that fold into the same elements together."""
    names = piece.names
    runs = dict(zip(names, (axis.runs for axis in grid.axes), strict=True))
    kept, folded = [n for n in names if n not in piece.reduce], [n for n in names if n in piece.reduce]
    inner = [dict(zip(folded, pick, strict=True)) for pick in product(*(runs[name] for name in folded))]
    outer = [dict(zip(kept, pick, strict=True)) for pick in product(*(runs[name] for name in kept))]
    return [[whole(piece, {**a, **b}) for b in inner] for a in outer]


def _overlapping(op: Operation, points: Region) -> bool:
    """Whether two grids fold into a common element."""
    kept = [k for k, dim in enumerate(op.dims) if dim.name not in op.reduce_dims]
    shadows = [Grid(tuple(grid.axes[k] for k in kept)) for grid in points.grids]
    return any(a & b for a, b in combinations(shadows, 2))
