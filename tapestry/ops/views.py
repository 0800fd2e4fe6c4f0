"""Views: transpose, slice, reshape, concat, pad, broadcast, reverse. They compute nothing.

A view is another function from indices to elements. It composes into the index projections of whoever reads it; it is
copied only where it is an output, or where a block kernel cannot take it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal

from ..dsl.door import door, spoken
from ..dsl.guard import fill_for, guard, shielded
from ..dsl.tensor import Tensor
from ..errors import UsageError
from ..expr import Affine, Bound, Call, Expr, Inside
from ..literals import python_number
from .reduction import axis_position

Index = tuple[Affine, ...]


@door
def transpose(x: Tensor, order: Sequence[int | str] | None = None) -> Tensor:
    """Axes in another order, by position or name; all reversed when ``order`` is None."""
    axes = tuple(range(x.ndim))[::-1] if order is None else tuple(axis_position(x, axis) for axis in order)
    if sorted(axes) != list(range(x.ndim)):
        raise UsageError(f"transpose{tuple(order or ())} is not an order of the axes", sides={"tensor": repr(x)})

    def at(index: Index) -> Expr:
        return x.at(tuple(index[axes.index(k)] for k in range(x.ndim)))

    return x.view(tuple(x.shape[k] for k in axes), tuple(x.axes[k] for k in axes), at)


@door
def reshape(x: Tensor, shape: Sequence[int], *, axes: Sequence[str] | None = None) -> Tensor:
    """The same elements in row-major order; one extent may be -1. ``axes`` names the new axes."""
    new = _full_shape(x, tuple(shape))
    names = tuple(axes) if axes is not None else _kept_names(x, new)
    _check_names("reshape", names, new)

    def at(index: Index) -> Expr:
        return x.at(_split(_merge(index, new), x.shape))

    return x.view(new, names, at)


def _check_names(function: str, names: Sequence[str], shape: Sequence[int]) -> None:
    """UsageError unless there is one identifier for each axis."""
    if len(names) != len(shape):
        sides = {"shape": list(shape), "axes": list(names)}
        raise UsageError(f"{function} names {len(names)} axes for {len(shape)}", sides=sides)
    wrong = [name for name in names if not name.isidentifier()]
    if wrong:
        raise UsageError(f"{function}: {wrong[0]!r} is not the name of an axis", hint="an identifier for each axis")


def _full_shape(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    rest = prod(extent for extent in shape if extent != -1)
    full = tuple(prod(x.shape) // rest if extent == -1 and rest else extent for extent in shape)
    if shape.count(-1) > 1 or any(extent < 0 for extent in full) or prod(full) != prod(x.shape):
        sides = {"tensor": f"{x!r} ({prod(x.shape)} elements)", "shape": list(shape)}
        raise UsageError("reshape changes the number of elements", sides=sides)
    return full


def _kept_names(x: Tensor, shape: tuple[int, ...]) -> tuple[str, ...]:
    """Axes that survive at the front and at the back keep their names."""
    front = next((k for k, (a, b) in enumerate(zip(x.shape, shape, strict=False)) if a != b), min(x.ndim, len(shape)))
    most = min(x.ndim, len(shape)) - front
    back = next((k for k in range(most) if x.shape[-1 - k] != shape[-1 - k]), most)
    kept = (*x.axes[:front], *x.axes[x.ndim - back :])
    free = [f"d{k}" for k in range(front, front + len(shape) + x.ndim) if f"d{k}" not in kept]
    return (*x.axes[:front], *free[: len(shape) - back - front], *x.axes[x.ndim - back :])


def _merge(index: Index, shape: Sequence[int]) -> Affine:
    total = Affine.of(0)
    for i, extent in zip(index, shape, strict=True):
        total = total * extent + i
    return total


def _split(flat: Affine, shape: Sequence[int]) -> Index:
    if not prod(shape):  # there is no element to find
        return tuple(Affine.of(0) for _ in shape)
    found: list[Affine] = []
    stride = prod(shape)
    for k, extent in enumerate(shape):
        stride //= extent
        row = flat // stride
        found.append(row if k == 0 else row % extent)
    return tuple(found)


def slice_view(x: Tensor, keys: tuple[Any, ...]) -> Tensor:
    """NumPy's basic indexing: integers, slices with any step, None and ``...``."""
    plan = _slice_plan(x, keys)
    shape, names = [], []
    for axis, (_, _, extent) in plan:
        if extent is not None:
            shape.append(extent)
            names.append("new" if axis is None else x.axes[axis])

    def at(index: Index) -> Expr:
        rest = iter(index)
        found: list[Affine] = []
        for axis, (start, step, extent) in plan:
            position = Affine.of(start) if extent is None else next(rest) * step + start
            if axis is not None:
                found.append(position)
        return x.at(tuple(found))

    return x.view(tuple(shape), tuple(names), at)


