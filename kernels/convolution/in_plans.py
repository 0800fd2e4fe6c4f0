"""The grouped convolutions of a plan: found by their index expressions, one problem for every shard.

    x[n, c + 8*(k//8), 2*p + r - 1, 2*q + s - 1] if ... else 0) * w[k, c, r, s], summed over c, r, s

In whichever order the axes of either tensor stand. A shard of output rows p0:p1 reads the rows that its windows meet,
and what they miss of the image is its padding, so that a shard is a problem of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

from ..errors import KernelError, WrongValue
from .problem import DTYPES, ConvolutionProblem

Box = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class _Line:
    """One spatial direction: input index = step * output + gap * tap - before; `extent` of the input."""

    output: str
    tap: str
    step: int
    gap: int
    before: int
    extent: int

    def within(self, box: Box) -> tuple[int, int, int]:
        """Input extent, padding before and after, for the outputs and taps of a shard."""
        (first, last), (low, high) = box[self.output], box[self.tap]
        begin = first * self.step + low * self.gap - self.before
        end = (last - 1) * self.step + (high - 1) * self.gap - self.before + 1
        start, stop = max(begin, 0), min(end, self.extent)
        return max(stop - start, 1), start - begin, end - stop


@dataclass(frozen=True)
class _Convolution:
    """An operation that is a grouped convolution: the names its dimensions have there."""

    batch: str
    channel: str
    inner: str
    rows: _Line
    columns: _Line
    width: int
    dtype: str

    def problem(self, box: Box) -> ConvolutionProblem:
        """The convolution of the points of a shard. Raises `KernelError` for what the kernels do not compute."""
        h, top, bottom = self.rows.within(box)
        w, left, right = self.columns.within(box)
        n, channels, r, s = (high - low for low, high in map(box.__getitem__, self._dims))
        if channels % self.width or box[self.channel][0] % self.width:
            raise WrongValue("a shard that cuts a group", where=self.channel, expected=self.width, came=channels)
        if box[self.inner] != (0, self.width):
            raise WrongValue("a shard of the channels of a group", where=self.inner, came=box[self.inner])
        return ConvolutionProblem(
            n, h, w, channels, channels // self.width, r, s, (self.rows.step, self.columns.step),
            (self.rows.gap if r > 1 else 1, self.columns.gap if s > 1 else 1), (top, bottom, left, right), self.dtype,
        )  # fmt: skip

    @property
    def _dims(self) -> tuple[str, str, str, str]:
        return self.batch, self.channel, self.rows.tap, self.columns.tap


def problems(plan: Any) -> dict[str, tuple[ConvolutionProblem, ...]]:
    """Operation -> the distinct problems of its shards, for every grouped convolution of a plan or program.

    `plan` is a plan, its document, or what that is as plain mappings (not folded: `tapestry.planner` unfolds what it
    loads). Operations the kernels do not compute are left out.
    """
    document = _part(plan, "document") or plan
    program = _part(document, "program") or document
    if not isinstance(program, Mapping) or not {"tensors", "operations"} <= set(program):
        raise WrongValue("not a plan", where="warm_up", expected="a plan or its document", came=type(plan).__name__)
    if any("repeat" in item for item in (*program["operations"], *program["tensors"])):
        raise WrongValue("a folded document", where="warm_up", expected="a plan", hint="load it with tapestry.planner")
    tensors = {tensor["name"]: tensor for tensor in program["tensors"]}
    found: dict[str, tuple[ConvolutionProblem, ...]] = {}
    for operation in program["operations"]:
        convolution = recognise(operation, tensors)
        if convolution is not None:
            made = dict.fromkeys(_attempts(convolution, _shards(document, operation)))
            if made:
                found[operation["name"]] = tuple(made)
    return found


def _attempts(convolution: _Convolution, boxes: Sequence[Box]) -> Iterator[ConvolutionProblem]:
    for box in boxes:
        try:
            yield convolution.problem(box)
        except KernelError:
            continue


def _shards(document: Any, operation: Mapping[str, Any]) -> list[Box]:
    """The points of every rank, where they are boxes; the whole operation where there are no tasks."""
    dims = _dims(operation)
    layouts = _part(document, "layouts") or {}
    tasks = [task for task in _part(document, "tasks") or () if _part(task, "op") == operation["name"]]
    regions = [region for task in tasks for region in _part(layouts[_part(task, "shards")], "regions")]
    if not tasks:
        return [{name: (0, extent) for name, extent in dims.items()}]
    boxes = (_box(region) for region in dict.fromkeys(regions))
    return [dict(zip(dims, box, strict=True)) for box in boxes if box is not None and len(box) == len(dims)]


def _box(region: str) -> list[tuple[int, int]] | None:
    pieces = [piece.split(":") for piece in region.split(",")]
    if not all(len(piece) == 2 and all(side.strip().isdecimal() for side in piece) for piece in pieces):
        return None
    box = [(int(low), int(high)) for low, high in pieces]
    return box if all(low < high for low, high in box) else None


def _part(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)


def _dims(operation: Mapping[str, Any]) -> dict[str, int]:
    pairs = (item.split("=") for item in operation["dims"].split())
    return {name: int(extent) for name, extent in pairs}


def recognise(operation: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Any]]) -> _Convolution | None:
    """The convolution that an operation of a program's document is, or None."""
    if operation.get("monoid") != "sum" or operation.get("where"):
        return None
    reads = _product(operation["body"])
    if reads is None:
        return None
    target = tensors[operation["write"].partition("[")[0]]
    for image, filters in (reads, reads[::-1]):
        read, weights = (tensors.get(ast.unparse(side.value), {}) for side in (image, filters))
        if read.get("dtype") in DTYPES and read["dtype"] == weights.get("dtype") == target["dtype"]:
            found = _match(image, filters, operation, read["shape"], read["dtype"])
            if found is not None:
                return found
    return None


