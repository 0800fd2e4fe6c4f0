"""Row programs: operations that fold the last dimensions of a tensor and map its elements with what was folded.

Layer norm, RMS norm and softmax are such programs, with or without a residual added before, and so is anything else
that the language declares from the same parts. They are recognised by structure: one index space, every fold over the
same dimensions, every intermediate read at the point that wrote it.

    mean[n]  = sum[d] x[n, d] / D                      fold
    var[n]   = sum[d] (x[n, d] - mean[n])² / D         fold
    y[n, d]  = (x[n, d] - mean[n]) * rsqrt(var[n] + e) map
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ...dtypes import DTYPES
from ...expr import MONOIDS, Affine, Bound, Cast, Const, Expr, Read, rewrite, substitute, walk
from ...expr.monoids import VALUE
from ...expr.simplify import simplify_bounds, simplify_index
from ...program import Operation
from ..elementwise.indices import flattened, offset, ranges_of, simplified_body
from ..elementwise.loop import MAX_32, Loop, check_body, scalar_body
from ..elementwise.types import Layout
from ..errors import TooLarge, WrongShape, WrongValue

ROW, COLUMN = "r", "x"


class NotRows(WrongValue):
    """Operations that are no row program; the message says which condition they break."""


@dataclass(frozen=True)
class Stage:
    """One operation. ``monoid`` None: a map over all points, or, where ``whole_row``, over rows alone.

    The body reads operands at one offset over r and x; earlier folds as ``Read(name, ())``; earlier maps are written
    out.
    """

    name: str
    dtype: str
    body: Expr
    monoid: str | None = None
    whole_row: bool = False
    where: tuple[Bound, ...] = ()

    @property
    def fold(self) -> str | None:
        """The scalar function that folds its values."""
        return None if self.monoid is None else MONOIDS[self.monoid].function


@dataclass(frozen=True)
class Output:
    """A stage that is written to memory, at an offset over r and x."""

    stage: str
    layout: Layout
    offset: Affine


@dataclass(frozen=True)
class RowProgram:
    """``rows`` rows of ``width`` elements; stages in order; operands as a kernel takes them."""

    rows: int
    width: int
    stages: tuple[Stage, ...]
    outputs: tuple[Output, ...]
    operands: tuple[tuple[str, Layout], ...]

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """Of operands and stages."""
        return {name: layout.dtype for name, layout in self.operands} | {s.name: s.dtype for s in self.stages}

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """Distinct reads of operands, in order."""
        nodes = (node for stage in self.stages for node in walk(stage.body))
        return tuple(dict.fromkeys(node for node in nodes if isinstance(node, Read) and node.index))

    @cached_property
    def loop(self) -> Loop:
        """The points as a loop over rows and columns, for what is asked of loops."""
        out = next((o for o in self.outputs if COLUMN in o.offset.dims), self.outputs[0])
        return Loop(((ROW, self.rows), (COLUMN, self.width)), Const(0), out.offset, out.layout, self.operands)

    @cached_property
    def wide(self) -> bool:
        """Whether some offset needs 64 bits."""
        ranges = self.loop.ranges
        rows = [*(read.index[0] for read in self.reads), *(output.offset for output in self.outputs)]
        reach = [bound for row in rows for bound in row.bounds(ranges)]
        return self.rows * self.width > MAX_32 or any(abs(bound) > MAX_32 for bound in reach)

    @property
    def bytes_moved(self) -> int:
        """Bytes of operands and outputs, each element once."""
        extents = {ROW: self.rows, COLUMN: self.width}
        read: dict[str, int] = {}
        for node in self.reads:
            read[node.tensor] = max(read.get(node.tensor, 0), prod(extents[d] for d in node.index[0].dims))
        layouts = dict(self.operands)
        total = sum(min(n, layouts[name].elements) * layouts[name].type.bytes for name, n in read.items())
        written = (prod(extents[d] for d in o.offset.dims) * o.layout.type.bytes for o in self.outputs)
        return total + sum(written)


def recognise(
    operations: Sequence[Operation], layouts: Mapping[str, Layout], outputs: Sequence[str] | None = None
) -> RowProgram:
    """The row program of some operations, in order.

    ``layouts`` describes operands and what is written; of intermediates only the dtype matters. ``outputs`` names what
    is written: by default what no operation reads.

    Raises `NotRows` where the operations are no row program.
    """
    made = {op.output: op for op in operations}
    for op in operations:
        _check(op, layouts)
    values = _common(operations, made)
    space = _Space(next(op for op in operations if op.monoid is not None), values)
    read = {node.tensor for op in operations for node in walk(scalar_body(op)) if isinstance(node, Read)}
    wanted = [op.output for op in operations if op.output not in read] if outputs is None else list(outputs)
    for name in wanted:
        if name not in made:
            raise WrongShape("an output that no operation writes", expected=", ".join(made), came=name)
    return _assembled(operations, layouts, wanted, space)


def _check(op: Operation, layouts: Mapping[str, Layout]) -> None:
    if op.monoid is not None and MONOIDS[op.monoid].function is None:
        known = ", ".join(name for name, monoid in MONOIDS.items() if monoid.function is not None)
        raise NotRows("a fold that no row is folded by", where=op.name, expected=known, came=op.monoid)
    if op.where and op.monoid is None:
        raise NotRows("a map over part of its points", where=op.name, came=op.where)
    if op.output not in layouts:
        raise WrongShape("no layout for a tensor", where=op.name, expected=op.output, came=", ".join(layouts))
    check_body([(dim.name, dim.extent) for dim in op.dims], scalar_body(op), layouts, op.name)
    for row in op.write:
        if row != Affine() and _single(row) is None:
            raise NotRows("a write that is not by plain dimensions", where=op.name, came=row)


# -- one index space ---------------------------------------------------------------------------------------------------


def _common(operations: Sequence[Operation], made: Mapping[str, Operation]) -> dict[str, dict[str, str]]:
    """For each operation (by output) its dimensions by the names of the first fold's, found by following reads."""
    first = next((op for op in operations if op.monoid is not None), None)
    if first is None:
        raise NotRows("nothing is folded", hint="tapestry.kernels.elementwise")
    known = {first.output: {dim.name: dim.name for dim in first.dims}}
    links = [
        (op, made[node.tensor], node)
        for op in operations for node in walk(scalar_body(op)) if isinstance(node, Read) and node.tensor in made
    ]  # fmt: skip
    shared = [(a, b, x, y) for a, x in _operand_reads(operations, made) for b, y in _operand_reads(operations, made)]
    for _ in range(2 * len(operations)):
        for reader, writer, node in links:
            _follow(known, reader, writer, list(zip(node.index, writer.write, strict=True)))
        for a, b, x, y in shared:
            if a.output != b.output and x.tensor == y.tensor and len(x.index) == len(b.dims):
                _follow(known, a, b, list(zip(x.index, y.index, strict=True)))
    return known


