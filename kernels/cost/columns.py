"""Formulas for one configuration, or for many at once, whose numbers are columns: arrays with a place for each.

What a formula says of many is, bit for bit, what it says of each: powers and logarithms, which NumPy and its vectors
round in ways of their own, are Python's here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")
Number = Any  # a number, or a column of them


def _names(kind: Any) -> tuple[str, ...]:
    found: tuple[str, ...] = kind.__match_args__  # what dataclasses call their fields, in order
    return found


def columns(options: Sequence[T]) -> T:
    """Dataclasses, one or more, as one whose fields are columns."""
    return in_columns(type(options[0]), rows_of(options))


def in_columns(kind: type[T], rows: Sequence[tuple[Any, ...]]) -> T:
    """The same from the fields of each, in order."""
    return kind(*[np.array(values) for values in zip(*rows, strict=True)])


def rows_of(options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The fields of each, in order."""
    names = _names(type(options[0]))
    return [tuple([getattr(option, name) for name in names]) for option in options]


def rows(many: Any) -> list[tuple[Any, ...]]:
    """The fields of each of those whose fields are columns."""
    return list(zip(*[getattr(many, name).tolist() for name in _names(type(many))], strict=True))


def stacked(parts: Sequence[T]) -> T:
    """Several of them, one below the other; a field may be a number there."""
    kind = type(parts[0])
    tall = [[getattr(part, name) for name in _names(kind)] for part in parts]
    even = [np.broadcast_arrays(*part) for part in tall]
    return kind(*[np.concatenate(parts) for parts in zip(*even, strict=True)])


def where(many: T, holds: Number) -> T:
    """Those of which something holds."""
    return type(many)(*[getattr(many, name)[holds] for name in _names(type(many))])


def ceil(value: Number) -> Number:
    """The least integer that is not below."""
    return np.ceil(value).astype(np.int64) if isinstance(value, np.ndarray) else math.ceil(value)


def larger(*values: Number) -> Number:
    """The largest, place by place."""
    return reduce(np.maximum, values) if _any_column(values) else max(values)


def smaller(*values: Number) -> Number:
    """The smallest, place by place."""
    return reduce(np.minimum, values) if _any_column(values) else min(values)


def _any_column(values: Sequence[Number]) -> bool:
    return np.ndarray in map(type, values)


def pick(holds: Number, yes: Number, no: Number) -> Number:
    """`yes` where something holds, else `no`: both are computed."""
    if isinstance(holds, np.ndarray):
        return np.where(holds, yes, no)
    return yes if holds else no


def anywhere(holds: Number) -> bool:
    """Whether something holds in one place or more."""
    return holds if isinstance(holds, bool) else bool(np.any(holds))


def each(function: Callable[..., Any], *values: Number) -> Number:
    """A function of numbers, place by place."""
    if not _any_column(values):
        return function(*values)
    even = [column.tolist() for column in np.broadcast_arrays(*values)]
    return np.array([function(*numbers) for numbers in zip(*even, strict=True)])
