"""Reads at indices that are values, ``table[ids[t], d]``: folds that select the one row that an id says.

Such a read is ``sum[v](tp.where(ids[t] == v, table[v, d], 0))`` over all rows v (see `tapestry.selection`). What an id
means that is outside of its axis is said by the way of reading:

    table[ids[t], d]                  an error of the run, which names the id and where it stood
    table.get(ids[t], d, fill=0.0)    the fill
    table.clamped[ids[t], d]          the nearest row
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from ..dtypes import DTYPES
from ..errors import UsageError
from ..expr import Affine
from ..result_type import Typing, reduced_dtype
from .caller import here
from .element import Access, Element, combine, element
from .guard import fill_for, guarded
from .index import Index, affine, joined
from .reducer import Reducer
from .tensor import Tensor


def selected(tensor: Tensor, keys: tuple[Any, ...], fill: float | int | bool | None, *, clamped: bool) -> Element:
    """The element of a tensor at indices of which some are values; ``fill`` None and not ``clamped``: an error outside.

    UsageError for a value that is no integer, that is read at a value itself, or that selects from nothing.
    """
    taken = {name for key in keys for name in (key.affine.dims if isinstance(key, Index) else ())}
    taken |= {name for key in keys if isinstance(key, Tensor) for name in element(key).free}
    rows: list[Index] = []
    equal: list[Element] = []
    held: list[Element] = []
    for axis, (name, extent, key) in enumerate(zip(tensor.axes, tensor.shape, keys, strict=True)):
        if not isinstance(key, Tensor):
            rows.append(key if isinstance(key, Index) else Index(Affine.of(key)))
            continue
        value = _integer(tensor, element(key))
        if not extent and fill is None:
            hint = "read it with .get[...], which gives a fill"
            what = f"{tensor.trace.describe(tensor)} holds nothing along {name}, and is read there at {value!r}"
            raise UsageError(what, where=here(), sides={"tensor": repr(tensor)}, hint=hint)
        row = _fresh(f"at_{name}" if name.isidentifier() else f"at_{axis}", taken)
        rows.append(Index(Affine.dim(row), {row: extent}))
        equal.append(combine("equal", _limited(value, extent, strict=fill is None, clamped=clamped), rows[-1]))
        held += [combine("less_equal", 0, value), combine("less", value, extent)]
    found = _fold(tensor, rows, equal, guard=fill is not None)
    exact = None if fill is None else fill_for(tensor, fill)
    if not exact:
        return found
    inside = [rows[k] >= 0 for k, key in enumerate(keys) if isinstance(key, Index)]
    inside += [rows[k] < tensor.shape[k] for k, key in enumerate(keys) if isinstance(key, Index)]
    return combine("where", reduce(_both, [*inside, *held]), found, exact)


def _fold(tensor: Tensor, rows: list[Index], equal: list[Element], *, guard: bool) -> Element:
    """The sum over all rows of those that are asked for: of one, or of none."""
    index = tuple(map(affine, rows))
    access = Access(tensor, index, here(), guarded=guard)
    given = joined({}, *(row.given for row in rows))
    row = Element(guarded(tensor, index, 0) if guard else tensor.at(index), (access,), given=given)
    nothing = False if tensor.dtype == "bool" else 0
    asked = tuple(row for row in rows if str(row).startswith("at_") and row.given)
    found = element(Reducer("sum")[asked](combine("where", reduce(_both, equal), row, nothing)))
    if reduced_dtype("sum", tensor.dtype) == tensor.dtype:
        return found
    return element(found.astype(tensor.dtype))


def _both(a: Tensor, b: Tensor) -> Element:
    return combine("logical_and", a, b)


def _limited(value: Element, extent: int, *, strict: bool, clamped: bool) -> Element:
    if clamped:
        return combine("minimum", combine("maximum", value, 0), extent - 1)
    return combine("within", value, extent) if strict else value


def _integer(tensor: Tensor, value: Element) -> Element:
    if value.reductions:
        what = f"{tensor.trace.describe(tensor)} is read at {value!r}, which is folded, or read at a value itself"
        hint = "one level deep: compute the index in an operation of its own, and read at its elements"
        raise UsageError(what, where=here(), hint=hint)
    dtype = Typing(tensor.trace.dtypes).of(value.expr)[0]
    if DTYPES[dtype].kind != "int":
        what = f"{tensor.trace.describe(tensor)} is read at {value!r}, which is {dtype} and no integer"
        raise UsageError(what, where=here(), hint='an index is an integer: cast it, astype("int32")')
    return value


def _fresh(name: str, taken: set[str]) -> str:
    """The name, numbered where it is taken; taken from now on."""
    found = next(s for s in (name, *(f"{name}{k}" for k in range(1, len(taken) + 2))) if s not in taken)
    taken.add(found)
    return found
