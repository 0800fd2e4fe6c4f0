"""Maps written into the maps that read them, so that an intermediate never reaches memory.

    before:  t[i] = f(x[i]);              y[i, j] = g(t[i + 1], b[j])
    after:                                y[i, j] = g(dtype(f(x[i + 1])), b[j])

What was written was rounded, so it is rounded still; where a guarded read of it failed, its fill stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...expr import Bound, Call, Cast, Const, Expr, Inside, Read, rewrite, substitute, walk
from ...program import Operation
from ..errors import TooLarge, WrongValue
from .loop import scalar_body

MOST_NODES = 2000  # of a body: beyond, compiling takes longer than it gains


def fuse(operations: Sequence[Operation], dtypes: Mapping[str, str]) -> Operation:
    """The last operation with all the others, in order, written into it; ``dtypes`` by tensor.

    Raises `WrongValue` for an operation that is not a map of plain dimensions or that nothing reads, and `TooLarge`
    where the body grows beyond `MOST_NODES` parts.
    """
    if not operations:
        raise WrongValue("nothing to fuse", expected="one operation or more", came=0)
    bodies: dict[str, _Inlined] = {}
    *earlier, last = operations
    for op in earlier:
        if op.monoid is not None or op.where:
            raise WrongValue("only whole maps are written into others", where=op.name, came=op.body)
        bodies[op.output] = _Inlined(
            _dims_written(op), written_out(scalar_body(op), bodies, op.name), dtypes[op.output]
        )
    read = {node.tensor for op in operations for node in walk(scalar_body(op)) if isinstance(node, Read)}
    for op in earlier:
        if op.output not in read:
            raise WrongValue("a result that no operation reads", where=op.name, came=op.output)
    body = written_out(scalar_body(last), bodies, last.name)
    return replace(last, body=body)


@dataclass(frozen=True)
class _Inlined:
    """A body by the dimensions that its tensor's axes are (None: an axis of extent 1)."""

    axes: tuple[str | None, ...]
    body: Expr
    dtype: str

    def at(self, read: Read) -> Expr:
        """The value that the read would find."""
        values = {axis: row for axis, row in zip(self.axes, read.index, strict=True) if axis is not None}
        body = Cast(self.dtype, substitute(self.body, values))
        if not read.guard:
            return body
        guarded = rewrite(body, lambda node: replace(node, guard=_both(node, read)) if isinstance(node, Read) else node)
        return Call("where", (Inside(read.guard), guarded, Cast(self.dtype, Const(read.fill))))


def _both(node: Read, read: Read) -> tuple[Bound, ...]:
    return tuple(dict.fromkeys((*node.guard, *read.guard)))


def _dims_written(op: Operation) -> tuple[str | None, ...]:
    axes: list[str | None] = []
    extents = {dim.name: dim.extent for dim in op.dims}
    for row in op.write:
        name = row.terms[0][0] if row.terms else None
        plain = row.const == 0 and (row.terms == ((name, 1),) or not row.terms)
        if not plain or not (name is None or isinstance(name, str)):
            raise WrongValue("a write that is not by plain dimensions", where=op.name, came=row)
        axes.append(name)
    left = {name for name, extent in extents.items() if extent > 1} - set(axes)
    if left or len(set(axes) - {None}) != sum(axis is not None for axis in axes):
        raise WrongValue("a write that is not by plain dimensions", where=op.name, came=op.write)
    return tuple(axes)


def written_out(body: Expr, bodies: Mapping[str, _Inlined], where: str) -> Expr:
    """A body with the reads of fused tensors replaced by what they would find."""

    def leaf(node: Expr) -> Expr:
        return bodies[node.tensor].at(node) if isinstance(node, Read) and node.tensor in bodies else node

    result = rewrite(body, leaf)
    parts = sum(1 for _ in walk(result))
    if parts > MOST_NODES:
        raise TooLarge("a fused body", where=where, expected=f"at most {MOST_NODES} parts", came=parts)
    return result
