"""Boosted regression trees, evaluated: plain arrays in, plain numbers out, the same on every machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """Nodes in breadth-first order. Node i asks `x[feature[i]] <= threshold[i]` and goes left or right; a leaf is its
    own left and right, so that every walk may take the same number of steps."""

    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    value: tuple[float, ...]

    def leaf(self, x: Sequence[float]) -> float:
        """The value of the leaf that `x` reaches."""
        node = 0
        while self.left[node] != node:
            node = self.left[node] if x[self.feature[node]] <= self.threshold[node] else self.right[node]
        return self.value[node]


class Forest:
    """A sum of trees, packed for many rows at once: f(x) = base + sum of the leaves reached."""

    def __init__(self, base: float, trees: Sequence[Tree], width: int) -> None:
        """`width` is the number of features. Raises ValueError where a tree asks for another."""
        self.base, self.trees, self.width = base, tuple(trees), width
        if any(not 0 <= feature < width for tree in trees for feature in tree.feature):
            raise ValueError(f"a tree asks for a feature outside 0..{width - 1}")
        offsets = np.cumsum([0, *(len(tree.value) for tree in trees)], dtype=np.int64)
        self._roots = offsets[:-1]
        self._feature = _joined([tree.feature for tree in trees], np.int64)
        self._threshold = _joined([tree.threshold for tree in trees], np.float64)
        self._value = _joined([tree.value for tree in trees], np.float64)
        links = list(zip(offsets, trees, strict=False))
        self._left = _joined([[int(at) + node for node in tree.left] for at, tree in links], np.int64)
        self._right = _joined([[int(at) + node for node in tree.right] for at, tree in links], np.int64)
        self._depth = max((_depth(tree) for tree in trees), default=0)

    def one(self, x: Sequence[float]) -> float:
        """f of one row, without NumPy. Equal to `many` up to the rounding of the sum."""
        return self.base + sum(tree.leaf(x) for tree in self.trees)

    def many(self, x: Matrix) -> Vector:
        """f of every row of x [rows, width]."""
        if not self.trees:
            return np.full(len(x), self.base)
        node = np.broadcast_to(self._roots, (len(x), len(self._roots)))
        rows = np.arange(len(x))[:, None]
        for _ in range(self._depth):
            smaller = x[rows, self._feature[node]] <= self._threshold[node]
            node = np.where(smaller, self._left[node], self._right[node])
        total: Vector = self.base + self._value[node].sum(axis=1)
        return total


def _joined(parts: Sequence[Sequence[Any]], dtype: type) -> NDArray[Any]:
    return np.array([item for part in parts for item in part], dtype=dtype)


def _depth(tree: Tree) -> int:
    depths = [0] * len(tree.value)
    for node, (left, right) in enumerate(zip(tree.left, tree.right, strict=True)):
        if left != node:
            depths[left] = depths[right] = depths[node] + 1
    return max(depths)