def _product(body: str) -> tuple[ast.Subscript, ast.Subscript] | None:
    """The two reads of `x[...] * w[...]`, either of them guarded, with zero outside."""
    try:
        node = ast.parse(body, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    left, right = (_unguarded(side) for side in (node.left, node.right))
    return (left, right) if isinstance(left, ast.Subscript) and isinstance(right, ast.Subscript) else None


def _unguarded(node: ast.expr) -> ast.expr:
    guarded = isinstance(node, ast.IfExp) and isinstance(node.orelse, ast.Constant) and node.orelse.value == 0
    return node.body if guarded and isinstance(node, ast.IfExp) else node


def _rows(read: ast.Subscript) -> list[ast.expr]:
    return list(read.slice.elts) if isinstance(read.slice, ast.Tuple) else [read.slice]


# Axes of batch, rows, columns, channels: channels second, last, then anywhere.
_ORDERS = tuple(dict.fromkeys([(0, 2, 3, 1), (0, 1, 2, 3), *permutations(range(4))]))


def _match(
    image: ast.Subscript, filters: ast.Subscript, operation: Mapping[str, Any], shape: Sequence[int], dtype: str
) -> _Convolution | None:
    """The first way to give axes and dimensions their roles in which every index is what it must be.

    Dimensions of one element may be missing from an index; then several ways mean the same, and the natural order wins.
    """
    dims, over = _dims(operation), operation.get("over", "").split()
    taps = [row.id for row in _rows(filters) if isinstance(row, ast.Name)]
    channels, inner = [name for name in taps if name not in over], [name for name in taps if name in over]
    if len(_rows(image)) != 4 or len(taps) != 4 or len(channels) != 1 or sorted(inner) != sorted(over):
        return None
    outputs = [name for name in dims if name not in over and name not in channels]
    if len(outputs) != 3:
        return None
    try:
        rows = [_Uses.of(row, dims) for row in _rows(image)]
    except _NotAffineError:
        return None
    for axes, (c, r, s), (n, p, q) in product(_ORDERS, permutations(inner), permutations(outputs)):
        batch, row, column, channel = (rows[axis] for axis in axes)
        if not batch.is_dim(n, dims) or not channel.is_group(channels[0], c, dims):
            continue
        lines = [
            _line(use, output, tap, dims, shape[axis])
            for use, output, tap, axis in ((row, p, r, axes[1]), (column, q, s, axes[2]))
        ]
        if lines[0] is not None and lines[1] is not None:
            return _Convolution(n, channels[0], c, lines[0], lines[1], dims[c], dtype)
    return None


def _line(uses: _Uses, output: str, tap: str, dims: Mapping[str, int], extent: int) -> _Line | None:
    if not uses.affine or not uses.only(output, tap, dims):
        return None
    step, gap = uses.names.get(output, 1), uses.names.get(tap, 1)
    return _Line(output, tap, step, gap, -uses.start, extent) if min(step, gap) > 0 else None


@dataclass(frozen=True)
class _Uses:
    """Which dimensions an index depends on, by how much from 0 to 1 of each; its value at 0; whether it is affine."""

    row: ast.expr
    names: Mapping[str, int]
    start: int
    affine: bool

    @classmethod
    def of(cls, row: ast.expr, dims: Mapping[str, int]) -> _Uses:
        named = sorted({node.id for node in ast.walk(row) if isinstance(node, ast.Name)})
        zero = dict.fromkeys(named, 0)
        start = _value(row, zero)
        steps = {name: _value(row, {**zero, name: 1}) - start for name in named}
        divides = any(isinstance(node, ast.FloorDiv | ast.Mod) for node in ast.walk(row))
        bends = any(
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and len(_named(node)) > 1
            for node in ast.walk(row)
        )
        return cls(row, steps, start, not divides and not bends and set(named) <= set(dims))

    def only(self, first: str, second: str, dims: Mapping[str, int]) -> bool:
        """Whether it depends on these two, and on both unless they have one element."""
        absent = {first, second} - set(self.names)
        return set(self.names) <= {first, second} and all(dims[name] == 1 for name in absent)

    def is_dim(self, name: str, dims: Mapping[str, int]) -> bool:
        """Whether it is this dimension itself."""
        return self.affine and self.only(name, name, dims) and self.start == 0 and self.names.get(name, 1) == 1

    def is_group(self, channel: str, inner: str, dims: Mapping[str, int]) -> bool:
        """Whether it is width * (channel // width) + inner, inner of `width` elements, channels a multiple of them."""
        width, count = dims[inner], dims[channel]
        if set(self.names) - {channel, inner} or count % width or self.names.get(inner, 1) != 1:
            return False
        if inner not in self.names and width > 1:
            return False
        values = [_value(self.row, {channel: k, inner: 0}) for k in range(count)]
        return values == [k // width * width for k in range(count)]


def _named(node: ast.AST) -> set[str]:
    return {found.id for found in ast.walk(node) if isinstance(found, ast.Name)}


class _NotAffineError(Exception):
    """An index expression with something else than whole numbers in it."""


_OPERATORS: Mapping[type, Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    """An index expression's value; documents come from outside, so nothing of Python's is evaluated."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        right = _value(node.right, names)
        if right or not isinstance(node.op, ast.FloorDiv | ast.Mod):
            return int(_OPERATORS[type(node.op)](_value(node.left, names), right))
    raise _NotAffineError(ast.unparse(node))
