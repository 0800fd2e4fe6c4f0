"""Order along an axis: the largest with their places, sorting, and what stands at one place of the order.

An element and its place are one integer, its key: the number in the order of the floats (the function ``ordered``)
above 32 bits of the place, so that the larger key is the larger element, the first of equal ones, and NaN above all.
So the largest k are a fold of keys by the monoid ``topK``, whose partial results travel as any others' do, and sorting
is a network of minima and maxima (Batcher, Sorting networks and their applications, 1968). Elements are read at the
places that come out, which is what differentiates.

Elements of 64 bits have no such keys: the network puts them in order beside their places, and of a few each counts
those before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dsl.define import axes_of, define
from ..dsl.door import door
from ..dsl.element import Element, combine, element
from ..dsl.index import Index
from ..dsl.reducer import Reducer
from ..dsl.tensor import Tensor, unique_names
from ..dsl.trace import composite, current
from ..dtypes import DTYPES
from ..errors import UsageError
from ..expr import MOST_PLACES, Affine, Bound, Expr, Inside
from ..expr.derivatives import call
from ..program import Dim
from .arranging import moveaxis
from .gathering import take_along_axis
from .records import record_of
from .reduction import argmax, argmin, axis_position
from .views import slice_view

Axis = int | str
PLACES = 2**32  # what a key holds of places
LOWEST = -(2**63)  # no key is less, and no rank
FEW = 128  # elements of 64 bits that count one another


@door
@composite
def topk(x: Tensor, k: int, axis: Axis = -1, *, largest: bool = True, name: str = "") -> tuple[Tensor, Tensor]:
    """The k largest elements along an axis, or the smallest, in order, and their places (int64); of equals the first.

    NaN counts as larger than all numbers. Up to k = 64 it is one fold, which may be cut along the axis.
    """
    j = axis_position(x, axis)
    if not 1 <= k <= x.shape[j]:
        sides = {"x": repr(x), "k": k}
        raise UsageError(f"topk takes from 1 to {x.shape[j]} elements of this axis", sides=sides)
    places = _places(x, j, k, largest)
    return take_along_axis(x, places, j), places


@door
@composite
def max_with_index(x: Tensor, axis: Axis, *, keepdims: bool = False, name: str = "") -> tuple[Tensor, Tensor]:
    """The largest element along an axis, and where the first such is (int64): torch's ``max(x, dim)``."""
    return _best(argmax, x, axis, keepdims)


@door
@composite
def min_with_index(x: Tensor, axis: Axis, *, keepdims: bool = False, name: str = "") -> tuple[Tensor, Tensor]:
    """The smallest element along an axis, and where the first such is (int64): torch's ``min(x, dim)``."""
    return _best(argmin, x, axis, keepdims)


@door
@composite
def argsort(x: Tensor, axis: Axis = -1, *, descending: bool = False, name: str = "") -> Tensor:
    """Where the elements stand that come first, second, ... in rising or falling order (int64); equals in their order.

    NaN counts as larger than all numbers. log²n operations over n elements.
    """
    j = axis_position(x, axis)
    return _places(x, j, x.shape[j], descending)


@door
@composite
def sort(x: Tensor, axis: Axis = -1, *, descending: bool = False, name: str = "") -> Tensor:
    """The elements along an axis in rising or falling order; see `argsort`."""
    return take_along_axis(x, argsort(x, axis, descending=descending), axis_position(x, axis))


@door
@composite
def kthvalue(x: Tensor, k: int, axis: Axis = -1, *, name: str = "") -> tuple[Tensor, Tensor]:
    """The k-th smallest element along an axis, k from 1, and where it is (int64)."""
    values, places = topk(x, k, axis, largest=False)
    j = axis_position(x, axis)
    return _at_place(values, j, k - 1), _at_place(places, j, k - 1)


