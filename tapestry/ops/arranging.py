"""Rearrangements: views that repeat, turn, split and select elements, and the matrices made of them.

All but the folds (`trace`) and masks (`tril`, `triu`) compute nothing: like `tapestry.ops.views` they compose into the
projections of whoever reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.guard import fill_for, guard
from ..dsl.tensor import Tensor, unique_names
from ..errors import UsageError
from ..expr import Affine, Bound, Expr
from .elementwise import where
from .reduction import axis_position, axis_positions
from .reduction import sum as fold
from .views import concat, expand_dims, reshape, slice_view, transpose

Place = tuple[Affine, ...]


@door
def roll(x: Tensor, shift: int | Sequence[int], axis: int | str | Sequence[int | str]) -> Tensor:
    """x moved along axes by so many elements; what leaves at one end comes in at the other."""
    axes = [axis] if isinstance(axis, int | str) else list(axis)
    shifts = [shift] * len(axes) if isinstance(shift, int) else list(shift)
    if len(shifts) != len(axes):
        raise UsageError(f"roll: {len(shifts)} shifts for {len(axes)} axes", sides={"x": repr(x)})
    moved = {axis_position(x, one): by for one, by in zip(axes, shifts, strict=True)}

    def at(index: Place) -> Expr:
        extents = zip(index, x.shape, strict=True)
        return x.at(tuple((i - moved[k]) % n if k in moved and n else i for k, (i, n) in enumerate(extents)))

    return x.view(x.shape, x.axes, at)


@door
def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """x so many times one after the other along its last axes; more repeats than axes make new leading ones."""
    if any(count < 0 for count in repeats):
        raise UsageError(f"tile(repeats={list(repeats)})", hint="counts of 0 or more")
    wide = x if len(repeats) <= x.ndim else expand_dims(x, list(range(len(repeats) - x.ndim)))
    counts = (*[1] * (wide.ndim - len(repeats)), *repeats)

    def at(index: Place) -> Expr:
        return wide.at(tuple(i % n if n else i for i, n in zip(index, wide.shape, strict=True)))

    return wide.view(tuple(n * count for n, count in zip(wide.shape, counts, strict=True)), unique_names(wide.axes), at)


@door
def repeat_interleave(x: Tensor, repeats: int, axis: int | str = 0) -> Tensor:
    """Each element along an axis so many times in a row."""
    k = axis_position(x, axis)
    if repeats < 1:
        raise UsageError(f"repeat_interleave(repeats={repeats})", hint="at least 1")

    def at(index: Place) -> Expr:
        return x.at((*index[:k], index[k] // repeats, *index[k + 1 :]))

    return x.view((*x.shape[:k], x.shape[k] * repeats, *x.shape[k + 1 :]), x.axes, at)


@door
def fliplr(x: Tensor) -> Tensor:
    """The second axis in reverse order."""
    return slice_view(x, (slice(None), slice(None, None, -1)))


@door
def flipud(x: Tensor) -> Tensor:
    """The first axis in reverse order."""
    return slice_view(x, (slice(None, None, -1),))


@door
def rot90(x: Tensor, times: int = 1, axes: Sequence[int | str] = (0, 1)) -> Tensor:
    """x turned by 90 degrees in a plane, from the first of two axes towards the second."""
    first, second = _two_axes("rot90", x, axes)

    def at(index: Place) -> Expr:
        place, (i, j) = list(index), (index[first], index[second])
        n, m = x.shape[first], x.shape[second]
        place[first], place[second] = [(i, j), (j, m - 1 - i), (n - 1 - i, m - 1 - j), (n - 1 - j, i)][times % 4]
        return x.at(tuple(place))

    order = list(range(x.ndim))
    if times % 2:
        order[first], order[second] = second, first
    return x.view(tuple(x.shape[k] for k in order), tuple(x.axes[k] for k in order), at)


@door
def swapaxes(x: Tensor, first: int | str, second: int | str) -> Tensor:
    """Two axes exchanged."""
    order: list[int | str] = list(range(x.ndim))
    a, b = axis_position(x, first), axis_position(x, second)
    order[a], order[b] = b, a
    return transpose(x, order)


@door
def moveaxis(x: Tensor, source: int | str, to: int) -> Tensor:
    """One axis moved to a position of the result, the others in their order."""
    k = axis_position(x, source)
    rest: list[int | str] = [j for j in range(x.ndim) if j != k]
    if not -x.ndim <= to < x.ndim:
        raise UsageError(f"moveaxis: there is no position {to}", sides={"x": repr(x)})
    rest.insert(to % x.ndim, k)
    return transpose(x, rest)


@door
def flatten(x: Tensor, first: int = 0, last: int = -1) -> Tensor:
    """The axes from ``first`` to ``last`` as one, in row-major order."""
    if not x.ndim:
        return reshape(x, (1,))
    a, b = axis_position(x, first), axis_position(x, last)
    if a > b:
        raise UsageError(f"flatten: axis {a} stands behind axis {b}", sides={"x": repr(x)})
    return reshape(x, (*x.shape[:a], prod(x.shape[a : b + 1]), *x.shape[b + 1 :]))


@door
def split(x: Tensor, sections: int | Sequence[int], axis: int | str = 0) -> list[Tensor]:
    """Parts of x along an axis: so many equal ones, or parts of the extents given."""
    k = axis_position(x, axis)
    if isinstance(sections, int):
        if sections < 1 or x.shape[k] % sections:
            what = f"split: {x.axes[k]} of extent {x.shape[k]} has no {sections} equal parts"
            raise UsageError(what, sides={"x": repr(x)}, hint="give the extents: tp.split(x, [3, 2])")
        sections = [x.shape[k] // sections] * sections
    if sum(sections) != x.shape[k] or any(extent < 0 for extent in sections):
        what = f"split: the parts {list(sections)} do not make up {x.axes[k]} of extent {x.shape[k]}"
        raise UsageError(what, sides={"x": repr(x)})
    starts = [sum(sections[:j]) for j in range(len(sections))]
    before = [slice(None)] * k
    return [slice_view(x, (*before, slice(a, a + n))) for a, n in zip(starts, sections, strict=True)]


@door
def unbind(x: Tensor, axis: int | str = 0) -> list[Tensor]:
    """x at each position of an axis, without that axis."""
    k = axis_position(x, axis)
    return [slice_view(x, (*[slice(None)] * k, j)) for j in range(x.shape[k])]


@door
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one below the other; vectors are rows."""
    return concat([x if x.ndim > 1 else expand_dims(x, [0]) for x in tensors], 0)