Step = tuple[int, int, int | None]  # start, step, extent; no extent where an integer drops the axis


def _slice_plan(x: Tensor, keys: tuple[Any, ...]) -> list[tuple[int | None, Step]]:
    """What each key does, in order: the axis it speaks of (None for a new one) and its start, step and extent."""
    used = sum(key is not None and key is not Ellipsis for key in keys)
    if used > x.ndim or sum(key is Ellipsis for key in keys) > 1:
        raise UsageError(f"{used} keys for the {x.ndim} axes of {x!r}", hint="one for each axis, and one ... at most")
    if not any(key is Ellipsis for key in keys):
        keys = (*keys, Ellipsis)
    plan: list[tuple[int | None, Step]] = []
    axis = 0
    for key in keys:
        if key is None:
            plan.append((None, (0, 0, 1)))
            continue
        for one in [slice(None)] * (x.ndim - used) if key is Ellipsis else [key]:
            plan.append((axis, _step(x, axis, one)))
            axis += 1
    return plan


def _step(x: Tensor, axis: int, key: Any) -> Step:
    extent = x.shape[axis]
    if isinstance(key, slice):
        start, stop, step = _slice(x, axis, key)
        count = max(0, -((start - stop) // step))  # `len` refuses more than a machine word holds
        return start, step, count
    position = python_number(key)
    if type(position) is int and -extent <= position < extent:
        return position % extent, 0, None
    raise UsageError(
        f"{x!r}: {spoken(key)} is not an index of axis {x.axes[axis]}",
        hint="integers, slices, None, ...; or tp.indices",
    )


def _slice(x: Tensor, axis: int, key: slice) -> tuple[int, int, int]:
    """Start, stop and step of a slice, as Python means them."""
    ends = [None if end is None else python_number(end) for end in (key.start, key.stop, key.step)]
    given = (key.start, key.stop, key.step)
    if any(end is not None and type(number) is not int for end, number in zip(given, ends, strict=True)):
        text = ":".join("" if end is None else spoken(end) for end in given)
        raise UsageError(f"{x!r}: the slice {text} of axis {x.axes[axis]} is not made of integers")
    if ends[2] == 0:
        raise UsageError(f"{x!r}: a slice of axis {x.axes[axis]} has step 0")
    return slice(*ends).indices(x.shape[axis])


@door
def reverse(x: Tensor, axis: int | str) -> Tensor:
    """The elements along one axis in reverse order."""
    k = axis_position(x, axis)
    return slice_view(x, (*[slice(None)] * k, slice(None, None, -1)))


flip = reverse


@door
def expand_dims(x: Tensor, positions: Sequence[int], names: Sequence[str] | None = None) -> Tensor:
    """New axes of extent 1, at these positions of the result."""
    rank = x.ndim + len(positions)
    places = [p % rank for p in positions if -rank <= p < rank]
    if len(set(places)) != len(positions):
        sides = {"tensor": repr(x), "positions": list(positions)}
        raise UsageError(f"expand_dims: the positions are not distinct ones of {rank} axes", sides=sides)
    _check_names("expand_dims", names or ["new"] * len(places), places)
    given = dict(zip(places, names or ["new"] * len(places), strict=True))
    old = iter(range(x.ndim))
    origin = [None if k in places else next(old) for k in range(rank)]

    def at(index: Index) -> Expr:
        return x.at(tuple(i for i, source in zip(index, origin, strict=True) if source is not None))

    shape = tuple(1 if source is None else x.shape[source] for source in origin)
    axes = tuple(given[k] if source is None else x.axes[source] for k, source in enumerate(origin))
    return x.view(shape, axes, at)


@door
def squeeze(x: Tensor, axis: int | str) -> Tensor:
    """Without an axis of extent 1."""
    k = axis_position(x, axis)
    if x.shape[k] != 1:
        raise UsageError(f"squeeze: axis {x.axes[k]} has extent {x.shape[k]}, not 1", sides={"tensor": repr(x)})
    return slice_view(x, (*[slice(None)] * k, 0))


@door
def broadcast_to(x: Tensor, shape: Sequence[int], *, axes: Sequence[str] | None = None) -> Tensor:
    """x repeated along new leading axes and along axes of extent 1."""
    extra = len(shape) - x.ndim
    if any(extent < 0 for extent in shape):
        raise UsageError(f"broadcast_to has the extents {list(shape)}", hint="extents are 0 or more")
    if extra < 0 or any(mine not in (1, wanted) for mine, wanted in zip(x.shape, shape[max(extra, 0) :], strict=True)):
        raise UsageError(f"{x!r} does not broadcast to {list(shape)}")

    def at(index: Index) -> Expr:
        own = index[extra:]
        return x.at(tuple(Affine.of(0) if extent == 1 else i for i, extent in zip(own, x.shape, strict=True)))

    names = tuple(axes) if axes is not None else (*(f"d{k}" for k in range(extra)), *x.axes)
    _check_names("broadcast_to", names, shape)
    return x.view(tuple(shape), names, at)


@door
def pad(
    x: Tensor,
    /,
    width: int | Sequence[int | Sequence[int]] | None = None,
    *,
    value: Any = 0,
    mode: Literal["constant", "edge", "reflect", "symmetric", "circular"] = "constant",
    **axes: int | Sequence[int],
) -> Tensor:
    """x with ``value`` around it, or with what ``mode`` makes of x.

    "edge" repeats the outermost elements, "reflect" mirrors x at them, "symmetric" mirrors x behind them, "circular"
    continues x with its other end.

    ``width``: one integer for all axes, or one entry an axis (an integer for both sides, or (before, after)). By name:
    ``tp.pad(image, y=1, x=(0, 2))``. Negative widths crop.
    """
    pairs = _pad_pairs(x, width, axes)
    if mode != "constant":
        from .padding import continued

        return continued(x, pairs, mode)
    fill = fill_for(x, value)
    shape = tuple(extent + before + after for extent, (before, after) in zip(x.shape, pairs, strict=True))
    if any(extent < 0 for extent in shape):
        raise UsageError(f"pad leaves nothing of {x!r}", sides={"widths": pairs, "shape": list(shape)})

    def at(index: Index) -> Expr:
        inner = tuple(i - before for i, (before, _) in zip(index, pairs, strict=True))
        wide = zip(inner, x.shape, pairs, strict=True)
        bounds = tuple(Bound(i, 0, extent) for i, extent, widths in wide if max(widths) > 0)
        return guard(x.at(inner), bounds, fill) if bounds else x.at(inner)

    return x.view(shape, x.axes, at)


def _pad_pairs(x: Tensor, width: Any, named: dict[str, Any]) -> list[tuple[int, int]]:
    entries = [0] * x.ndim if width is None else [width] * x.ndim if isinstance(width, int) else list(width)
    if len(entries) != x.ndim:
        raise UsageError(f"pad has {len(entries)} widths for {x.ndim} axes", sides={"tensor": repr(x), "widths": width})
    for axis, entry in named.items():
        entries[axis_position(x, axis)] = entry
    pairs = [(e, e) if isinstance(e, int) else tuple(e) if isinstance(e, Sequence) else () for e in entries]
    if not all(len(pair) == 2 and all(isinstance(v, int) for v in pair) for pair in pairs):
        raise UsageError(f"pad widths {entries!r} are not integers or pairs of integers", sides={"tensor": repr(x)})
    return pairs


@door
def concat(tensors: Sequence[Tensor], axis: int | str = 0) -> Tensor:
    """Tensors one after the other along an axis; all else equal."""
    if not tensors:
        raise UsageError("concat needs at least one tensor")
    first = tensors[0]
    k = axis_position(first, axis)
    for x in tensors:
        if (
            x.ndim != first.ndim
            or x.dtype != first.dtype
            or any(x.shape[j] != first.shape[j] for j in range(x.ndim) if j != k)
        ):
            sides = {f"operand {j}": repr(t) for j, t in enumerate(tensors)}
            raise UsageError(f"concat along {first.axes[k]}: the operands differ elsewhere", sides=sides)
    shape = (*first.shape[:k], sum(x.shape[k] for x in tensors), *first.shape[k + 1 :])

    def at(index: Index) -> Expr:
        return _pieces(tensors, k, index)

    return first.view(shape, first.axes, at)


def _pieces(tensors: Sequence[Tensor], k: int, index: Index) -> Expr:
    """The element of the one tensor that the index falls into; no other is read."""
    parts: list[tuple[Bound, Expr]] = []
    start = 0
    for x in tensors:
        local = index[k] - start
        bound = Bound(local, 0, x.shape[k])
        parts.append((bound, shielded(x.at((*index[:k], local, *index[k + 1 :])), (bound,))))
        start += x.shape[k]
    expr = parts[-1][1]
    for bound, part in reversed(parts[:-1]):
        expr = Call("where", (Inside((bound,)), part, expr))
    return expr


@door
def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    shapes = list(dict.fromkeys(x.shape for x in tensors))
    if len(shapes) > 1:
        sides = {f"operand {k}": repr(x) for k, x in enumerate(tensors)}
        raise UsageError("stack: the operands have different shapes", sides=sides)
    return concat([expand_dims(x, [axis]) for x in tensors], axis)
