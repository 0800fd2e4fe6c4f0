"""One shard of an operation, on arrays that hold parts of its tensors.

given   y[n, d] = f(x[n, d - 1])   points n in 4:8, x held from row 4 on, y from row 4 on
local   y[n', d] = f(x[n', d - 1]) over 4 rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...expr import Affine, Expr, Read, rewrite, substitute
from ...program import Operation
from ..errors import WrongShape
from .loop import scalar_body


def localised(
    operation: Operation, points: Mapping[str, range], origins: Mapping[str, Sequence[int]] | None = None
) -> Operation:
    """The operation restricted to ranges of some dimensions, renumbered from 0.

    ``origins`` gives, for tensors of which an array holds a part, the index of that part's first element along each
    axis; reads and writes then count from there. Raises `WrongShape`.
    """
    _check(operation, points)
    values = {name: Affine(((name, run.step),), run.start) for name, run in points.items()}
    starts = dict(origins or {})
    dims = tuple(replace(dim, extent=len(points.get(dim.name, range(dim.extent)))) for dim in operation.dims)
    write = tuple(row.substitute(values) for row in operation.write)
    return replace(
        operation,
        dims=dims,
        write=_moved(write, starts.get(operation.output), operation.name),
        body=_shifted(substitute(scalar_body(operation), values), starts, operation.name),
        where=tuple(bound.substitute(values) for bound in operation.where),
    )


def _shifted(body: Expr, starts: Mapping[str, Sequence[int]], name: str) -> Expr:
    def leaf(node: Expr) -> Expr:
        if not isinstance(node, Read) or node.tensor not in starts:
            return node
        return Read(node.tensor, _moved(node.index, starts[node.tensor], name), node.guard, node.fill)

    return rewrite(body, leaf)


def _moved(index: tuple[Affine, ...], start: Sequence[int] | None, name: str) -> tuple[Affine, ...]:
    if start is None:
        return index
    if len(start) != len(index):
        raise WrongShape("one origin for each axis", where=name, expected=len(index), came=tuple(start))
    return tuple(row - first for row, first in zip(index, start, strict=True))


def _check(operation: Operation, points: Mapping[str, range]) -> None:
    extents = {dim.name: dim.extent for dim in operation.dims}
    for dim, run in points.items():
        if dim not in extents or (run and (min(run) < 0 or max(run) >= extents[dim])):
            came = f"{dim}: {run}"
            raise WrongShape("points outside the dimensions", where=operation.name, expected=extents, came=came)