@door
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors one beside the other: along the second axis, vectors along their only one."""
    return concat(tensors, 0 if tensors and tensors[0].ndim == 1 else 1)


def _two_axes(function: str, x: Tensor, axes: Sequence[int | str]) -> tuple[int, int]:
    if len(axes) != 2 or len(set(axis_positions(x, tuple(axes)))) != 2:
        raise UsageError(f"{function} takes two axes", sides={"x": repr(x), "given": list(axes)})
    return axis_position(x, axes[0]), axis_position(x, axes[1])


# -- matrices ----------------------------------------------------------------------------------------------------------


@door
def diagonal(x: Tensor, offset: int = 0, axes: Sequence[int | str] = (0, 1)) -> Tensor:
    """x[.., i, i + offset, ..] along two axes, as the last axis of the result."""
    first, second = _two_axes("diagonal", x, axes)
    down, right = max(0, -offset), max(0, offset)
    length = max(0, min(x.shape[first] - down, x.shape[second] - right))
    rest = [k for k in range(x.ndim) if k not in (first, second)]

    def at(index: Place) -> Expr:
        place = dict(zip(rest, index[:-1], strict=True)) | {first: index[-1] + down, second: index[-1] + right}
        return x.at(tuple(place[k] for k in range(x.ndim)))

    axes_left = unique_names((*(x.axes[k] for k in rest), x.axes[first]))
    return x.view((*(x.shape[k] for k in rest), length), axes_left, at)


@door
def diag_embed(x: Tensor, offset: int = 0) -> Tensor:
    """The last axis on a diagonal of square matrices, zeros beside it."""
    down, right = max(0, -offset), max(0, offset)
    extent = x.shape[-1] + down + right if x.ndim else 0
    if not x.ndim:
        raise UsageError("diag_embed takes a tensor with an axis", sides={"x": repr(x)})

    def at(index: Place) -> Expr:
        *outer, i, j = index
        own = (*outer, i - down)
        return guard(x.at(own), (Bound(j - i, offset, offset + 1), Bound(i - down, 0, x.shape[-1])), fill_for(x, 0))

    axes = unique_names((*x.axes, "j"))
    return x.view((*x.shape[:-1], extent, extent), axes, at)


@door
def diag(x: Tensor, offset: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix with this diagonal."""
    if x.ndim not in (1, 2):
        raise UsageError("diag takes a vector or a matrix", sides={"x": repr(x)}, hint="tp.diagonal, tp.diag_embed")
    return diag_embed(x, offset) if x.ndim == 1 else diagonal(x, offset)


@door
def trace(x: Tensor, offset: int = 0, axes: Sequence[int | str] = (0, 1), *, name: str = "") -> Tensor:
    """The sum along a diagonal."""
    return fold(diagonal(x, offset, axes), -1, name=name)


def _triangle(name: str, x: Tensor, offset: int, lower: bool) -> Tensor:
    if x.ndim < 2:
        raise UsageError(f"{name} takes matrices", sides={"x": repr(x)})
    every = axes_of(x)
    apart = every[-1] - every[-2]
    inside = apart <= offset if lower else apart >= offset
    return define(name, every, where(inside, x[every], fill_for(x, 0)), dtype=x.dtype)


@door
def tril(x: Tensor, offset: int = 0) -> Tensor:
    """x below and on a diagonal of its last two axes, 0 above."""
    return _triangle("tril", x, offset, lower=True)


@door
def triu(x: Tensor, offset: int = 0) -> Tensor:
    """x above and on a diagonal of its last two axes, 0 below."""
    return _triangle("triu", x, offset, lower=False)


@door
def meshgrid(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Vectors as tensors over the product of their axes, vector k varying along axis k ("ij" indexing)."""
    wrong = next((x for x in tensors if x.ndim != 1), None)
    if wrong is not None:
        raise UsageError("meshgrid takes vectors", sides={"given": repr(wrong)})
    shape, axes = tuple(x.shape[0] for x in tensors), unique_names(tuple(x.axes[0] for x in tensors))

    def along(k: int, x: Tensor) -> Tensor:
        return x.view(shape, axes, lambda index: x.at((index[k],)))

    return [along(k, x) for k, x in enumerate(tensors)]
