"""A map over an index space, brought to the loop that visits its output in the order it lies in memory.

    given     out[j, i] = f(x[i, j], b[j]) over i in 0:I, j in 0:J, out and x row-major
    loop      for j in 0:J, for i in 0:I: out + (I*j + i) = f(x + (J*i + j), b + j)

Dimensions that every offset sees as one are one; floors that step regularly are split away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod

from ...expr import FUNCTIONS, Affine, Bound, Call, Cast, Expr, IndexValue, Inside, Read, substitute, walk
from ...expr.simplify import Ranges, simplify_bounds, simplify_index
from ...program import Block, Operation
from ..errors import TooLarge, WrongLayout, WrongShape, WrongValue
from .indices import (
    flattened,
    index_expressions,
    merges,
    offset,
    period,
    ranges_of,
    simplified_body,
)
from .types import ELEMENT_TYPES, Layout, element_type

Dims = tuple[tuple[str, int], ...]
MAX_32 = 2**31 - 1
MAX_ELEMENTS = 2**46  # what a grid of 2**31 blocks reaches with room to spare


@dataclass(frozen=True)
class Loop:
    """``output[out] = body`` at every point of ``dims`` inside ``where``.

    Reads of the body have one row each, their offset; ``out`` is the offset written. ``dims`` go from far apart in the
    output to close together. ``operands`` are (name, layout) in the order a kernel takes them.
    """

    dims: Dims
    body: Expr
    out: Affine
    output: Layout
    operands: tuple[tuple[str, Layout], ...]
    where: tuple[Bound, ...] = ()

    @cached_property
    def ranges(self) -> dict[str, tuple[int, int]]:
        return ranges_of(self.dims)

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        return dict(self.operands)

    @property
    def points(self) -> int:
        return prod(extent for _, extent in self.dims)

    @cached_property
    def expressions(self) -> list[Affine]:
        """Every index expression of the loop."""
        return [self.out, *index_expressions(self.body), *(bound.expr for bound in self.where)]

    @cached_property
    def wide(self) -> bool:
        """Whether some offset needs 64 bits."""
        found = [expr.bounds(self.ranges) for expr in self.expressions]
        return self.points > MAX_32 or any(lo < -MAX_32 or hi > MAX_32 for lo, hi in found)


def build_loop(
    dims: Sequence[tuple[str, int]],
    body: Expr,
    write: Sequence[Affine],
    output: Layout,
    operands: Mapping[str, Layout],
    where: Sequence[Bound] = (),
    name: str = "map",
) -> Loop:
    """Check a map and normalise it. ``operands`` must hold every tensor that the body reads.

    Raises `WrongShape` (ranks, indices outside a tensor, unknown dimensions), `WrongValue` (unknown functions),
    `WrongLayout` (elements written twice), `TooLarge`.
    """
    check_body(dims, body, operands, name)
    _check_write(dims, write, output, name)
    points = prod(extent for _, extent in dims)
    if points > MAX_ELEMENTS:
        raise TooLarge("too many points", where=name, expected=f"at most {MAX_ELEMENTS}", came=points)
    used = {node.tensor for node in walk(body) if isinstance(node, Read)}
    given = tuple((tensor, layout) for tensor, layout in operands.items() if tensor in used)
    loop = Loop(tuple(dims), flattened(body, operands), offset(write, output.strides), output, given, tuple(where))
    if not points:
        return loop
    _check_strides(loop, name)
    return normalised(loop)


def scalar_body(operation: Operation) -> Expr:
    """What an operation computes at a point. Raises `WrongValue` for a block, which is a kernel of its own."""
    body = operation.body
    if isinstance(body, Block):
        raise WrongValue("only scalar expressions are compiled", where=operation.name, came=f"the block {body}")
    return body


def check_body(dims: Sequence[tuple[str, int]], body: Expr, operands: Mapping[str, Layout], name: str) -> None:
    """Refuse what no kernel can be made of: unknown functions, dimensions or tensors, wrong ranks."""
    known = {dim for dim, _ in dims}
    for node in walk(body):
        if isinstance(node, Call) and (node.function not in FUNCTIONS or not _arity(node)):
            raise WrongValue("no such function", where=name, expected="a function of tapestry.expr", came=str(node))
        if isinstance(node, Cast):
            element_type(node.dtype, name)
        if isinstance(node, Read):
            _check_read(node, dims, operands, name)
        rows = _rows(node)
        unknown = {dim for row in rows for dim in row.dims} - known
        if unknown:
            raise WrongShape("unknown dimension", where=name, expected=sorted(known), came=f"{min(unknown)} in {node}")


def _arity(node: Call) -> bool:
    return len(node.args) == FUNCTIONS[node.function].arity


def _rows(node: Expr) -> list[Affine]:
    if isinstance(node, Read):
        return [*node.index, *(bound.expr for bound in node.guard)]
    if isinstance(node, Inside):
        return [bound.expr for bound in node.bounds]
    return [node.index] if isinstance(node, IndexValue) else []


def _check_read(read: Read, dims: Sequence[tuple[str, int]], operands: Mapping[str, Layout], name: str) -> None:
    if read.tensor not in operands:
        raise WrongShape("a tensor without a layout", where=name, expected=", ".join(operands), came=read.tensor)
    layout = operands[read.tensor]
    if len(read.index) != len(layout.shape):
        raise WrongShape("wrong rank", where=name, expected=f"{len(layout.shape)} axes of {read.tensor}", came=read)
    if read.guard:
        return  # where the guard holds cannot be told by intervals
    for row, extent in zip(read.index, layout.shape, strict=True):
        _check_row(row, extent, dims, str(read), name)


def _check_row(row: Affine, extent: int, dims: Sequence[tuple[str, int]], what: str, name: str) -> None:
    """An affine row's interval is exact: outside means outside. With floors it may be too wide: not judged."""
    ranges = ranges_of(dims)
    if not row.is_affine or any(not ranges.get(dim, (0, 0))[1] for dim in row.dims) or not row.dims <= set(ranges):
        return
    lo, hi = row.bounds(ranges)
    if lo < 0 or hi > extent:
        raise WrongShape(f"{what} leaves the tensor", where=name, expected=f"0:{extent}", came=f"{row} in {lo}:{hi}")


