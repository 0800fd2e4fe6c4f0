"""Folds of records: every component an array, combined and finished by the expressions of the monoid's entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ...blocks import record_layout
from ...dtypes import numpy_dtype
from ...expr import FUNCTIONS, MONOIDS, Call, Cast, Const, Expr, Monoid, Read
from ...expr.scans import Scan
from ...program import Operation
from ..device import Runner, Stored
from .folding import BOOL, Array, Scalar, compute_dtype, number, result_in, round_into, together
from .maps import SLAB_POINTS, Context
from .pieces import Piece, masked
from .scanning import doubled, places, results, scan_in, without
from .views import position_table, slab_shape, slabs

State = tuple[Array, ...]


def interpret(expr: Expr, named: Mapping[str, Array]) -> Any:
    """An expression of a monoid's entry over arrays of compute types; equal parts are computed once."""
    return _Interpreter(named).value(expr)


class _Interpreter:
    def __init__(self, named: Mapping[str, Array]) -> None:
        self.named = named
        self._known: dict[int, tuple[Expr, Array | Scalar]] = {}
        self._equal: dict[Expr, Array | Scalar] = {}

    def value(self, expr: Expr) -> Array | Scalar:
        if id(expr) not in self._known:
            if expr not in self._equal or isinstance(expr, Const):
                self._equal[expr] = self._compute(expr)
            self._known[id(expr)] = (expr, self._equal[expr])
        return self._known[id(expr)][1]

    def _compute(self, expr: Expr) -> Array | Scalar:
        if isinstance(expr, Const):
            return expr.value
        if isinstance(expr, Read):
            return self.named[expr.tensor]
        if isinstance(expr, Cast):
            value = np.asarray(self.value(expr.arg))
            rounded = np.empty(value.shape, numpy_dtype(expr.dtype))
            round_into(value, rounded)
            return rounded.astype(compute_dtype(expr.dtype), copy=False)
        assert isinstance(expr, Call)
        return self._call(expr.function, [self.value(arg) for arg in expr.args])

    def _call(self, function: str, args: list[Array | Scalar]) -> Array:
        entry = FUNCTIONS[function]
        branch = entry.result == "branch"
        compared = args[1:] if branch else args
        types = [arg.dtype for arg in compared if isinstance(arg, np.ndarray | np.generic)]
        dtype = together(function, types, [arg for arg in compared if not isinstance(arg, np.ndarray | np.generic)])
        arrays = [np.asarray(arg).astype(dtype, copy=False) for arg in compared]
        if branch:
            arrays.insert(0, np.asarray(args[0]) != 0)
        shape = np.broadcast_shapes(*(array.shape for array in arrays))
        out = np.empty(shape, result_in(function, dtype))
        entry.compute(*arrays, out=out)
        return out


# -- states ------------------------------------------------------------------------------------------------------------


def combined(monoid: Monoid, a: State, b: State) -> State:
    """Two states, element by element, ``a`` the earlier."""
    names = [component.name for component in monoid.components]
    named = {f"a.{name}": array for name, array in zip(names, a, strict=True)}
    named |= {f"b.{name}": array for name, array in zip(names, b, strict=True)}
    known = _Interpreter(named)
    return tuple(
        np.asarray(known.value(component.combine)).astype(array.dtype, copy=False)
        for component, array in zip(monoid.components, a, strict=True)
    )


def finished(monoid: Monoid, state: State) -> Array:
    """What is stored of a state."""
    assert monoid.finish is not None
    named = {f"r.{component.name}": array for component, array in zip(monoid.components, state, strict=True)}
    return np.asarray(interpret(monoid.finish, named))


def state_of(monoid: Monoid, array: Array) -> State:
    """The components of stored records, in their compute types: fields, places along the last axis, or all there is."""
    if monoid.packed and not array.dtype.names:
        parts = [array[..., place] for place in record_layout(monoid, array.shape[-1]).values()]
    else:
        parts = [array[name] for name in array.dtype.names] if array.dtype.names else [array]
    return tuple(part.astype(_wide(part.dtype), copy=False) for part in parts)


def store(monoid: Monoid, state: State, target: Array) -> None:
    """Write a state, finished unless the target holds records; ``target`` may be a view."""
    if monoid.packed or target.dtype.names:
        store_records(monoid, state, target)
    else:
        round_into(finished(monoid, state), target)


def store_records(monoid: Monoid, state: State, target: Array) -> None:
    """Write a state into an array of records."""
    if monoid.packed and not target.dtype.names:
        for place, array in zip(record_layout(monoid, target.shape[-1]).values(), state, strict=True):
            target[..., place] = array
    elif target.dtype.names:
        for name, array in zip(target.dtype.names, state, strict=True):
            round_into(array, target[name])
    else:
        round_into(state[0], target)


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "b":
        return BOOL
    if dtype.kind in "iu":
        return np.dtype(np.int64)
    return dtype if dtype == np.float64 else np.dtype(np.float32)


