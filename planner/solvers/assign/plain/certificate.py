"""Duals as integers, with the steps of the reduction: a bound that can be recomputed from the problem."""

from __future__ import annotations

import numpy as np

from ..answer import DualCertificate, Step
from ..problem import Ints
from .flat import Flat
from .reduced import HALF, Loads, Reduced
from .trws import Duals

_MESSAGE_BITS = 50  # messages fit in so many bits after scaling
_MULTIPLIER_BITS = 44


def dual_certificate(
    model: Reduced, loads: Loads, flat: Flat, duals: Duals, steps: tuple[Step, ...]
) -> DualCertificate:
    """Rounds the duals to integers and puts back what the reduction had folded out of the matrices."""
    owners = _owners(model, steps)
    whole = _whole_matrices(model)
    largest = max(1.0, float(np.abs(duals.messages).max(initial=0.0)))
    unit = 2 ** max(0, min(20, _MESSAGE_BITS - int(np.ceil(np.log2(largest)))))
    pairs, messages = [], []
    scaled = np.round(duals.messages * unit).astype(np.int64)
    for g, h, low_at, high_at in np.stack([flat.low, flat.high, flat.to_low, flat.to_high], axis=1).tolist():
        rows, cols = _folded(whole[g, h], model.edges[g, h])
        to_low, to_high = scaled[low_at : low_at + len(rows)], scaled[high_at : high_at + len(cols)]
        pairs.append((owners[g], owners[h]))
        messages.append((to_low + rows * unit, to_high + cols * unit))
    active = np.flatnonzero(duals.multipliers > 0)
    prices = [
        (int(loads.resource[p]), int(loads.instant[p]), round(float(duals.multipliers[p]) * 2**_MULTIPLIER_BITS))
        for p in active
    ]
    return DualCertificate(steps, tuple(pairs), tuple(messages), unit, tuple(prices), 2**_MULTIPLIER_BITS)


def _owners(model: Reduced, steps: tuple[Step, ...]) -> list[int]:
    """The node that each group is known by: groups are numbered in the order of these nodes."""
    merged = {step.other for step in steps if step.merge}
    return [v for v in range(model.problem.node_count) if v not in merged]


def _whole_matrices(model: Reduced) -> dict[tuple[int, int], Ints]:
    """What the problem's edges cost between two groups, before any folding."""
    whole: dict[tuple[int, int], Ints] = {}
    problem = model.problem
    group, ends, counts = model.group.tolist(), problem.edges.tolist(), problem.strategy_counts.tolist()
    first, values = problem.edge_costs.first.tolist(), problem.edge_costs.values
    for e, (u, v) in enumerate(ends):
        g, h = group[u], group[v]
        if g > h:
            g, h, u, v = h, g, v, u
        if (g, h) in model.edges:
            matrix = values[first[e] : first[e + 1]].reshape(counts[ends[e][0]], counts[ends[e][1]])
            matrix = matrix if ends[e][0] == u else matrix.T
            part = np.minimum(matrix[model.strategy[u][:, None], model.strategy[v]], HALF)
            whole[g, h] = whole[g, h] + part if (g, h) in whole else part
    return whole


def _folded(whole: Ints, kept: Ints) -> tuple[Ints, Ints]:
    """a, b with whole[i, j] − kept[i, j] = a[i] + b[j] wherever allowed."""
    allowed = (whole < HALF) & (kept < HALF)
    folded = np.where(allowed, whole - kept, HALF)
    rows = folded.min(axis=1)
    rows[rows >= HALF] = 0
    cols = np.where(allowed, folded - rows[:, None], HALF).min(axis=0)
    cols[cols >= HALF] = 0
    return rows, cols
