"""A model as flat arrays of floats, for the compiled loops of `trws`, `forest` and `moves`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..problem import Ints
from .reduced import HALF, Reduced

Floats = NDArray[np.float64]


class Flat(NamedTuple):
    """Groups are numbered as in the model; the e-th edge joins low[e] < high[e].

    labels `label_first[g]:label_first[g + 1]` of group g; its matrix at `matrix_first[e]`, row-major [low, high], with
    infinity for forbidden pairs; the neighbours of g at `near_first[g]:near_first[g + 1]`, lower groups first.
    A message of edge e towards low has its labels at `to_low[e]`, one towards high at `to_high[e]`.
    """

    label_first: Ints
    unary: Floats
    low: Ints
    high: Ints
    matrix_first: Ints
    matrix: Floats
    near_first: Ints
    near_edge: Ints
    to_low: Ints
    to_high: Ints
    message_size: int


def flatten(model: Reduced) -> Flat:
    counts = model.label_counts
    pairs = sorted(model.edges)
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    low, high = np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])
    sizes = counts[low] * counts[high]
    lengths = np.stack([counts[low], counts[high]], axis=1).reshape(-1)
    starts = _starts(lengths)
    near_first, near_edge = _neighbours(low, high, len(counts))
    return Flat(
        label_first=_starts(counts),
        unary=np.concatenate(model.unary).astype(np.float64) if model.unary else np.zeros(0),
        low=low,
        high=high,
        matrix_first=_starts(sizes),
        matrix=_matrices(model, pairs),
        near_first=near_first,
        near_edge=near_edge,
        to_low=starts[:-1:2].copy(),
        to_high=starts[1::2].copy(),
        message_size=int(starts[-1]),
    )


def _starts(lengths: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _matrices(model: Reduced, pairs: list[tuple[int, int]]) -> Floats:
    if not pairs:
        return np.zeros(0)
    joined = np.concatenate([model.edges[pair].reshape(-1) for pair in pairs])
    return np.where(joined >= HALF, np.inf, joined.astype(np.float64))


def _neighbours(low: Ints, high: Ints, groups: int) -> tuple[Ints, Ints]:
    """Per group its edges, ordered by the group at the other end."""
    edges = np.arange(len(low))
    own, other, edge = np.concatenate([low, high]), np.concatenate([high, low]), np.concatenate([edges, edges])
    order = np.lexsort((other, own))
    return np.searchsorted(own[order], np.arange(groups + 1)).astype(np.int64), edge[order]
