"""Transfers that are alike but for the sizes of axes, and for which axis is which: they are counted once.

The *form* of an axis of a layout is what each rank has of it, in fractions of its extent. What ranks receive and send
is in proportion to the elements of the tensor, and follows from the forms of all axes, whichever axis has which: the
first half of the rows of one matrix moves like the first half of the columns of another. A fold is shared out along the
longest axis; so this holds of folds where the coordinates along any axis that may be the longest divide evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from .columns import Column, Ints
from .layouts import Layout

Key = tuple[object, ...]
_BITS = 31  # of the number of a form


@dataclass(frozen=True, eq=False)
class Classes:
    """Pairs of layouts told apart: per pair the number of its class, and per class what it is known by and a pair of
    it, by its number.

    ``keys``: None where only pairs of the same two layouts are known to be alike.
    """

    of: Ints
    first: list[int]
    keys: list[Key | None]

    def members(self, number: int) -> list[int]:
        """The numbers of all pairs of a class."""
        order, ends = self._sorted
        found: list[int] = order[ends[number] : ends[number + 1]].tolist()
        return found

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints]:
        """The pairs class by class, and where each begins."""
        order = np.argsort(self.of, kind="stable")
        return order, np.searchsorted(self.of[order], np.arange(len(self.keys) + 1))


class _Axis(NamedTuple):
    """Of one axis the number of its form, None where there is none, and a length of which all its sets are made."""

    form: int | None
    grain: int


class Forms:
    """Numbers the forms of axes on one mesh. 0: all ranks have the whole axis."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._axes: dict[tuple[Column, int], _Axis] = {}
        self._known: dict[Layout, tuple[int, ...] | None] = {}

    def of(self, layout: Layout) -> tuple[int, ...] | None:
        """Of all axes; None where it is not made of intervals along axes."""
        if layout not in self._known:
            axes = [self._axis(column, extent).form for column, extent in self._axes_of(layout)]
            whole = [form for form in axes if form is not None]
            self._known[layout] = tuple(whole) if axes and len(whole) == len(axes) else None
        return self._known[layout]

    def _axes_of(self, layout: Layout) -> list[tuple[Column, int]]:
        cut = layout.by_axes if all(layout.shape) else None
        return [] if cut is None else [*zip(cut, layout.shape, strict=True)]

    def _axis(self, column: Column, extent: int) -> _Axis:
        if (column, extent) not in self._axes:
            runs = [run for values in column.sets for run in values.runs]
            grain = gcd(extent, *(end for run in runs for end in (run.start, run.stop)))
            even = all(run.step == 1 for run in runs)
            sets = tuple(
                tuple((run.start // grain, run.stop // grain) for run in values.runs) for values in column.sets
            )
            whole = grain == extent and sets == (((0, 1),),)
            key = () if whole else (extent // grain, sets, column.codes.tobytes())
            number = 0 if whole else self._numbers.setdefault(key, len(self._numbers) + 1) if even else None
            self._axes[column, extent] = _Axis(number, grain)
        return self._axes[column, extent]

    def classes(self, haves: Sequence[Layout], needs: Sequence[Layout], where: tuple[Any, ...]) -> Classes:
        """Of the pairs (have, need) of which ``where`` has the numbers."""
        mine, theirs = self._table(haves), self._table(needs)
        rows, columns = where
        codes = np.sort((mine[rows, 1:] << _BITS) + theirs[columns, 1:], axis=1)
        formless = (mine[rows, 0] < 0) | (theirs[columns, 0] < 0)
        alone = np.where(formless, -1 - np.arange(len(rows)), mine[rows, 0])
        together = np.zeros(len(rows), dtype=np.int64)
        for column in (alone, *codes.T):
            numbers = np.unique(column, return_inverse=True)[1]
            together = np.unique(together * (1 + len(numbers)) + numbers, return_inverse=True)[1]
        _, first, of = np.unique(together, return_index=True, return_inverse=True)
        told = zip(first.tolist(), codes[first].tolist(), formless[first].tolist(), strict=True)
        keys = [None if none else self._key(haves[rows[k]], code) for k, code, none in told]
        return Classes(of, first.tolist(), keys)

    def key(self, have: Layout, need: Layout) -> Key | None:
        """What a pair is known by."""
        mine, theirs = self.of(have), self.of(need)
        if mine is None or theirs is None:
            return None
        return self._key(have, sorted((a << _BITS) + b for a, b in zip(mine, theirs, strict=True)))

    def _key(self, have: Layout, codes: Sequence[int]) -> Key:
        return (have.parts, *(code for code in codes if code))

    def _table(self, layouts: Sequence[Layout]) -> Ints:
        """[layout, 1 + axis] the forms; before them the number of the parts, or -1 where there are no forms."""
        parts: dict[tuple[int, ...] | None, int] = {}
        found = np.zeros((len(layouts), 1 + len(layouts[0].shape) if layouts else 1), dtype=np.int64)
        for row, layout in zip(found, layouts, strict=True):
            forms = self.of(layout)
            row[0] = -1 if forms is None else parts.setdefault(layout.parts, len(parts))
            row[1:] = 0 if forms is None else forms
        return found

    def divisible(self, haves: Sequence[Layout], needs: Sequence[Layout], *, packed: bool) -> int:
        """What the coordinates are a multiple of along the longest axis that may be cut, of every piece that such
        layouts have in common; ``packed``: the last axis may not. 0: there is no such axis.
        """
        shape = haves[0].shape
        able = [*zip(shape, self._grains([*haves, *needs]), strict=False)][: len(shape) - packed]
        least = max((grain for _, grain in able), default=0)
        return gcd(*(grain for extent, grain in able if extent >= least))

    def _grains(self, layouts: Sequence[Layout]) -> list[int]:
        """Per axis a length of which all sets are made, of those of these layouts that have forms."""
        each = [[self._axis(*axis).grain for axis in self._axes_of(layout)] for layout in layouts if self.of(layout)]
        return [gcd(*grains) for grains in zip(*each, strict=True)]
