"""Gradient boosting of small regression trees (Friedman 2001), squared error, deterministic: no sampling, ties to the
first feature and the lowest threshold."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .trees import Index, Matrix, Tree, Vector

DIGITS = 6  # of features behind the point that are told apart


@dataclass(frozen=True)
class Recipe:
    """How trees are grown. `ridge` is added to the number of rows of a leaf, which pulls its value towards 0."""

    trees: int = 120
    depth: int = 5
    rate: float = 0.12
    least: int = 12
    ridge: float = 6.0
    bins: int = 24


@dataclass
class _Growing:
    """A tree while it grows; nodes are appended breadth first."""

    feature: list[int] = field(default_factory=list)
    threshold: list[float] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)

    def leaf(self, value: float) -> int:
        node = len(self.value)
        self.feature.append(0)
        self.threshold.append(0.0)
        self.left.append(node)
        self.right.append(node)
        self.value.append(value)
        return node

    def done(self) -> Tree:
        links = tuple(self.left), tuple(self.right)
        return Tree(tuple(self.feature), tuple(self.threshold), *links, tuple(self.value))


def boost(x: Matrix, y: Vector, recipe: Recipe, weights: Vector | None = None) -> tuple[float, list[Tree]]:
    """(base, trees) with y ~ base + sum of trees: x [rows, features], y [rows], `weights` [rows] positive."""
    weight = np.ones(len(y)) if weights is None else weights
    base = float((y * weight).sum() / weight.sum())
    residual, trees = y - base, []
    edges = [_edges(column, recipe.bins) for column in x.T]
    binned = np.stack([np.searchsorted(cuts, column) for cuts, column in zip(edges, x.T, strict=True)], axis=1)
    for _ in range(recipe.trees):
        tree, reached = _grow(binned, edges, residual, weight, recipe)
        residual = residual - np.array(tree.value)[reached]
        trees.append(tree)
    return base, trees


def _edges(column: Vector, bins: int) -> Vector:
    """Thresholds worth asking for: midpoints between neighbouring values, thinned to `bins` quantiles.

    What differs by rounding alone is one value: a threshold between the two would be lost when it is written.
    """
    values = np.unique(column.round(DIGITS))
    middles = (values[1:] + values[:-1]) / 2
    if len(middles) <= bins:
        return middles
    picks = np.unique(np.linspace(0, len(middles) - 1, bins).round().astype(np.int64))
    thinned: Vector = middles[picks]
    return thinned


def _grow(binned: Index, edges: list[Vector], residual: Vector, weight: Vector, recipe: Recipe) -> tuple[Tree, Index]:
    """One tree fitted to the residual, and the leaf every row reaches."""
    tree = _Growing()
    reached = np.zeros(len(residual), dtype=np.int64)
    level = [tree.leaf(_value(residual, weight, recipe))]
    for _ in range(recipe.depth):
        below = []
        for node in level:
            rows = np.flatnonzero(reached == node)
            found = _split(binned[rows], edges, residual[rows], weight[rows], recipe)
            if found is None:
                continue
            feature, at = found
            tree.feature[node], tree.threshold[node] = feature, float(edges[feature][at])
            smaller = binned[rows, feature] <= at
            for side, part in ((tree.left, rows[smaller]), (tree.right, rows[~smaller])):
                child = tree.leaf(_value(residual[part], weight[part], recipe))
                side[node] = child
                reached[part] = child
                below.append(child)
        level = below
    return tree.done(), reached


def _value(residual: Vector, weight: Vector, recipe: Recipe) -> float:
    return float(recipe.rate * (residual * weight).sum() / (weight.sum() + recipe.ridge))


def _split(
    binned: Index, edges: list[Vector], residual: Vector, weight: Vector, recipe: Recipe
) -> tuple[int, int] | None:
    """(feature, edge) of the split that lowers the squared error most, or None. All features' bins in one histogram."""
    rows, width = binned.shape
    size = max(map(len, edges), default=0) + 1
    place = (binned + size * np.arange(width)).ravel()
    count, mass, total = (
        np.bincount(place, None if values is None else np.repeat(values, width), width * size)
        .astype(np.float64)
        .reshape(width, size)
        .cumsum(axis=1)
        for values in (None, weight, residual * weight)
    )
    whole = _gain(total[:, -1:], mass[:, -1:], recipe)
    gains = _gain(total, mass, recipe) + _gain(total[:, -1:] - total, mass[:, -1:] - mass, recipe) - whole
    # Past a feature's last edge nothing is left on the right: that is no split.
    gains[(count < recipe.least) | (rows - count < recipe.least)] = 0.0
    feature, at = divmod(int(np.argmax(gains)), size)
    return (feature, at) if gains[feature, at] > 1e-12 else None


def _gain(total: Vector, mass: Vector, recipe: Recipe) -> Vector:
    """How much squared error a leaf takes away: total^2 / mass, 0 for no rows."""
    gain: Vector = total * total / np.maximum(mass + recipe.ridge, 1e-300)
    return gain
