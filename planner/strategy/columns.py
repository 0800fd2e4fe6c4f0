"""How much the ranks of two layouts have in common, all ranks at once: axis by axis, each pair of sets met once.

Layouts of a search differ by which axis is cut how; their axes are few. So nearly all of what is asked about pairs of
layouts is a product of vectors that are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...space import IntSet, Region

Sizes = Any  # elements, per rank: a vector of int64, or of Python's integers where these may be greater


@dataclass(frozen=True, eq=False)
class Column:
    """One axis of the regions of all ranks: the different sets, and per rank which one it has."""

    sets: tuple[IntSet, ...]
    codes: np.ndarray[tuple[int], np.dtype[np.int64]]


Columns = tuple[Column, ...]


def columns(shape: Sequence[int], regions: Sequence[Region]) -> Columns | None:
    """The axes of regions that are one grid each, or empty; None for others, and where 64 bits may not do."""
    if not shape or prod(shape) >= 1 << 62 or any(len(region.grids) > 1 for region in regions):
        return None
    nothing = (IntSet(),) * len(shape)
    grids = (region.grids[0].axes if region else nothing for region in regions)
    return tuple(map(_column, zip(*grids, strict=True)))


@lru_cache(maxsize=1024)
def _column(sets: tuple[IntSet, ...]) -> Column:
    """One object for equal axes."""
    number = {axis: k for k, axis in enumerate(dict.fromkeys(sets))}
    return Column(tuple(number), np.array([number[axis] for axis in sets], dtype=np.int64))


@lru_cache(maxsize=4096)
def _common(a: Column, b: Column) -> Sizes:
    """Per rank how many values its two sets have in common."""
    pairs, which = np.unique(a.codes * len(b.sets) + b.codes, return_inverse=True)
    met = [(a.sets[k // len(b.sets)] & b.sets[k % len(b.sets)]).size for k in pairs.tolist()]
    return np.array(met, dtype=np.int64)[which]


def common(a: Columns, b: Columns) -> Sizes:
    """Per rank how many elements its two regions have in common."""
    found = _common(a[0], b[0])
    for mine, theirs in zip(a[1:], b[1:], strict=True):
        found = found * _common(mine, theirs)
    return found
