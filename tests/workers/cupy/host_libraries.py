"""What libraries are asked for, computed by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapestry.workers.cupy.dense import dense_steps
from tapestry.workers.cupy.gemm import Gemm, Side
from tapestry.workers.cupy.machine import Convolution, Matrices, Strided

from .host_arrays import host_bytes, strided


def operands(c: Convolution) -> tuple[Strided, Strided, Strided]:
    return c.x, c.w, c.y


def convolve(c: Convolution, layout: int) -> None:
    """Tap after tap, in f32 or f64."""
    assert all(map(c.even, range(len(c.windows))))
    dense = dense_steps(c.w.extents, layout)
    assert all(n == 1 or a == b for n, a, b in zip(c.w.extents, c.w.steps, dense, strict=True))
    stored = dict(zip("xwy", map(strided, operands(c)), strict=True))
    wide = np.float64 if c.x.array.dtype == np.float64 else np.float32
    parts = {n: _by_group(a, c.groups, n) for n, a in stored.items()}
    x, w, y = (np.zeros(a.shape, wide) if n == c.computed else a.astype(wide) for n, a in parts.items())
    for taps in np.ndindex(w.shape[3:]):
        spans = [_span(c, k, tap) for k, tap in enumerate(taps)]
        xs, ys = ((..., *(span[side] for span in spans)) for side in (0, 1))
        part = (..., *taps)
        if c.computed == "y":
            y[ys] += np.einsum("gnc...,gkc->gnk...", x[xs], w[part])
        elif c.computed == "x":
            x[xs] += np.einsum("gnk...,gkc->gnc...", y[ys], w[part])
        else:
            w[part] = np.einsum("gnct,gnkt->gkc", *(a.reshape(*a.shape[:3], -1) for a in (x[xs], y[ys])))
    parts[c.computed][...] = {"x": x, "w": w, "y": y}[c.computed]


def _by_group(array: np.ndarray[Any, Any], groups: int, name: str) -> np.ndarray[Any, Any]:
    """The same elements [group, n, channel, ..], of filters [group, k, c, ..]."""
    axis = 0 if name == "w" else 1
    shape, steps = list(array.shape), list(array.strides)
    shape[axis : axis + 1] = groups, shape[axis] // groups
    steps[axis : axis + 1] = steps[axis] * shape[axis + 1], steps[axis]
    return np.moveaxis(np.lib.stride_tricks.as_strided(array, shape, steps), axis, 0)


def _span(c: Convolution, k: int, tap: int) -> tuple[slice, slice]:
    """The elements of x that a tap meets along a direction, and those of y that it meets them for."""
    window, extent, count = c.windows[k], c.x.extents[k + 2], c.y.extents[k + 2]
    at = [window.stride * p + window.dilation * tap - window.before for p in range(count)]
    met = [p for p, place in enumerate(at) if 0 <= place < extent]
    if not met:
        return slice(0, 0), slice(0, 0)
    return slice(at[met[0]], at[met[-1]] + 1, window.stride), slice(met[0], met[-1] + 1)


def multiply(gemm: Gemm, batch: int) -> None:
    """What cuBLAS is asked for: column after column, ``lead`` elements apart."""
    wide = np.float64 if gemm.a.x.array.dtype == np.float64 else np.float32
    a = _by_columns(gemm.a, batch, gemm.rows, gemm.folded).astype(wide)
    b = _by_columns(gemm.b, batch, gemm.folded, gemm.columns).astype(wide)
    added = 0 if gemm.added is None else _by_columns(gemm.added, batch, gemm.rows, gemm.columns).astype(wide)
    found = a @ b + added
    _by_columns(gemm.out, batch, gemm.rows, gemm.columns)[...] = np.maximum(found, 0) if gemm.positive else found


def _by_columns(side: Side, batch: int, rows: int, columns: int) -> np.ndarray[Any, Any]:
    x: Matrices = side.x
    lines, length = (rows, columns) if side.transposed else (columns, rows)
    assert side.lead >= max(1, length)
    item = x.array.dtype.itemsize
    flat = host_bytes(x.array).view(x.array.dtype)
    start = x.offset + batch * x.batch
    assert start + (lines - 1) * side.lead + length <= flat.size, "a matrix leaves its array"
    base = flat[start : start + 1]
    found = np.lib.stride_tricks.as_strided(base, (lines, length), (side.lead * item, item))
    return found if side.transposed else found.T
