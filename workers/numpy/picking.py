"""Reads at candidates: along a dimension that is selected from, the one value that may count for each other point.

A candidate is the value that the index has to equal, brought into the range of the dimension, so that what is read
there is stored. Reads along such a dimension take whole rows where they can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...errors import IndexOutside
from ...expr import Call, Const, Expr, Read, depends_on, walk
from ...selection import Selection, counting, uncast
from ..device import Stored
from .evaluate import Compiler, Kernel, Slot, Step
from .folding import INT, Array, Scalar
from .maps import SLAB_POINTS, Context
from .pieces import Piece
from .views import Place, slab_shape, slabs, strided


class Candidates:
    """The candidates of one dimension: ``index`` has the piece's axes, 1 long where they do not matter."""

    def __init__(self, piece: Piece, context: Context, chosen: Selection) -> None:
        self.piece, self.context, self.value = piece, context, chosen.value
        self.dim, self.last = chosen.dim, piece.ranges[chosen.dim][1] - 1
        self.index, self._run = self._evaluating(chosen.value)

    def find(self) -> bool:
        """Evaluate them; whether each was in the range. `IndexOutside` for one that has to be within its axis."""
        try:
            self._run()
        except IndexOutside as error:
            raise self._placed() or error from None
        if not self.index.size or (self.index.min() >= 0 and self.index.max() <= self.last):
            return True
        np.clip(self.index, 0, self.last, out=self.index)
        return False

    def _evaluating(self, value: Expr) -> tuple[Array, Callable[[], None]]:
        """An array for a value, and what fills it."""
        mine = depends_on(value)
        dims = tuple((name, extent if name in mine else 1) for name, extent in self.piece.dims)
        found = np.empty([extent for _, extent in dims], INT)
        parts = slabs(found.shape, range(found.ndim), SLAB_POINTS)
        kernel = Compiler(dims, self.context.stored).finish(value, found)
        kernel.prepare({slab_shape(part) for part in parts}, self.context.scratch)

        def run() -> None:
            for part in parts:
                kernel.at(part)

        return found, run

    def _placed(self) -> IndexOutside | None:
        """The error with the place of the first value that is outside."""
        for node in walk(self.value):
            limit = uncast(node.args[1]) if isinstance(node, Call) and node.function == "within" else None
            if not isinstance(node, Call) or not isinstance(limit, Const):
                continue
            with self.context.scratch.frame():
                values, run = self._evaluating(node.args[0])
                run()
            wrong = np.argwhere((values < 0) | (values >= limit.value))
            if len(wrong):
                at = dict(zip(self.piece.names, map(int, wrong[0]), strict=True))
                return IndexOutside(
                    int(values[tuple(wrong[0])]), int(limit.value), self._spoken(node.args[0], at), self._reads()
                )
        return None

    def _spoken(self, value: Expr, at: Mapping[str, int]) -> str:
        """Where a value stands: the element that it is, or is computed from."""
        read = next((node for node in walk(value) if isinstance(node, Read)), None)
        if read is None:
            return "an index"
        place = f"{read.tensor}[{', '.join(str(row.evaluate(at)) for row in read.index)}]"
        return place if uncast(value) == read else f"the index computed from {place}"

    def _reads(self) -> str:
        """The tensors that are read along the dimension."""
        reads = [node for node in walk(counting(self.piece.body, 0)) if isinstance(node, Read)]
        return ", ".join(dict.fromkeys(read.tensor for read in reads if any(self.dim in r.dims for r in read.index)))


class PickingCompiler(Compiler):
    """Expressions in which some dimensions are candidates, arrays over the others; slabs are whole along them."""

    def __init__(
        self, dims: Sequence[tuple[str, int]], stored: Mapping[str, Stored], index: Mapping[str, Array]
    ) -> None:
        super().__init__(dims, stored)
        self.index = {name: self.leaf(array) for name, array in index.items()}

    def raw(self, read: Read, out: Array) -> Kernel:
        """A read alone, as it is stored."""
        self._land(self._picked(read), out)
        return self.kernel

    def _along(self, name: str) -> Slot:
        return self.index[name] if name in self.index else super()._along(name)

    def _read(self, read: Read) -> Slot | Scalar:
        if not any(row.dims & self.index.keys() for row in read.index):
            return super()._read(read)
        return self._widened(self._picked(read))

    def _picked(self, read: Read) -> Slot | Scalar:
        stored = self.stored[read.tensor]
        view = None if read.guard else strided(stored, read.index, self.dims)
        if view is None or not view.size:
            return self._gather(read, stored)
        names = [name for name, _ in self.dims]
        axes = [k for k, name in enumerate(names) if name in self.index and view.shape[k] > 1]
        if not axes:
            return self.leaf(view)
        table, index = self.leaf(view), [self.index[names[k]] for k in axes]
        spans = [any(one.spans[k] for one in index) or (table.spans[k] and k not in axes) for k in range(len(names))]
        out = self.temp(tuple(spans), view.dtype)
        self.kernel.steps.append(Step(_taking(axes), (table, *index), out))
        return out


def _taking(axes: Sequence[int]) -> Callable[..., None]:
    """``f(table, *index, out=)``: the elements of a table at an index along each of the axes."""

    def take(table: Array, *index: Array, out: Array) -> None:
        moving = [k for k in range(table.ndim) if any(one.shape[k] > 1 for one in index)]
        own = [k for k in range(table.ndim) if table.shape[k] > 1 and k not in axes]
        if len(axes) == 1 and not set(moving) & set(own):
            _take_rows(table, axes[0], own, moving, index[0], out)
            return
        places = list(np.ogrid[tuple(slice(0, n) for n in table.shape)])
        for axis, one in zip(axes, index, strict=True):
            places[axis] = one
        out[...] = table[tuple(places)]

    return take


def _take_rows(table: Array, axis: int, own: list[int], moving: list[int], index: Array, out: Array) -> None:
    """Rows as they lie: the axes of the index take the place of the axis of the table."""
    before = sorted(k for k in own if k < axis)
    after = sorted(k for k in own if k > axis)
    lines = table.transpose(*before, axis, *after, *(k for k in range(table.ndim) if k not in (*own, axis)))
    lines = lines[_first(table.ndim - len(own) - 1)]
    rows = index[tuple(slice(None) if k in moving else 0 for k in range(index.ndim))]
    order = [*before, *moving, *after]
    target = out.transpose(*order, *(k for k in range(out.ndim) if k not in order))
    target = target[_first(out.ndim - len(order))]
    if lines.flags.c_contiguous and target.flags.c_contiguous:
        np.take(lines, rows, axis=len(before), out=target, mode="clip")
    else:
        place: Place = (*[slice(None)] * len(before), rows)
        target[...] = lines[place]


def _first(axes: int) -> Place:
    """The only element along so many last axes."""
    return (..., *[0] * axes)
