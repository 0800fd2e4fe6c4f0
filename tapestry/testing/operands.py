"""Operands of generated operations: a shape, and what reading it at an index means. Views map one to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..dtypes import DTYPES
from ..expr import Affine, Bound, Call, Cast, Const, Expr, Inside, Read, rewrite
from ..program import Tensor
from .choices import Choices

Index = tuple[Affine, ...]


@dataclass(frozen=True)
class Operand:
    """Something that can be read. No float value exceeds ``bound`` in magnitude."""

    shape: tuple[int, ...]
    dtype: str
    at: Callable[[Index], Expr]
    bound: float = 1.0

    @property
    def kind(self) -> str:
        return DTYPES[self.dtype].kind


def unsigned(dtype: str) -> bool:
    """Whether a dtype has no room for negative numbers, which bodies are full of."""
    return DTYPES[dtype].kind == "int" and not DTYPES[dtype].ends[0]


def whole(tensor: Tensor, bound: float = 1.0) -> Operand:
    """The tensor itself; integers without a sign as wider ones."""

    def at(index: Index) -> Expr:
        read = Read(tensor.name, index)
        return Cast("int64", read) if unsigned(tensor.dtype) else read

    return Operand(tensor.shape, tensor.dtype, at, bound)


def guarded(expr: Expr, bounds: tuple[Bound, ...], fill: float | int | bool) -> Expr:
    """The expression where the bounds hold, else ``fill``; its reads touch nothing elsewhere."""
    if isinstance(expr, Read) and not expr.guard:
        return replace(expr, guard=bounds, fill=fill)

    def leaf(node: Expr) -> Expr:
        return replace(node, guard=(*node.guard, *bounds)) if isinstance(node, Read) else node

    return Call("where", (Inside(bounds), rewrite(expr, leaf), Const(fill)))


def transpose(x: Operand, order: Sequence[int]) -> Operand:
    """Axis k is axis order[k] of x."""
    shape = tuple(x.shape[k] for k in order)
    return replace(x, shape=shape, at=lambda index: x.at(tuple(index[order.index(k)] for k in range(len(order)))))


def along(x: Operand, axis: int, extent: int, position: Callable[[Affine], Affine]) -> Operand:
    """Axis ``axis`` gets a new extent; its element i is element position(i) of x."""
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    return replace(x, shape=shape, at=lambda index: x.at((*index[:axis], position(index[axis]), *index[axis + 1 :])))


def padded(x: Operand, axis: int, before: int, after: int, fill: float | int | bool) -> Operand:
    """``before`` and ``after`` elements of ``fill`` around an axis."""
    extent = x.shape[axis]
    moved = along(x, axis, before + extent + after, lambda i: i - before)
    return replace(moved, at=lambda index: guarded(moved.at(index), (Bound(index[axis] - before, 0, extent),), fill))


def concatenated(x: Operand, y: Operand, axis: int) -> Operand:
    """x then y along an axis; the same dtype and shape otherwise."""
    seam, blank = x.shape[axis], {"float": 0.0, "int": 0, "bool": False}[x.kind]
    right = along(y, axis, y.shape[axis], lambda i: i - seam)

    def at(index: Index) -> Expr:
        left_side = (Bound(index[axis], None, seam),)
        right_side = (Bound(index[axis], seam, None),)
        sides = guarded(x.at(index), left_side, blank), guarded(right.at(index), right_side, blank)
        return Call("where", (Inside(left_side), *sides))

    shape = (*x.shape[:axis], seam + y.shape[axis], *x.shape[axis + 1 :])
    return replace(x, shape=shape, at=at, bound=max(x.bound, y.bound))


def reshaped(x: Operand, shape: tuple[int, ...]) -> Operand:
    """The same elements, row-major, by floor and mod."""

    def at(index: Index) -> Expr:
        flat = Affine()
        for i, extent in zip(index, shape, strict=True):
            flat = flat * extent + i
        rows: list[Affine] = []
        for extent in reversed(x.shape):
            rows.append(flat % extent)
            flat = flat // extent
        return x.at(tuple(reversed(rows)))

    return replace(x, shape=shape, at=at)


def broadcast(x: Operand, shape: tuple[int, ...]) -> Operand:
    """NumPy's rule: leading axes are added, axes of extent 1 repeat."""
    lead = len(shape) - len(x.shape)

    def at(index: Index) -> Expr:
        return x.at(tuple(Affine() if n == 1 else i for n, i in zip(x.shape, index[lead:], strict=True)))

    return replace(x, shape=shape, at=at)


def some_view(ch: Choices, x: Operand) -> Operand:
    """A random view of an operand."""
    if not x.shape:
        return x
    axis = ch.integer(0, len(x.shape) - 1)
    extent = x.shape[axis]
    what = ch.pick(("transpose", "reverse", "slice", "reshape", "pad", "repeat", "concat"))
    if what == "transpose":
        return transpose(x, ch.shuffled(range(len(x.shape))))
    if what == "reverse":
        return along(x, axis, extent, lambda i: extent - 1 - i)
    if what == "slice":
        step, start = ch.integer(1, 3), ch.integer(0, extent - 1)
        stop = ch.integer(start + 1, extent)
        return along(x, axis, -(-(stop - start) // step), lambda i: i * step + start)
    if what == "reshape":
        return reshaped(x, _refactored(ch, x.shape))
    if what == "pad":
        return padded(x, axis, ch.integer(0, 2), ch.integer(0, 2), _fill(ch, x))
    if what == "repeat" and len(x.shape) < 4 and prod(x.shape) <= 81:
        return broadcast(x, (ch.integer(1, 4), *x.shape))
    return concatenated(x, along(x, axis, extent, lambda i: extent - 1 - i), axis)


def _fill(ch: Choices, x: Operand) -> float | int | bool:
    choices: dict[str, tuple[float | int | bool, ...]] = {
        "float": (0.0, 0.5, -1.0),
        "int": (0, 3, -7),
        "bool": (False, True),
    }
    return ch.pick(choices[x.kind])


def _refactored(ch: Choices, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape of the same size: merge all, or split off a divisor."""
    size = prod(shape)
    divisors = [k for k in range(1, size + 1) if size % k == 0]
    first = ch.pick(divisors)
    return (first, size // first) if ch.chance(70) else (size,)
