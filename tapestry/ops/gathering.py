"""Reads and writes at places that the data say: rows of tables, elements along an axis, windows that move, segments.

``outside`` says what an index means that is outside of its axis: "error" (of the run, which names it), "clamp" (the
nearest), or a number, which then stands in for the element. See `tapestry.dsl.selecting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.element import Element, combine, element
from ..dsl.index import Index
from ..dsl.reducer import Reducer
from ..dsl.tensor import Tensor, read_element, unique_names
from ..dsl.trace import composite
from ..dtypes import DTYPES
from ..errors import UsageError
from ..expr import Affine
from .reduction import axis_position

Outside = Literal["error", "clamp"] | float
Start = Tensor | int


@door
def take(x: Tensor, ids: Tensor, axis: int | str = 0, *, outside: Outside = "error", name: str = "") -> Tensor:
    """The elements of ``x`` at the ids along one axis, as `numpy.take`: the axes of ``ids`` take that axis' place."""
    k = axis_position(x, axis)
    out = _named([*x.axes[:k], *ids.axes, *x.axes[k + 1 :]], [*x.shape[:k], *ids.shape, *x.shape[k + 1 :]])
    id_ = _at(ids, out[k : k + ids.ndim])
    found = _read(x, [*out[:k], id_, *out[k + ids.ndim :]], outside)
    return define("take", out, found, dtype=x.dtype, explicit=name)


@door
def embedding(ids: Tensor, table: Tensor, *, outside: Outside = "error", name: str = "") -> Tensor:
    """Row ``ids[...]`` of ``table`` [v, d] for each id: [..., d]."""
    if table.ndim != 2:
        raise UsageError("embedding takes a table [v, d]", sides={"table": repr(table)})
    return take(table, ids, 0, outside=outside, name=name or "embedding")


@door
def take_along_axis(x: Tensor, ids: Tensor, axis: int | str, *, outside: Outside = "error", name: str = "") -> Tensor:
    """One element of ``x`` for each of ``ids``, along one axis, as `numpy.take_along_axis` and torch's ``gather``.

    ``ids`` has the axes of ``x`` and no more elements along any other; UsageError where it has.
    """
    k = axis_position(x, axis)
    if ids.ndim != x.ndim or any(a > b for j, (a, b) in enumerate(zip(ids.shape, x.shape, strict=True)) if j != k):
        sides = {"x": repr(x), "ids": repr(ids)}
        raise UsageError(
            "take_along_axis takes ids with the axes of x, none longer but the one taken along", sides=sides
        )
    out = axes_of(ids)
    found = _read(x, [_at(ids, out) if j == k else i for j, i in enumerate(out)], outside)
    return define("take_along_axis", out, found, dtype=x.dtype, explicit=name)


@door
def dynamic_slice(x: Tensor, starts: Sequence[Start], sizes: Sequence[int], *, name: str = "") -> Tensor:
    """The window of ``sizes`` of ``x`` from ``starts``: integers, or tensors of one integer. [sizes].

    As `jax.lax.dynamic_slice`: a start from which the window would leave ``x`` is the nearest from which it does not.
    """
    _check_window(x, starts, sizes, "dynamic_slice")
    out = _named(x.axes, sizes)
    window = zip(out, starts, x.shape, sizes, strict=True)
    keys = [i + _start(start, extent - size) for i, start, extent, size in window]
    return define("dynamic_slice", out, read_element(x, tuple(keys), clamped=True), dtype=x.dtype, explicit=name)


@door
def dynamic_update_slice(x: Tensor, update: Tensor, starts: Sequence[Start], *, name: str = "") -> Tensor:
    """``x`` with the window from ``starts`` replaced by ``update``, the starts being as in `dynamic_slice`."""
    _check_window(x, starts, update.shape, "dynamic_update_slice")
    if update.dtype != x.dtype:
        raise UsageError("an update has the dtype of what it updates", sides={"x": repr(x), "update": repr(update)})
    out = axes_of(x)
    window = zip(out, starts, x.shape, update.shape, strict=True)
    keys = [i - _start(start, extent - size) for i, start, extent, size in window]
    value: Tensor = read_element(update, tuple(keys), fill=0)
    for key, size, extent in zip(keys, update.shape, x.shape, strict=True):
        if size < extent:
            value = combine("where", combine("logical_and", key >= 0, key < size), value, x[out])
    return define("dynamic_update_slice", out, value, dtype=x.dtype, explicit=name)


@door
def one_hot(ids: Tensor, k: int, *, dtype: str = "f32", name: str = "") -> Tensor:
    """1 where the last axis, of extent ``k``, is the id, else 0: [..., k]. An id outside of it has a row of zeros."""
    out = _named([*ids.axes, "k"], [*ids.shape, k])
    chosen = combine("equal", _at(ids, out[:-1]), out[-1])
    return define("one_hot", out, combine("where", chosen, 1, 0).astype(dtype), explicit=name)


