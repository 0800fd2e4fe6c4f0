"""Constant tables of integers or truth values: what a domain's bounds are when they are no expressions.

lengths = tp.table([3, 5, 2])          where=t < lengths[b]            ragged rows
blocks = tp.table(mask)                where=blocks[q // 64, k // 64]  a set of blocks
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from ..errors import UsageError
from ..expr import Affine, Bound, Inside, Table
from .caller import here
from .declare import rows_of
from .index import Given, Index, affine, is_index, joined

LARGEST = 1 << 20  # values: a table is written into every operation that it bounds


class ConstantTable:
    """A table of numbers, whose value at indices is an index expression, or of truth values: there it is a condition.

    The value may stand where an index may: in conditions, in ``where=``, as a number, in the index of a read.
    """

    def __init__(self, values: tuple[int, ...], shape: tuple[int, ...], truth: bool) -> None:
        self.values, self.shape, self.truth = values, shape, truth

    def __getitem__(self, keys: Any) -> Any:
        rows = keys if isinstance(keys, tuple) else (keys,)
        if len(rows) != len(self.shape) or not all(map(is_index, rows)):
            what = f"a table of shape {self.shape} is read at {', '.join(map(repr, rows))}"
            raise UsageError(what, where=here(), hint="give it an index for each axis, as in lengths[b]")
        place, given = Affine(), [row.given for row in rows if isinstance(row, Index)]
        for axis, (row, extent) in enumerate(zip(rows, self.shape, strict=True)):
            expr = affine(row)
            place += expr * prod(self.shape[axis + 1 :])
            if len(expr.terms) == 1 and expr == Affine.dim(str(expr.terms[0][0])):  # alone it ranges over the axis
                given.append({str(expr.terms[0][0]): extent})
        return self._value(place, joined({}, *given))

    def _value(self, place: Affine, given: Given) -> Any:
        from .element import Element

        value = Table(place, self.values).over(place)
        return Element(Inside((Bound(value, 1),)), given=given) if self.truth else Index(value, given)

    def __repr__(self) -> str:
        return f"tp.table of shape {self.shape}"


def table(values: Any) -> ConstantTable:
    """A constant table: nested lists of integers or truth values, or a NumPy array of them, of one axis or more.

    Indexed by one index for each axis, it is an index expression (integers) or a condition (truth values). Raises
    UsageError for other values, for rows of different lengths, and where there are none, or more than 2^20.
    """
    shape, numbers = rows_of(values)
    kinds = {type(number) for number in numbers}
    if not shape or not numbers or len(kinds) > 1 or not kinds <= {int, bool} or len(numbers) > LARGEST:
        found = f"{len(numbers)} numbers of type {' and '.join(sorted(kind.__name__ for kind in kinds)) or 'none'}"
        hint = f"a table holds integers, or truth values: at least one, at most {LARGEST}"
        raise UsageError(f"tp.table of shape {shape}, {found}", where=here(), hint=hint)
    return ConstantTable(tuple(map(int, numbers)), shape, kinds == {bool})


def check_tables(name: str, exprs: Iterable[Affine], ranges: Mapping[str, tuple[int, int]]) -> None:
    """Every table is read where it has values; UsageError with both ranges otherwise. Steps have one everywhere."""
    for expr in exprs:
        for found in expr.tables:
            lo, hi = found.inner.bounds(ranges)
            if not found.is_step and (lo < 0 or hi > len(found.values)):
                raise UsageError(
                    f"{name} reads a table outside of its values",
                    sides={"reads": f"{found.inner} in [{lo}, {hi - 1}]", "holds": f"[0, {len(found.values) - 1}]"},
                    hint="make the table as long as the index ranges",
                )
