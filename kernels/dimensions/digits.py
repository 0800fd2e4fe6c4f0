"""Which digits of a whole dimension a fold or a module is, and whether it is one.

A derived dimension is (i mod period) // unit of an index i of its base; period 0 means no bound. Two derived dimensions
with the same digits are the same C++ type, whichever way they came about.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import WrongValue
from .specification import AnyDimension, Dimension, Fold


@dataclass(frozen=True)
class Digits:
    """Digits of `base` from `unit` up to `period` (0: no bound)."""

    base: str
    unit: int = 1
    period: int = 0

    @property
    def size(self) -> int | None:
        """How many values it can take; `None` where there is no bound."""
        return self.period // self.unit if self.period else None


def digits_of(dims: tuple[AnyDimension, ...], where: str) -> dict[str, Digits]:
    """The digits of every declared dimension, by name. Refuses unknown, late and indivisible ones.

    Two names may come to the same digits: a fold by 1, say, in a kernel specialised for one column a warp.
    """
    found: dict[str, Digits] = {}
    for dim in dims:
        made = Digits(dim.name) if isinstance(dim, Dimension) else _derive(dim, found, where)
        found[dim.name] = made
    return found


def _derive(dim: AnyDimension, known: dict[str, Digits], where: str) -> Digits:
    assert not isinstance(dim, Dimension)
    word = "fold" if isinstance(dim, Fold) else "module"
    if dim.of not in known:
        raise WrongValue(
            f"{word} {dim.name} is of a dimension that is not declared before it",
            where=where,
            expected=f"one of {', '.join(known) or '(none yet)'}",
            came=dim.of,
        )
    if dim.size < 1:
        raise WrongValue(f"{word} {dim.name} has no size", where=where, expected="at least 1", came=dim.size)
    of = known[dim.of]
    if of.size is not None and of.size % dim.size != 0:
        raise WrongValue(
            f"{word} {dim.name} does not divide {dim.of}",
            where=where,
            expected=f"a divisor of {of.size}, the number of values of {dim.of}",
            came=dim.size,
        )
    if isinstance(dim, Fold):
        return Digits(of.base, of.unit * dim.size, of.period)
    return Digits(of.base, of.unit, of.unit * dim.size)