@door
@composite
def scatter_add(
    x: Tensor,
    ids: Tensor,
    updates: Tensor,
    axis: int | str = 0,
    *,
    outside: Literal["error", "clamp", "drop"] = "error",
    name: str = "",
) -> Tensor:
    """``x`` with ``updates[t, ...]`` added at place ``ids[t]`` along one axis; equal ids add up, in their order.

    ``ids`` [t], ``updates`` the shape of ``x`` with t in place of that axis. ``outside`` "drop" adds an update nowhere
    whose id is outside of the axis.
    """
    k = axis_position(x, axis)
    total = _folded("sum", updates, ids, k, x.shape[k], outside, x.axes[k])
    if total.shape != x.shape:
        sides = {"x": repr(x), "updates": repr(updates)}
        raise UsageError("scatter_add takes updates with the axes of x but the one of the ids", sides=sides)
    i = axes_of(x)
    return define("add", i, x[i] + total[i], dtype=x.dtype)


@door
def segment_sum(
    x: Tensor,
    segments: Tensor,
    count: int,
    *,
    outside: Literal["error", "clamp", "drop"] = "drop",
    name: str = "",
) -> Tensor:
    """The sums of the rows of ``x`` [t, ...] that have the same segment: [count, ...], zeros for one without rows."""
    return _folded("sum", x, segments, 0, count, outside, "segment", name or "segment_sum")


@door
@composite
def cross_entropy(
    logits: Tensor, labels: Tensor, *, reduction: Literal["mean", "sum", "none"] = "mean", name: str = ""
) -> Tensor:
    """logsumexp(logits) - logits[label], over the last axis of ``logits`` [..., c], for integer ``labels`` [...].

    The mean over all labels, their sum, or one for each, in f32 at least. A label outside is an error of the run.
    """
    if labels.shape != logits.shape[:-1] or not logits.ndim:
        sides = {"logits": repr(logits), "labels": repr(labels)}
        raise UsageError("cross_entropy takes logits [..., c] and labels [...]", sides=sides)
    wide = logits if DTYPES[logits.dtype].compute == logits.dtype else logits.astype("f32")
    *outer, c = axes_of(wide)
    picked = define("picked", outer, _read(wide, [*outer, _at(labels, outer)], "error"), dtype=wide.dtype)
    total = define("total", outer, Reducer("logsumexp")[c](wide[(*outer, c)]), dtype=wide.dtype)
    loss = total - picked
    if reduction == "none":
        return loss
    from .reduction import mean

    return mean(loss) if reduction == "mean" else Reducer("sum")(loss)


def _folded(
    monoid: str, x: Tensor, ids: Tensor, k: int, places: int, outside: str, axis: str, name: str = ""
) -> Tensor:
    """out[..., v, ...] = fold over t of x[..., t, ...] where ids[t] == v."""
    if ids.ndim != 1 or k >= x.ndim or x.shape[k] != ids.shape[0]:
        sides = {"ids": repr(ids), "updates": repr(x)}
        raise UsageError("each id belongs to one update: ids [t], updates [..., t, ...]", sides=sides)
    others = [j for j in range(x.ndim) if j != k]
    names, extents = [x.axes[j] for j in others], [x.shape[j] for j in others]
    v, t, *rest = _named([axis, ids.axes[0], *names], [places, *ids.shape, *extents])
    id_ = _at(ids, [t])
    if outside == "clamp":
        id_ = combine("minimum", combine("maximum", id_, 0), places - 1)
    elif outside == "error":
        id_ = combine("within", id_, places)
    value = combine("where", combine("equal", id_, v), x[(*rest[:k], t, *rest[k:])], 0)
    return define("fold", [*rest[:k], v, *rest[k:]], Reducer(monoid)[t](value), dtype=x.dtype, explicit=name)


def _read(x: Tensor, keys: Sequence[Index | Tensor], outside: Outside) -> Tensor:
    if outside == "clamp":
        return read_element(x, tuple(keys), clamped=True)
    return read_element(x, tuple(keys), fill=None if isinstance(outside, str) else outside)


def _at(ids: Tensor, index: Sequence[Index]) -> Element:
    return element(ids[tuple(index)] if index else ids)


def _named(axes: Sequence[str], shape: Sequence[int]) -> list[Index]:
    """An index for each axis, of its name and extent."""
    names = unique_names(tuple(axes))
    return [Index(Affine.dim(name), {name: extent}) for name, extent in zip(names, shape, strict=True)]


def _start(start: Start, last: int) -> Element | int:
    """A start from which the window stays inside."""
    if isinstance(start, int):
        return min(max(start, 0), last)
    return combine("minimum", combine("maximum", element(start), 0), last)


def _check_window(x: Tensor, starts: Sequence[Start], sizes: Sequence[int], asked: str) -> None:
    wrong = len(starts) != x.ndim or len(sizes) != x.ndim
    if wrong or any(not 0 <= size <= extent for size, extent in zip(sizes, x.shape, strict=True)):
        sides = {"x": repr(x), "starts": len(starts), "sizes": list(sizes)}
        raise UsageError(f"{asked} takes a start for each axis, and a window no larger than the tensor", sides=sides)
    for start in starts:
        if isinstance(start, Tensor) and start.shape:
            raise UsageError(f"{asked} takes starts of one integer each", sides={"start": repr(start)})