def _check_write(dims: Sequence[tuple[str, int]], write: Sequence[Affine], output: Layout, name: str) -> None:
    if len(write) != len(output.shape):
        raise WrongShape("wrong rank", where=name, expected=f"{len(output.shape)} axes written", came=len(write))
    for row, extent in zip(write, output.shape, strict=True):
        if not row.is_affine:
            raise WrongLayout("the write is not affine", where=name, expected="sums of dimensions", came=row)
        if not row.dims <= {dim for dim, _ in dims}:
            raise WrongShape("unknown dimension", where=name, expected=[dim for dim, _ in dims], came=row)
        _check_row(row, extent, dims, "the write", name)


def _check_strides(loop: Loop, name: str) -> None:
    """No two points write one element: each step passes all that the smaller ones reach."""
    steps = sorted((abs(loop.out.coefficient(dim)), extent) for dim, extent in loop.dims if extent > 1)
    reach = 0
    for step, extent in steps:
        if step <= reach:
            hint = "give the output a layout in which elements do not overlap"
            raise WrongLayout("two points write one element", where=name, came=f"offset {loop.out}", hint=hint)
        reach += step * (extent - 1)


# -- normal form -----------------------------------------------------------------------------------------------------


def normalised(loop: Loop) -> Loop:
    """Dimensions renamed d0, d1, ..., flipped, split, ordered and merged until nothing changes."""
    names = {dim: Affine.dim(f"d{k}") for k, (dim, _) in enumerate(loop.dims)}
    loop = _rewritten(loop, tuple((f"d{k}", extent) for k, (_, extent) in enumerate(loop.dims)), names)
    loop = _split(_flipped(_without_units(loop)))
    order = sorted(loop.dims, key=lambda dim: -abs(loop.out.coefficient(dim[0])))
    return merge_neighbours(replace(loop, dims=tuple(order)))