def _operand_reads(operations: Sequence[Operation], made: Mapping[str, Operation]) -> list[tuple[Operation, Read]]:
    return [
        (op, node)
        for op in operations for node in walk(scalar_body(op)) if isinstance(node, Read) and node.tensor not in made
    ]  # fmt: skip


def _follow(
    known: dict[str, dict[str, str]], a: Operation, b: Operation, pairs: Sequence[tuple[Affine, Affine]]
) -> None:
    """Dimensions of two operations that index the same axis of a tensor are the same."""
    for x, y in pairs:
        left, right = _single(x), _single(y)
        if left is None or right is None:
            continue
        for source, target, mine, theirs in ((a, b, left, right), (b, a, right, left)):
            name = known.get(source.output, {}).get(mine)
            if name is not None:
                known.setdefault(target.output, {}).setdefault(theirs, name)


def _single(row: Affine) -> str | None:
    """The dimension that a row is, if it is one."""
    if row.const == 0 and len(row.terms) == 1 and isinstance(row.terms[0][0], str) and row.terms[0][1] == 1:
        return row.terms[0][0]
    return None


class _Space:
    """Kept and folded dimensions of the first fold, as one row number r and one column number x."""

    def __init__(self, first: Operation, values: Mapping[str, Mapping[str, str]]) -> None:
        self.values = values
        self.extents = {dim.name: dim.extent for dim in first.dims}
        self.folded = tuple(dim.name for dim in first.dims if dim.name in first.reduce_dims)
        self.kept = tuple(dim.name for dim in first.dims if dim.name not in first.reduce_dims)
        self.rows = prod(self.extents[name] for name in self.kept)
        self.width = prod(self.extents[name] for name in self.folded)
        self.ranges = ranges_of(((ROW, self.rows), (COLUMN, self.width)))
        self.places = {**self._taken_apart(self.kept, ROW), **self._taken_apart(self.folded, COLUMN)}

    def _taken_apart(self, names: Sequence[str], whole: str) -> dict[str, Affine]:
        """Dimensions by floor and mod of a number that counts their points."""
        left, places = Affine.dim(whole), {}
        for name in reversed(names):
            places[name] = left % self.extents[name]
            left = left // self.extents[name]
        return places

    def substitution(self, op: Operation) -> dict[str, Affine]:
        """The operation's dimensions over r and x. `NotRows` where one is unknown."""
        own = self.values.get(op.output, {})
        found = {}
        for dim in op.dims:
            name = own.get(dim.name)
            if name is None and dim.extent != 1:
                raise NotRows(f"dimension {dim.name} is in no relation to the rows", where=op.name, came=op.body)
            if name is not None and self.extents[name] != dim.extent:
                raise NotRows("another extent", where=op.name, expected=self.extents[name], came=dim.extent)
            found[dim.name] = Affine() if name is None else self.places[name]
        self._check_folded(op, own)
        return found

    def _check_folded(self, op: Operation, own: Mapping[str, str]) -> None:
        large = {name for name, extent in self.extents.items() if extent > 1}
        folded = {own.get(dim, "") for dim in op.reduce_dims} & large
        over = {own[dim.name] for dim in op.dims if dim.extent > 1}
        if len(over) != sum(dim.extent > 1 for dim in op.dims):
            raise NotRows("two dimensions along one", where=op.name, came=op.body)
        if op.monoid is not None and (folded != set(self.folded) & large or over != large):
            raise NotRows("a fold over other dimensions", where=op.name, expected=self.folded, came=op.reduce_dims)
        if op.monoid is None and over != large and over != set(self.kept) & large:
            raise NotRows("neither every point nor every row", where=op.name, expected=sorted(large), came=sorted(over))


