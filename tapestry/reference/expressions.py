"""Scalar expressions at many points at once.

Results broadcast to the points: what does not vary along a dimension stays thin along it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import TapestryError
from ..expr import FUNCTIONS, Bound, Call, Cast, Const, Expr, IndexValue, Inside, Read
from .points import Points
from .values import Array, round_to, widen


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _erf(x: Array) -> Array:
    from scipy.special import erf

    return np.asarray(erf(x))


def _where(condition: Array, yes: Array, no: Array) -> Array:
    return np.where(condition != 0, yes, no)


# Functions that NumPy has under another name, or not at all.
_OWN: dict[str, Callable[..., Array]] = {"rsqrt": _rsqrt, "sigmoid": _sigmoid, "erf": _erf, "where": _where}


def call(name: str, args: list[Array]) -> Array:
    """A function of the table on wide arrays. Truth values count as 0 and 1; ``float`` functions compute in float64."""
    function = FUNCTIONS[name]
    if function.result == "float":
        args = [arg.astype(np.float64) for arg in args]
    elif function.result == "same":
        args = [arg.astype(np.int64) if arg.dtype == np.bool_ else arg for arg in args]
    compute = _OWN.get(name) or getattr(np, name)
    return np.asarray(compute(*args))


class Reader:
    """Evaluates the expressions of one operation at some of its points."""

    def __init__(
        self, where: tuple[Bound, ...], arrays: Mapping[str, Array], dtypes: Mapping[str, str], place: str
    ) -> None:
        self.where, self.arrays, self.dtypes, self.place = where, arrays, dtypes, place

    def value(self, expr: Expr, points: Points) -> Array:
        """The wide value of an expression at every point."""
        if isinstance(expr, Const):
            return _wide_constant(expr.value).reshape((1,) * len(points.axes))
        if isinstance(expr, Read):
            return self.read(expr, points)
        if isinstance(expr, IndexValue):
            return points.value(expr.index)
        if isinstance(expr, Inside):
            return points.inside(expr.bounds)
        if isinstance(expr, Cast):
            return widen(round_to(self.value(expr.arg, points), expr.dtype), expr.dtype)
        assert isinstance(expr, Call)
        return call(expr.function, [self.value(arg, points) for arg in expr.args])

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
        fill = np.asarray(read.fill).astype(widen(array[:0] if array.ndim else array, dtype).dtype)
        if not array.size or not guard.any():
            return np.broadcast_to(fill, np.broadcast_shapes(guard.shape, *(row.shape for row in rows)))
        found = widen(array[tuple(rows)], dtype) if rows else widen(array, dtype).reshape((1,) * len(points.axes))
        return found if guard.all() else np.where(guard, found, fill)

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


def _wide_constant(value: Any) -> Array:
    if isinstance(value, bool):
        return np.asarray(value)
    return np.asarray(value, dtype=np.int64 if isinstance(value, int) else np.float64)
