"""Scalar expressions at many points at once, each function in the type that the language says it computes in.

Results broadcast to the points: what does not vary along a dimension stays thin along it. Functions that are not
exact are evaluated in float64 and rounded to their type, so that the oracle is the more precise side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import numpy_dtype
from ..errors import IndexOutside, TapestryError
from ..expr import FUNCTIONS, Bound, Call, Cast, Const, Expr, IndexValue, Inside, Read
from ..result_type import call_type, compute_type
from .points import Points
from .rounding import Rounding
from .values import Array, round_to, widen


class Value(NamedTuple):
    """Numbers, the dtype they are of, and whether they are made of constants only (see `tapestry.result_type`)."""

    array: Array
    dtype: str
    weak: bool = False


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _erf(x: Array) -> Array:
    from scipy.special import erf

    return np.asarray(erf(x))


def _philox(seed: Array, stream: Array, position: Array) -> Array:
    """Philox4x32-10 of words of 32 bits, products taken in halves of 16."""
    words = [np.asarray(whole).view(np.uint64) >> np.uint64(shift) for whole in (position, stream) for shift in (0, 32)]
    first, keyed, second, other = (word & np.uint64(0xFFFFFFFF) for word in words)
    key = np.asarray(seed).view(np.uint64)
    for turn in range(10):
        high, low = _halves(first, 0xD2511F53)
        up, down = _halves(second, 0xCD9E8D57)
        keys = [
            (((key >> np.uint64(shift)) & np.uint64(0xFFFFFFFF)) + np.uint64(turn * step & 0xFFFFFFFF))
            & np.uint64(0xFFFFFFFF)
            for shift, step in ((0, 0x9E3779B9), (32, 0xBB67AE85))
        ]
        first, keyed, second, other = up ^ keyed ^ keys[0], down, high ^ other ^ keys[1], low
    return (keyed * np.uint64(2**32) + first).astype(np.uint64).view(np.int64)


def _halves(word: Array, factor: int) -> tuple[Array, Array]:
    """The two words of a product of words."""
    below, above = word & np.uint64(0xFFFF), word >> np.uint64(16)
    little = below * np.uint64(factor)
    carried = above * np.uint64(factor) + (little >> np.uint64(16))
    low = (carried & np.uint64(0xFFFF)) * np.uint64(0x10000) + (little & np.uint64(0xFFFF))
    return carried >> np.uint64(16), low


def _where(condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition != 0, yes, no)


def _ordered(x: Array) -> Array:
    """The bits of a float without its sign, negative where it is: 0 for both zeros, NaN beyond infinity."""
    if x.dtype.kind != "f":
        return x
    bits = np.abs(x).view(f"i{x.itemsize}")
    size = np.where(np.isnan(x), np.array(np.nan, x.dtype).view(bits.dtype), bits).astype(np.int64)
    return np.where(x < 0, -size, size)


# Functions that NumPy has under another name, or not at all.
_OWN: dict[str, Callable[..., Array]] = {
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "where": _where,
    "philox": _philox,
    "ordered": _ordered,
}


def call(name: str, args: list[Value]) -> Value:
    """A function of the table."""
    function = FUNCTIONS[name]
    types = [(arg.dtype, arg.weak) for arg in args]
    dtype, weak = call_type(name, types)
    wide = numpy_dtype(compute_type(name, types))
    arrays = [arg.array.astype(wide) for arg in args]
    if function.result == "branch":
        arrays[0] = args[0].array
    elif function.result == "float" and not function.exact:
        arrays = [array.astype(np.float64) for array in arrays]
    body = _OWN.get(name) or getattr(np, name, None) or _table_body(name)
    found = np.asarray(body(*arrays))
    return Value(found if function.fixed else found.astype(wide), dtype, weak)


def _table_body(name: str) -> Callable[..., Array]:
    """The body that the entry itself gives, for functions that this module does not know."""

    def body(*args: Array) -> Array:
        out = np.empty(np.broadcast_shapes(*(arg.shape for arg in args)), np.result_type(*args))
        FUNCTIONS[name].compute(*args, out=out)
        return out

    return body


class Reader:
    """Evaluates the expressions of one operation at some of its points."""

    def __init__(
        self,
        where: tuple[Bound, ...],
        arrays: Mapping[str, Array],
        dtypes: Mapping[str, str],
        place: str,
        rounding: Rounding,
    ) -> None:
        self.where, self.arrays, self.dtypes, self.place = where, arrays, dtypes, place
        self.rounding = rounding

    def value(self, expr: Expr, points: Points) -> Value:
        """The value of an expression at every point, in its compute type.

        Innermost first, with a stack of values instead of Python's, so that expressions may be nested at any depth.
        """
        left: list[tuple[Expr, bool]] = [(expr, False)]
        values: list[Value] = []
        while left:
            node, ready = left.pop()
            args = node.args if isinstance(node, Call) else (node.arg,) if isinstance(node, Cast) else ()
            if args and not ready:
                left += [(node, True), *((arg, False) for arg in reversed(args))]
                continue
            taken = values[len(values) - len(args) :]
            del values[len(values) - len(args) :]
            values.append(self._of(node, taken, points))
        return values[0]

    def _of(self, node: Expr, args: list[Value], points: Points) -> Value:
        """The value of one node, those of its direct sub-expressions being known."""
        if isinstance(node, Const):
            return _constant(node.value, len(points.axes))
        if isinstance(node, Read):
            return Value(self.read(node, points), self.dtypes[node.tensor])
        if isinstance(node, IndexValue):
            return Value(points.value(node.index), "int64")
        if isinstance(node, Inside):
            return Value(points.inside(node.bounds), "bool")
        if isinstance(node, Cast):
            return Value(widen(round_to(args[0].array, node.dtype), node.dtype), node.dtype)
        assert isinstance(node, Call)
        if node.function == "within":
            self._demand_within(node, args[0].array, int(args[1].array.flat[0]), points)
            return args[0]
        found = call(node.function, args)
        return found._replace(array=self.rounding.function(node.function, found.array))

    def read(self, read: Read, points: Points) -> Array:
        """The wide value of a read: the element, or the fill where the guard fails.

        TapestryError where an element outside the tensor would be touched.
        """
        array, dtype = self.arrays[read.tensor], self.dtypes[read.tensor]
        guard = points.inside(read.guard)
        rows = []
        for axis, (expr, extent) in enumerate(zip(read.index, array.shape, strict=True)):
            row = points.value(expr)
            outside = (row < 0) | (row >= extent)
            if outside.any():
                self._refuse(read, axis, outside & guard & points.inside(self.where), points)
                row = np.clip(row, 0, max(0, extent - 1))
            rows.append(row)
        fill = widen(round_to(np.asarray(read.fill), dtype), dtype)
        if not array.size or not guard.any():
            return np.broadcast_to(fill, np.broadcast_shapes(guard.shape, *(row.shape for row in rows)))
        found = widen(array[tuple(rows)], dtype) if rows else widen(array, dtype).reshape((1,) * len(points.axes))
        return found if guard.all() else np.where(guard, found, fill)

    def _demand_within(self, expr: Call, index: Array, extent: int, points: Points) -> None:
        """IndexOutside for the first point at which an index of the data is outside of its axis."""
        wrong = np.argwhere(np.broadcast_to((index < 0) | (index >= extent), points.shape))
        if len(wrong):
            point = zip(points.names, points.axes, wrong[0], strict=True)
            at = " ".join(f"{name}={int(values[k])}" for name, values, k in point)
            value = int(np.broadcast_to(index, points.shape)[tuple(wrong[0])])
            raise IndexOutside(value, extent, f"{self.place}: {expr.args[0]} at {at}")

    def _refuse(self, read: Read, axis: int, wrong: Array, points: Points) -> None:
        if not wrong.any():
            return
        at = np.argwhere(np.broadcast_to(wrong, points.shape))[0]
        witness = {name: int(values[k]) for name, values, k in zip(points.names, points.axes, at, strict=True)}
        extent = self.arrays[read.tensor].shape[axis]
        raise TapestryError(
            f"{read} leaves the tensor along axis {axis}",
            where=self.place,
            sides={"reads": int(read.index[axis].evaluate(witness)), "holds": f"0:{extent}"},
            witness=" ".join(f"{name}={value}" for name, value in witness.items()),
            hint="guard the read (pad) or shrink the index space",
        )


def _constant(value: Any, rank: int) -> Value:
    """A number as Python has it: bool, int64 or float64."""
    kind, dtype = (np.bool_, "bool") if isinstance(value, bool) else (np.int64, "int32")
    if isinstance(value, float):
        kind, dtype = np.float64, "f32"
    return Value(np.full((1,) * rank, value, dtype=kind), dtype, True)
