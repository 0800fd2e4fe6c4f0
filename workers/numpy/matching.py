"""Sums of products as matrices: which dimensions are rows, columns, folded, and which arrays BLAS takes as they lie."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from ...expr import FUNCTIONS, Call, Expr, children, depends_on
from .folding import Array, Reduction
from .pieces import Piece
from .views import collapse

Dims = tuple[str, ...]


@dataclass(frozen=True)
class Match:
    """body = left * right; every dimension in one group. ``rows`` index left only, ``columns`` right only."""

    left: Expr
    right: Expr
    batch: Dims
    rows: Dims
    columns: Dims
    folded: Dims

    def swapped(self) -> Match:
        return Match(self.right, self.left, self.batch, self.columns, self.rows, self.folded)


def match(piece: Piece, fold: Reduction) -> Match | None:
    """Recognise a sum of products whose folded dimensions all occur in both factors."""
    if FUNCTIONS[fold.function].matrix != "sum" or piece.where or not is_product(piece):
        return None
    left, right = children(piece.body)
    a, b = depends_on(left), depends_on(right)
    single = {name for name, extent in piece.dims if extent == 1}
    folded = tuple(name for name in piece.names if name in piece.reduce)
    kept = [name for name in piece.names if name not in piece.reduce]
    if any(name not in (a & b) | single for name in folded) or any(name not in a | b | single for name in kept):
        return None
    return Match(
        left, right,
        tuple(name for name in kept if (name in a and name in b) or name not in a | b),
        tuple(name for name in kept if name in a and name not in b),
        tuple(name for name in kept if name in b and name not in a),
        folded,
    )  # fmt: skip


def is_product(piece: Piece) -> bool:
    """Whether the body still is a product of two factors."""
    return isinstance(piece.body, Call) and FUNCTIONS[piece.body.function].matrix == "product"


def extent(piece: Piece, names: Dims) -> int:
    return prod(hi for name, (_, hi) in piece.ranges.items() if name in names)


@dataclass(frozen=True)
class Operand:
    """A factor or the product: a view with one axis per dimension of ``names``."""

    view: Array
    names: Dims

    def axes(self, names: Dims) -> list[int]:
        return [self.names.index(name) for name in names if name in self.names]

    def collapsed(self, names: Dims) -> tuple[int, int] | None:
        return collapse(self.view, self.axes(names))

    def matrix(self, loops: Dims, rows: Dims, columns: Dims) -> Array:
        """The view as [loops ..., rows, columns], no copy."""
        shape, strides = [], []
        for name in loops:
            axis = self.names.index(name) if name in self.names else None
            shape.append(1 if axis is None else self.view.shape[axis])
            strides.append(0 if axis is None else self.view.strides[axis])
        for group in (rows, columns):
            found = self.collapsed(group)
            assert found is not None
            shape.append(found[0])
            strides.append(found[1])
        return np.lib.stride_tricks.as_strided(self.view, shape, strides)

    def blas(self, rows: Dims, columns: Dims) -> bool:
        """Whether BLAS takes the matrix as it is, row by row or column by column."""
        r, c = self.collapsed(rows), self.collapsed(columns)
        return r is not None and c is not None and (self._lines(r, c) or self._lines(c, r))

    def _lines(self, outer: tuple[int, int], inner: tuple[int, int]) -> bool:
        item = self.view.itemsize
        close = inner[0] == 1 or inner[1] == item
        return close and (outer[0] == 1 or (outer[1] >= inner[0] * item and outer[1] % item == 0))