# -- assembling ----------------------------------------------------------------------------------------------------


def _assembled(
    operations: Sequence[Operation], layouts: Mapping[str, Layout], wanted: Sequence[str], space: _Space
) -> RowProgram:
    dtypes = {name: layout.dtype for name, layout in layouts.items()}
    stages: dict[str, Stage] = {}
    outputs = []
    writes: dict[str, tuple[Affine, ...]] = {}
    for op in operations:
        values = space.substitution(op)
        where = simplify_bounds(tuple(bound.substitute(values) for bound in op.where), space.ranges)
        if where is None:
            raise NotRows("no point is inside", where=op.name, came=op.where)
        write = tuple(simplify_index(row.substitute(values), space.ranges) for row in op.write)
        writes[op.output] = write
        body = _body(op, substitute(scalar_body(op), values), stages, writes, layouts, space)
        body = _guarded(simplified_body(body, space.ranges, dtypes), where)
        whole = op.monoid is None and all(COLUMN not in row.dims for row in write) and space.width > 1
        stages[op.output] = Stage(op.output, dtypes[op.output], _prepared(op, body, dtypes), op.monoid, whole, where)
        if op.output in wanted:
            place = simplify_index(offset(write, layouts[op.output].strides), space.ranges)
            outputs.append(Output(op.output, layouts[op.output], place))
    kept = [s for s in stages.values() if s.monoid or s.whole_row or s.name in wanted]
    program = RowProgram(space.rows, space.width, tuple(kept), tuple(outputs), ())
    used = {read.tensor for read in program.reads}
    program = replace(program, operands=tuple((n, layout) for n, layout in layouts.items() if n in used))
    if space.rows > MAX_32 or space.width > MAX_32:
        raise TooLarge("too many rows or columns", expected=f"at most {MAX_32} of each", came=(space.rows, space.width))
    return program


def _body(
    op: Operation,
    body: Expr,
    stages: Mapping[str, Stage],
    writes: Mapping[str, tuple[Affine, ...]],
    layouts: Mapping[str, Layout],
    space: _Space,
) -> Expr:
    """The body over r and x: operands at offsets, folds by name, maps written out (rounded as they are stored)."""

    def leaf(node: Expr) -> Expr:
        if not isinstance(node, Read) or node.tensor not in stages:
            return flattened(node, layouts)
        place = tuple(simplify_index(row, space.ranges) for row in node.index)
        if place != writes[node.tensor] or node.guard:
            raise NotRows("an intermediate is read at another point", where=op.name, expected="its own", came=node)
        stage = stages[node.tensor]
        return Read(node.tensor, ()) if stage.monoid or stage.whole_row else Cast(stage.dtype, stage.body)

    return rewrite(body, leaf)


def _guarded(body: Expr, where: tuple[Bound, ...]) -> Expr:
    """Points outside of the domain read nothing."""
    if not where:
        return body

    def leaf(node: Expr) -> Expr:
        return replace(node, guard=(*node.guard, *where)) if isinstance(node, Read) and node.index else node

    return rewrite(body, leaf)


def _prepared(op: Operation, body: Expr, dtypes: Mapping[str, str]) -> Expr:
    """As it enters the fold: lifted, and in the dtype of the result where the record is of that one.

    To choose among floats and then to round gives what to round and then to choose does.
    """
    if op.monoid is None:
        return body
    monoid, output = MONOIDS[op.monoid], DTYPES[dtypes[op.output]]
    component = monoid.components[0]
    lifted = rewrite(component.lift, lambda node: body if node == VALUE else node)
    stored = isinstance(lifted, Read) and dtypes[lifted.tensor] == output.name
    narrower = component.dtype == "stored" and output.compute != output.name and not stored
    return Cast(output.name, lifted) if narrower and not (output.kind == "float" and monoid.idempotent) else lifted
