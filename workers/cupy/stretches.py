"""Stretches of points whose elements lie together: chunks of rows, one early and one late, stored one after another.

What is computed of them alone does not know that there are several: it is one task over as many rows as there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...expr import Affine, IndexValue, Inside, Read, walk
from ...program import Block
from ...space import Box, Grid, IntSet
from ..device import Evaluation, Stored


def together(task: Evaluation) -> Evaluation:
    """The same task with its stretches numbered through, where they are stored as they are computed; else itself."""
    op = task.op
    if len(task.points.grids) != 1 or isinstance(op.body, Block):
        return task
    [grid] = task.points.grids
    axes = dict(zip((dim.name for dim in op.dims), grid.axes, strict=True))
    broken = {name for name, axis in axes.items() if len(axis.runs) != 1}
    if not broken or not plain(task, axes, broken):
        return task
    found: dict[str, set[frozenset[int]]] = {op.output: {_places(op.write, broken)}}
    for node in walk(op.body):
        if isinstance(node, Read):
            found.setdefault(node.tensor, set()).add(_places(node.index, broken))
    if any(len(places) != 1 for places in found.values()):
        return task  # a tensor is read by these rows and by others too
    numbered = {name: next(iter(places)) for name, places in found.items()}
    reads = {name: _numbered(stored, numbered.get(name, frozenset())) for name, stored in task.reads.items()}
    points = _through(grid, frozenset(k for k, name in enumerate(axes) if name in broken)).region()
    return replace(task, points=points, reads=reads, write=_numbered(task.write, numbered[op.output]))


def _places(index: tuple[Affine, ...], broken: set[str]) -> frozenset[int]:
    return frozenset(k for k, row in enumerate(index) if row.dims & broken)


def _numbered(stored: Stored, places: frozenset[int]) -> Stored:
    return replace(stored, grid=_through(stored.grid, places)) if places else stored


def _through(grid: Grid, places: frozenset[int]) -> Grid:
    whole = Box.of_shape(grid.shape).grid()
    return Grid(tuple(whole.axes[k] if k in places else axis for k, axis in enumerate(grid.axes)))


def plain(task: Evaluation, axes: Mapping[str, IntSet], broken: set[str]) -> bool:
    """Whether every index finds along dimensions in stretches what is stored in the same stretches, in their order."""
    op, body = task.op, task.op.body
    assert not isinstance(body, Block)
    indices = [(op.write, task.write)]
    for node in walk(body):
        if isinstance(node, Read):
            indices.append((node.index, task.reads[node.tensor]))
    if any(bound.expr.dims & broken for bound in op.where):
        return False
    for node in walk(body):
        bounds = node.guard if isinstance(node, Read) else node.bounds if isinstance(node, Inside) else ()
        if any(bound.expr.dims & broken for bound in bounds):
            return False
        if isinstance(node, IndexValue) and node.index.dims & broken:
            return False
    return all(
        not row.dims & broken or (row == Affine.dim(next(iter(row.dims))) and axes[next(iter(row.dims))] == axis)
        for index, stored in indices
        for row, axis in zip(index, stored.grid.axes, strict=True)
    )
