"""Folds of which the data say the points that count (`tapestry.selection`): gathers, and folds into chosen places.

Of a dimension that is selected from, each row of the other points has one candidate (see `picking`). The body is
evaluated there alone; where the candidate is not the value after all, the body is what folds to nothing. A fold over
the dimension is that one value; where the result keeps the dimension, each value is folded into the place that its
candidate says, one point after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from ...dtypes import DTYPES
from ...expr import Call, Expr, Read, depends_on
from ...result_type import Typing
from ...selection import conditions, counting, uncast
from ..device import Stored
from . import steps
from .evaluate import Kernel
from .folding import BOOL, Array, round_into
from .maps import SLAB_POINTS
from .picking import Candidates, PickingCompiler
from .views import Slices, slab_shape, slabs, strided, within


class Selecting:
    """A runner of a `SelectedFold`."""

    def __init__(self, step: steps.SelectedFold) -> None:
        self.step, self.piece, self.fold = step, step.piece, step.fold
        view = strided(step.out, self.piece.write, self.piece.dims)
        assert view is not None, "a fold goes to the points that count where the target is a strided view"
        self.view = view
        with step.context.scratch.frame():
            self.chosen = {one.dim: Candidates(self.piece, step.context, one) for one in step.chosen}
        self.scattered = [name for name in self.chosen if name not in self.piece.reduce]
        self.mapped = self.piece.reduce <= self.chosen.keys() and not self.scattered
        self.parts = self._slabs()
        needed = list(conditions(self.piece.body, self.fold.identity))
        equalities = len(needed) == len(self.chosen) and all(self._integer(one.value) for one in step.chosen)
        direct = self.mapped and not step.accumulate and (equalities or self._few(needed))
        self.found = None if equalities or not direct else self._held(needed)
        with step.context.scratch.frame():
            self.whole = self._prepared(self._whole() if self.mapped else self._compiler().finish(self.piece.body))
            self.alone = self._prepared(self._alone()) if direct else None
        dense = view.dtype == self.fold.accumulator and view.flags.c_contiguous
        self.total = view if dense or self.mapped else np.empty(view.shape, self.fold.accumulator)

    def __call__(self) -> None:
        inside = [candidates.find() for candidates in self.chosen.values()]
        if not self.mapped:
            self._fold()
            return
        found = self.alone is not None and (all(inside) if self.found is None else self.found())
        kernel = self.alone if self.alone is not None and found else self.whole
        for part in self.parts:
            kernel.at(part)

    # -- kernels -----------------------------------------------------------------------------------------------------

    def _compiler(self, **stored: Stored) -> PickingCompiler:
        context = self.step.context.reading(**stored)
        return PickingCompiler(self.piece.dims, context.stored, {name: one.index for name, one in self.chosen.items()})

    def _prepared(self, kernel: Kernel) -> Kernel:
        kernel.prepare({slab_shape(part) for part in self.parts}, self.step.context.scratch)
        return kernel

    def _slabs(self) -> list[Slices]:
        """Slabs of the points, whole along the dimensions that are selected from; folded ones are cut first."""
        names = self.piece.names
        shape = [1 if name in self.chosen else extent for name, extent in self.piece.dims]
        order = sorted(range(len(names)), key=lambda axis: names[axis] not in self.piece.reduce)
        whole = {k: slice(0, extent) for k, (name, extent) in enumerate(self.piece.dims) if name in self.chosen}
        return [tuple(whole.get(k, part) for k, part in enumerate(cut)) for cut in slabs(shape, order, 4 * SLAB_POINTS)]

    def _whole(self) -> Kernel:
        """The value that is selected, or what folds to nothing; onto what is there if it accumulates."""
        if not self.step.accumulate:
            return self._compiler().finish(self.piece.body, self.view)
        body = Call(self.fold.function, (Read("'out", self.piece.write), self.piece.body))
        return self._compiler(out=self.step.out).finish(body, self.view)

    def _alone(self) -> Kernel:
        """The value without its conditions, for when they hold everywhere."""
        value = counting(self.piece.body, self.fold.identity)
        read = uncast(value)
        if isinstance(read, Read) and self.step.context.stored[read.tensor].array.dtype == self.view.dtype:
            return self._compiler().raw(read, self.view)
        return self._compiler().finish(value, self.view)

    def _integer(self, value: Expr) -> bool:
        """Whether the index equals the value wherever the value is in the range."""
        return DTYPES[Typing(self.piece.dtypes).of(value)[0]].kind == "int"

    def _few(self, needed: Sequence[Expr]) -> bool:
        """Whether to see that conditions hold everywhere takes less than to choose."""
        spans = frozenset[str]().union(*map(depends_on, needed)) - self.chosen.keys()
        return spans <= frozenset[str]().union(*(depends_on(one.value) for one in self.step.chosen))

    def _held(self, needed: Sequence[Expr]) -> _Everywhere:
        spans = frozenset[str]().union(*map(depends_on, needed))
        dims = tuple((name, n if name in spans | self.chosen.keys() else 1) for name, n in self.piece.dims)
        shape = tuple(n if name in spans - self.chosen.keys() else 1 for name, n in dims)
        return _Everywhere(self, dims, shape, reduce(lambda a, b: Call("logical_and", (a, b)), needed))

    # -- folds -------------------------------------------------------------------------------------------------------

    def _fold(self) -> None:
        if not self.step.accumulate:
            self.total[...] = self.fold.identity
        elif self.total is not self.view:
            np.copyto(self.total, self.view)
        for part in self.parts:
            shape = tuple(
                1 if name in self.chosen else n for n, name in zip(slab_shape(part), self.piece.names, strict=True)
            )
            value = np.broadcast_to(np.asarray(self.whole.at(part)), shape)
            if value.dtype != self.total.dtype:
                value = value.astype(self.total.dtype)
            if self.scattered:
                self._scatter(value, part)
            else:
                self._reduce(value, part)
        if self.total is not self.view:
            round_into(self.total, self.view)

    def _reduce(self, value: Array, part: Slices) -> None:
        axes = tuple(k for k, name in enumerate(self.piece.names) if name in self.piece.reduce)
        target = self._kept(part, self.total)
        self.fold.ufunc(target, self.fold.ufunc.reduce(value, axis=axes, keepdims=True), out=target)

    def _kept(self, part: Slices, array: Array) -> Array:
        """The part of an array over the kept dimensions that a slab folds into."""
        found: Array = array[
            tuple(
                slice(None) if name in self.piece.reduce else cut
                for name, cut in zip(self.piece.names, part, strict=True)
            )
        ]
        return found

    def _scatter(self, value: Array, part: Slices) -> None:
        """Folds every value into its place, in the order of the points."""
        names, total = self.piece.names, self._kept(part, self.total)
        rows = [name for name in names if value.shape[names.index(name)] > 1 and name in self.piece.reduce]
        index = [within(self.chosen[name].index, part) for name in self.scattered]
        axes = [names.index(name) for name in self.scattered]
        moving = [k for k in range(len(names)) if any(found.shape[k] > 1 for found in index)]
        if len(axes) == 1 and all(names[k] in rows for k in moving) and moving:
            lines = [k for k, name in enumerate(names) if name in self.piece.reduce]
            ids = np.broadcast_to(index[0], [n if k in lines else 1 for k, n in enumerate(value.shape)]).reshape(-1)
            kept = [k for k in range(len(names)) if k not in lines and k != axes[0]]
            values = value.transpose(*lines, *kept, axes[0]).reshape(len(ids), -1)
            _by_rows(self.fold.ufunc, np.moveaxis(total, axes[0], 0), ids, values)
            return
        places: list[Array] = []
        for k, n in enumerate(total.shape):
            if k in axes:
                places.append(index[axes.index(k)])
            else:
                places.append(np.arange(n).reshape([n if j == k else 1 for j in range(total.ndim)]))
        self.fold.ufunc.at(total, tuple(np.broadcast_arrays(*places, value)[:-1]), value)


def _by_rows(ufunc: np.ufunc, total: Array, ids: Array, values: Array) -> None:
    """total[id] = total[id] folded with the values of its rows, in their order; ``values`` [rows, the rest flat]."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    sums = ufunc.reduceat(values[order], starts, axis=0)
    where = ordered[starts]
    total[where] = ufunc(total[where], sums.reshape(len(where), *total.shape[1:]))


class _Everywhere:
    """Whether a condition holds at all candidates."""

    def __init__(self, step: Selecting, dims: tuple[tuple[str, int], ...], shape: tuple[int, ...], held: Expr) -> None:
        self.truth = np.empty(shape, BOOL)
        context, index = step.step.context, {name: one.index for name, one in step.chosen.items()}
        whole = {k: slice(0, n) for k, (name, n) in enumerate(dims) if name in index}
        self.parts = [
            tuple(whole.get(k, part) for k, part in enumerate(cut))
            for cut in slabs(shape, range(len(shape)), SLAB_POINTS)
        ]
        with context.scratch.frame():
            self.kernel = PickingCompiler(dims, context.stored, index).finish(held, self.truth)
            self.kernel.prepare({slab_shape(part) for part in self.parts}, context.scratch)

    def __call__(self) -> bool:
        for part in self.parts:
            self.kernel.at(part)
        return bool(self.truth.all())