# -- folds -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordFold:
    """The fold of one operation whose record is more than a value: slab by slab, neighbours first."""

    op: Operation
    value: str
    context: Context
    out: Stored
    stored: str

    @property
    def monoid(self) -> Monoid:
        assert self.op.monoid is not None
        return MONOIDS[self.op.monoid]

    def bind(self, boxes: Sequence[Piece]) -> Runner:
        """Fold the points of all boxes into ``out``, in their order."""
        monoid, shape = self.monoid, self.out.array.shape
        dtypes = monoid.dtypes_for(self.value, self.stored)
        total = tuple(np.empty(shape, compute_dtype(dtype)) for dtype in dtypes)
        neutral = [
            number(component.identity_in(dtype), dtype)
            for component, dtype in zip(monoid.components, dtypes, strict=True)
        ]
        folded = [box for box in boxes if not box.empty]
        parts = [part for box in folded for part in self._box(box, neutral, alone=len(folded) == 1)]
        touched = [self._place(box) for box in boxes]

        def run() -> None:
            for array, start in zip(total, neutral, strict=True):
                array[...] = start
            for part in parts:
                part(total)
            for at in touched:
                state = tuple(array[at] for array in total)
                target = np.empty(state[0].shape, self.out.array.dtype)
                store(monoid, state, target)
                self.out.array[at] = target

        return run

    def _box(self, box: Piece, neutral: Sequence[Scalar], *, alone: bool) -> list[Any]:
        """Per slab of a box what folds it into the total, which is the identity where the box is folded ``alone``."""
        assert isinstance(box.body, Call)
        scan = scan_in(box)
        if scan is not None:
            return [self._scanned(box, scan)]
        axes = tuple(k for k, name in enumerate(box.names) if name in box.reduce)
        cuts = slabs(box.shape, range(len(box.dims)), SLAB_POINTS)
        kernels = []
        for lift, start in zip(box.body.args, neutral, strict=True):
            body = masked(lift, box.where, start.item() if isinstance(start, np.generic) else start)
            kernel = self.context.compiler(replace(box, body=body, where=())).finish(body)
            kernel.prepare({slab_shape(cut) for cut in cuts}, self.context.scratch)
            kernels.append(kernel)
        whole = self._place(box)
        first = alone and all(slab_shape(cut)[k] == box.shape[k] for cut in cuts for k in axes)
        return [self._slab(kernels, cut, axes, whole, first=first) for cut in cuts]

    def _scanned(self, box: Piece, scan: Scan) -> Any:
        """What folds into the total, for each index, the records of all points before it."""
        values = without(box, scan)
        assert isinstance(values.body, Call)
        kernels = [self.context.compiler(values).finish(lift) for lift in values.body.args]
        for kernel in kernels:
            kernel.prepare({values.shape}, self.context.scratch)
        whole = tuple(slice(0, n) for n in values.shape)
        taken, is_folded = places(box, scan)
        monoid, kept = self.monoid, results(box, scan)
        at = self._place(kept)

        def fold(total: State) -> None:
            rows = []
            for kernel, array in zip(kernels, total, strict=True):
                value = np.broadcast_to(np.asarray(kernel.at(whole)), values.shape).astype(array.dtype)
                rows.append(np.moveaxis(value, -1, 0))
            found = doubled(partial(combined, monoid), tuple(rows), backward=scan.backward)
            before = tuple(array[at] for array in total)
            after = combined(monoid, before, tuple(np.moveaxis(row[taken], 0, -1) for row in found))
            for array, old, new in zip(total, before, after, strict=True):
                array[at] = np.where(is_folded, new, old)

        return fold if is_folded.any() else lambda _: None

    def _slab(
        self, kernels: Sequence[Any], cut: Any, axes: tuple[int, ...], whole: tuple[Array, ...], *, first: bool
    ) -> Any:
        """What folds a slab into the total; ``first``: nothing else does."""
        monoid, shape = self.monoid, slab_shape(cut)
        kept = [k for k in range(len(shape)) if k not in axes]
        at = tuple(row[tuple(cut[k] if row.shape[n] > 1 else slice(None) for n, k in enumerate(kept))] for row in whole)
        count, rest = prod(shape[k] for k in axes), tuple(shape[k] for k in kept)
        by_rows = monoid.fold_rows

        def fold(total: State) -> None:
            rows = []
            for kernel, array in zip(kernels, total, strict=True):
                value = np.broadcast_to(np.asarray(kernel.at(cut)).astype(array.dtype), shape)
                rows.append(value.transpose([*axes, *kept]).reshape(count, *rest))
            state = _pairwise(monoid, tuple(rows)) if by_rows is None else by_rows(tuple(rows))
            found = state if first else combined(monoid, tuple(array[at] for array in total), state)
            for array, new in zip(total, found, strict=True):
                array[at] = new

        return fold

    def _place(self, box: Piece) -> tuple[Array, ...]:
        """Where the kept points of a box lie in the output, as index arrays of as many axes as are kept."""
        kept = [dim for dim in box.dims if dim[0] not in box.reduce]
        index = {
            name: np.arange(n).reshape([-1 if k == m else 1 for m in range(len(kept))])
            for k, (name, n) in enumerate(kept)
        }
        shape = tuple(n for _, n in kept)
        found = []
        for row, axis in zip(box.write, self.out.grid.axes, strict=True):
            at = np.broadcast_to(np.asarray(row.evaluate(index)), shape)
            found.append(position_table(axis)[at - axis.lo])
        return tuple(found)


def _pairwise(monoid: Monoid, rows: State) -> State:
    """Neighbours combined until one is left."""
    while len(rows[0]) > 1:
        even = len(rows[0]) // 2 * 2
        merged = combined(monoid, tuple(row[0:even:2] for row in rows), tuple(row[1:even:2] for row in rows))
        rows = tuple(np.concatenate([new, row[even:]]) for new, row in zip(merged, rows, strict=True))
    return tuple(row[0] for row in rows)