@door
@composite
def median(x: Tensor, axis: Axis = -1, *, name: str = "") -> tuple[Tensor, Tensor]:
    """The median along an axis, of an even number the lower of the two in the middle, and where it is: torch's."""
    return kthvalue(x, (x.shape[axis_position(x, axis)] + 1) // 2, axis)


def _best(places: Reducer, x: Tensor, axis: Axis, keepdims: bool) -> tuple[Tensor, Tensor]:
    j = axis_position(x, axis)
    found = places(x, j, keepdims=True)
    values = take_along_axis(x, found, j)
    return (values, found) if keepdims else (_at_place(values, j, 0), _at_place(found, j, 0))


def _at_place(x: Tensor, j: int, place: int) -> Tensor:
    return slice_view(x, (*(slice(None),) * j, place))


def _places(x: Tensor, j: int, k: int, falling: bool) -> Tensor:
    """Where the first k in the order stand, along axis j."""
    if x.shape[j] > PLACES:
        raise UsageError(f"the axis is longer than {PLACES}", sides={"x": repr(x)}, hint="order parts of it")
    wide = DTYPES[x.dtype].bytes > 4
    if wide and x.shape[j] <= FEW:
        return _counted(x, j, k, falling)
    found = _network(x, j, falling, wide) if wide or k > MOST_PLACES else _largest(x, j, k, falling)
    order = axes_of(found)[:-1]
    place = Index(Affine.dim("place"), {"place": k})
    stands = element(found[(*order, place)])
    if not wide:
        stands = combine("subtract", PLACES - 1, combine("bitwise_and", stands, PLACES - 1))
    return define("place", (*order[:j], place, *order[j:]), stands)


def _rank(x: Tensor, at: Sequence[Index | int], falling: bool) -> Element:
    """An integer for an element: the larger, the earlier it comes."""
    value = element(x[tuple(at)])
    rank = element(value.astype("int64")) if x.dtype == "bool" else combine("ordered", value)
    if x.dtype == "uint32":
        rank = combine("subtract", element(rank.astype("int64")), 2**31)
    return rank if falling else combine("bitwise_not", rank)


def _key(x: Tensor, at: Sequence[Index], place: Index, falling: bool) -> Element:
    """An integer for an element of 32 bits and its place: the larger, the earlier it comes."""
    high = combine("left_shift", _rank(x, at, falling), 32)
    return combine("add", high, combine("subtract", PLACES - 1, place))


def _largest(x: Tensor, j: int, k: int, falling: bool) -> Tensor:
    """The first k keys along a last axis: one fold."""
    every = axes_of(x)
    return record_of(f"top{k}", x, _key(x, every, every[j], falling).expr, (j,))


def _network(x: Tensor, j: int, falling: bool, wide: bool) -> Tensor:
    """All keys along a last axis in order, or the places of elements that have none: a bitonic network.

    Pairs that are ``apart`` are put in order, in runs that fall and rise by turns and grow to twice their length.
    """
    x = moveaxis(x, j, -1)
    length = 1 << (x.shape[-1] - 1).bit_length()
    *outer, last = axes_of(x)
    place = Index(Affine.dim(str(last)), {str(last): length})
    at = (*outer, place)
    key = _rank(x, at, falling) if wide else _key(x, at, place, falling)
    rows = [define("key", at, combine("where", place < x.shape[-1], key, LOWEST))]
    rows += [define("place", at, combine("add", place, 0))] if wide else []
    run = 2
    while run <= length:
        apart = run // 2
        while apart:
            rows = _stage(rows, apart, run)
            apart //= 2
        run *= 2
    return rows[-1]


def _stage(rows: Sequence[Tensor], apart: int, run: int) -> list[Tensor]:
    """Every pair in order, the larger one first in the even runs; of equal ranks the one whose place is earlier."""
    *outer, length = rows[0].shape
    shape = (*outer, length // (2 * apart), 2, apart)
    names = unique_names((*rows[0].axes[:-1], "pair", "side", "at"))
    *kept, pair, side, at = map(Affine.dim, names)
    ones, others = ([x.reshape(shape).at((*kept, pair, Affine.of(which), at)) for x in rows] for which in (0, 1))
    larger, smaller = _compared(ones, others)
    first = Inside((Bound(side - pair // (run // (2 * apart)) % 2, 0, 1),))
    dims = [Dim(name, extent) for name, extent in zip(names, shape, strict=True)]
    bodies = [call("where", first, a, b) for a, b in zip(larger, smaller, strict=True)]
    trace = current("stage")
    return [trace.compute("stage", dims, body, anonymous=True).reshape(rows[0].shape) for body in bodies]


def _compared(ones: Sequence[Expr], others: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
    """The larger and the smaller of two keys, or of two ranks with their places."""
    if len(ones) == 1:
        return [call("maximum", ones[0], others[0])], [call("minimum", ones[0], others[0])]
    tie = call("logical_and", call("equal", ones[0], others[0]), call("less", ones[1], others[1]))
    before = call("logical_or", call("greater", ones[0], others[0]), tie)
    chosen = [(call("where", before, a, b), call("where", before, b, a)) for a, b in zip(ones, others, strict=True)]
    return [larger for larger, _ in chosen], [smaller for _, smaller in chosen]


def _counted(x: Tensor, j: int, k: int, falling: bool) -> Tensor:
    """The places in order, each found by how many elements come before it."""
    every, n = axes_of(x), x.shape[j]
    names = unique_names((*x.axes, "other", "place"))
    mine, place = every[j], Index(Affine.dim(names[-1]), {names[-1]: k})
    other = Index(Affine.dim(names[-2]), {names[-2]: n})
    a, b = _rank(x, every, falling), _rank(x, (*every[:j], other, *every[j + 1 :]), falling)
    tie = combine("logical_and", combine("equal", a, b), other < mine)
    before = combine("where", combine("logical_or", combine("greater", b, a), tie), 1, 0)
    count = define("rank", every, Reducer("sum")[other](before), dtype="int64")
    chosen = combine("where", combine("equal", count[every], place), mine, 0)
    return define("place", (*every[:j], place, *every[j + 1 :]), Reducer("sum")[mine](chosen), dtype="int64")