def _rewritten(loop: Loop, dims: Dims, values: Mapping[str, Affine]) -> Loop:
    """Over other dimensions, simplified."""
    ranges: Ranges = ranges_of(dims)
    dtypes = {name: layout.dtype for name, layout in loop.operands}
    where = simplify_bounds(tuple(bound.substitute(values) for bound in loop.where), ranges)
    if where is None:  # no point is inside
        dims, where = tuple((dim, 0) for dim, _ in dims) or (("none", 0),), ()
        ranges = {dim: (0, 1) for dim, _ in dims}
    body = simplified_body(substitute(loop.body, values), ranges, dtypes)
    return replace(loop, dims=dims, body=body, out=simplify_index(loop.out.substitute(values), ranges), where=where)


def _without_units(loop: Loop) -> Loop:
    kept = tuple(dim for dim in loop.dims if dim[1] != 1)
    return replace(loop, dims=kept)  # simplification has put 0 in their place


def _flipped(loop: Loop) -> Loop:
    """Dimensions along which the output runs backwards are counted from the end."""
    values = {d: n - 1 - Affine.dim(d) for d, n in loop.dims if loop.out.coefficient(d) < 0}
    return _rewritten(loop, loop.dims, values) if values else loop


def _split(loop: Loop) -> Loop:
    """``d = step * dq + dr`` wherever a floor steps along d every ``step`` and that divides its extent."""
    for _ in range(16):
        found = _first_period(loop)
        if found is None:
            return loop
        name, step = found
        dims: list[tuple[str, int]] = []
        for dim, extent in loop.dims:
            dims += [(f"{dim}q", extent // step), (f"{dim}r", step)] if dim == name else [(dim, extent)]
        loop = _rewritten(loop, tuple(dims), {name: Affine.dim(f"{name}q") * step + Affine.dim(f"{name}r")})
    return loop


def _first_period(loop: Loop) -> tuple[str, int] | None:
    for expr in loop.expressions:
        for name, extent in loop.dims:
            step = period(expr, name, extent)
            if step is not None:
                return name, step
    return None


def merge_neighbours(loop: Loop) -> Loop:
    """Neighbouring dimensions that every index expression sees as one become one."""
    while (pair := _mergeable(loop)) is not None:
        (outer, count), inner = pair[0], pair[1][0]
        dims = tuple((d, count * n if d == inner else n) for d, n in loop.dims if d != outer)
        zero = {outer: Affine()}
        body = substitute(loop.body, zero)
        where = tuple(bound.substitute(zero) for bound in loop.where)
        loop = replace(loop, dims=dims, body=body, out=loop.out.substitute(zero), where=where)
    return loop


def _mergeable(loop: Loop) -> tuple[tuple[str, int], tuple[str, int]] | None:
    for outer, inner in pairwise(loop.dims):
        if all(merges(expr, outer[0], inner[0], inner[1]) for expr in loop.expressions):
            return outer, inner
    return None


def one_dimension(loop: Loop) -> Loop | None:
    """The loop over one dimension, for an output without gaps: the others by floor and mod of it; else None."""
    strides = [loop.out.coefficient(dim) for dim, _ in loop.dims]
    expected = [prod(n for _, n in loop.dims[k + 1 :]) for k in range(len(loop.dims))]
    if strides != expected or len(loop.dims) < 2:
        return None
    total, left = loop.points, Affine.dim("d")
    values = {}
    for dim, extent in reversed(loop.dims):
        values[dim] = left % extent
        left = left // extent
    return _rewritten(loop, (("d", total),), values)


def footprint(loop: Loop) -> tuple[int, int]:
    """Bytes read and written if every element is moved once: the floor of a kernel's traffic.

    An operand counts at most its distinct elements along the dimensions its offset depends on.
    """
    read = 0
    for name, layout in loop.operands:
        offsets = {node.index[0] for node in walk(loop.body) if isinstance(node, Read) and node.tensor == name}
        touched = sum(prod(n for d, n in loop.dims if d in row.dims) for row in offsets)
        read += min(touched, _distinct(layout)) * layout.type.bytes
    return read, loop.points * ELEMENT_TYPES[loop.output.dtype].bytes


def _distinct(layout: Layout) -> int:
    """Elements of a tensor that lie at different places."""
    return prod(n for n, step in zip(layout.shape, layout.strides, strict=True) if step)
