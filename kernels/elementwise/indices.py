"""Index expressions of a kernel: one offset for each read, and their C++ text.

A tensor's element is found at one *offset*: its index expressions times its strides. Every read is brought to that form
first, so that views (transposed, sliced, reshaped, reversed, repeated) are the same thing: an offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

from ...expr import Affine, Bound, Call, Cast, Const, Expr, Floor, IndexValue, Inside, Read, Table, rewrite, walk
from ...expr.simplify import Ranges, Simplifier
from .types import Layout


def ranges_of(dims: Sequence[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    """Every dimension's half-open range."""
    return {name: (0, extent) for name, extent in dims}


def offset(index: Sequence[Affine], strides: Sequence[int]) -> Affine:
    """Where an element lies, in elements from the first.

    >>> i, j = Affine.dim("i"), Affine.dim("j")
    >>> str(offset(((4 * i + j) // 3, (4 * i + j) % 3), (3, 1)))
    '4*i + j'
    """
    return sum((row * step for row, step in zip(index, strides, strict=True)), Affine())


class _Offsets(Simplifier):
    """Bodies with simple offsets, without the guards that the box decides; every part keeps its type."""

    def __init__(self, ranges: Ranges, dtypes: Mapping[str, str]) -> None:
        super().__init__(ranges)
        self.dtypes = dtypes

    def missed(self, read: Read) -> Expr:
        return Cast(self.dtypes[read.tensor], Const(read.fill))

    def called(self, call: Call) -> Expr:
        return call


def simplified_body(body: Expr, ranges: Ranges, dtypes: Mapping[str, str]) -> Expr:
    """The body with simple offsets, without the guards that the box decides."""
    return _Offsets(ranges, dtypes).expr(body)


def flattened(body: Expr, layouts: Mapping[str, Layout]) -> Expr:
    """The body with every read at one offset instead of an index for each axis."""

    def leaf(node: Expr) -> Expr:
        if not isinstance(node, Read):
            return node
        return Read(node.tensor, (offset(node.index, layouts[node.tensor].strides),), node.guard, node.fill)

    return rewrite(body, leaf)


def index_expressions(body: Expr) -> list[Affine]:
    """All index expressions of a body: offsets, guards, values."""
    found: list[Affine] = []
    for node in walk(body):
        if isinstance(node, Read):
            found += [*node.index, *(bound.expr for bound in node.guard)]
        elif isinstance(node, IndexValue):
            found.append(node.index)
        elif isinstance(node, Inside):
            found += [bound.expr for bound in node.bounds]
    return list(dict.fromkeys(found))


def merges(expr: Affine, outer: str, inner: str, extent: int) -> bool:
    """Whether the expression sees two dimensions only as ``extent * outer + inner``."""
    if expr.coefficient(outer) != extent * expr.coefficient(inner):
        return False
    return all(merges(atom.inner, outer, inner, extent) for atom, _ in expr.terms if not isinstance(atom, str))


def period(expr: Affine, name: str, extent: int) -> int | None:
    """A divisor of the extent at which a floor of the expression steps along the dimension: split there, it goes."""
    for floor in expr.floors:
        factor = floor.inner.coefficient(name)
        step = floor.divisor // gcd(factor, floor.divisor) if factor else 1
        if 1 < step < extent and extent % step == 0:
            return step
    return None


# -- C++ text ------------------------------------------------------------------------------------------------------


def text(expr: Affine, ranges: Ranges, names: Mapping[str, str], kind: str) -> str:
    """An index expression in C++, in the index type ``kind``.

    >>> i = Affine.dim("i")
    >>> text(2 * i - 1, {"i": (0, 9)}, {"i": "d0"}, "int")
    'd0 * 2 - 1'
    """
    found = ""
    for atom, factor in expr.terms:
        piece = names[atom] if isinstance(atom, str) else _compound_text(atom, ranges, names, kind)
        piece = piece if abs(factor) == 1 else f"{piece} * {_number(abs(factor), kind)}"
        if found:
            found += (" - " if factor < 0 else " + ") + piece
        else:
            found = ("-" if factor < 0 else "") + piece
    if expr.const or not found:
        constant = _number(abs(expr.const), kind)
        found += (" - " if expr.const < 0 else " + ") + constant if found else f"{'-' * (expr.const < 0)}{constant}"
    return found


def _compound_text(atom: Floor | Table, ranges: Ranges, names: Mapping[str, str], kind: str) -> str:
    if isinstance(atom, Table):
        return _table_text(atom, ranges, names, kind)
    return _floor_text(atom, ranges, names, kind)


def _table_text(atom: Table, ranges: Ranges, names: Mapping[str, str], kind: str) -> str:
    """A comparison for a step; else an array of constants, at an index kept inside of it."""
    inner = text(atom.inner, ranges, names, kind)
    if atom.is_step:
        return f"{kind}({inner} >= 1)"
    last = len(atom.values) - 1
    values = ", ".join(_number(value, kind) for value in atom.values)
    kept = f"at < 0 ? 0 : at > {last} ? {last} : at"
    return f"[]({kind} at) {{ constexpr {kind} values[] = {{{values}}}; return values[{kept}]; }}({inner})"


def _floor_text(atom: Floor, ranges: Ranges, names: Mapping[str, str], kind: str) -> str:
    inner = text(atom.inner, ranges, names, kind)
    unsigned = "Natural" if kind == "Int" else "unsigned"
    if atom.inner.bounds(ranges)[0] >= 0:
        return f"{kind}({unsigned}({inner}) / {atom.divisor}u)"
    shift = -atom.inner.bounds(ranges)[0] // atom.divisor + 1  # floors of negatives: moved up, and back
    moved = f"{inner} + {_number(shift * atom.divisor, kind)}"
    return f"({kind}({unsigned}({moved}) / {atom.divisor}u) - {_number(shift, kind)})"


def _number(value: int, kind: str) -> str:
    return f"{value}ll" if kind == "Int" else str(value)


def condition(bounds: Sequence[Bound], ranges: Ranges, names: Mapping[str, str], kind: str) -> str:
    """All bounds in C++."""
    parts = []
    for bound in bounds:
        value = text(bound.expr, ranges, names, kind)
        if bound.lo is not None:
            parts.append(f"{value} >= {bound.lo}")
        if bound.hi is not None:
            parts.append(f"{value} < {bound.hi}")
    return " && ".join(parts) or "true"
