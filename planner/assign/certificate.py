"""Duals as integers, with the steps of the reduction: a bound that can be recomputed from the problem."""

from __future__ import annotations

import numpy as np

from .answer import DualCertificate, Step
from .flat import Flat
from .model import HALF, Loads, Model
from .problem import Ints
from .trws import Duals

_MESSAGE_BITS = 50  # messages fit in so many bits after scaling
_MULTIPLIER_BITS = 44


def dual_certificate(model: Model, loads: Loads, flat: Flat, duals: Duals, steps: tuple[Step, ...]) -> DualCertificate:
    """Rounds the duals to integers and puts back what the reduction had folded out of the matrices."""
    owners = _owners(model, steps)
    whole = _whole_matrices(model)
    largest = max(1.0, float(np.abs(duals.messages).max(initial=0.0)))
    unit = 2 ** max(0, min(20, _MESSAGE_BITS - int(np.ceil(np.log2(largest)))))
    pairs, messages = [], []
    for e, (g, h) in enumerate(zip(flat.low.tolist(), flat.high.tolist(), strict=True)):
        rows, cols = _folded(whole[g, h], model.edges[g, h])
        to_low = duals.messages[flat.to_low[e] : flat.to_low[e] + len(rows)]
        to_high = duals.messages[flat.to_high[e] : flat.to_high[e] + len(cols)]
        pairs.append((owners[g], owners[h]))
        messages.append((_scaled(to_low, unit) + rows * unit, _scaled(to_high, unit) + cols * unit))
    active = np.flatnonzero(duals.multipliers > 0)
    prices = [
        (int(loads.resource[p]), int(loads.instant[p]), round(float(duals.multipliers[p]) * 2**_MULTIPLIER_BITS))
        for p in active
    ]
    return DualCertificate(steps, tuple(pairs), tuple(messages), unit, tuple(prices), 2**_MULTIPLIER_BITS)


def _scaled(values: np.ndarray, unit: int) -> Ints:
    return np.round(values * unit).astype(np.int64)


def _owners(model: Model, steps: tuple[Step, ...]) -> list[int]:
    """The node that each group is known by: groups are numbered in the order of these nodes."""
    merged = {step.other for step in steps if step.merge}
    return [v for v in range(model.problem.node_count) if v not in merged]


def _whole_matrices(model: Model) -> dict[tuple[int, int], Ints]:
    """What the problem's edges cost between two groups, before any folding."""
    whole: dict[tuple[int, int], Ints] = {}
    for e, (u, v) in enumerate(model.problem.edges.tolist()):
        g, h = int(model.group[u]), int(model.group[v])
        if g > h:
            g, h, u, v = h, g, v, u
        if (g, h) in model.edges:
            matrix = model.problem.matrix(e)
            matrix = matrix if model.problem.edges[e, 0] == u else matrix.T
            part = matrix[np.ix_(model.strategy[u], model.strategy[v])]
            whole[g, h] = whole[g, h] + np.minimum(part, HALF) if (g, h) in whole else np.minimum(part, HALF)
    return whole


def _folded(whole: Ints, kept: Ints) -> tuple[Ints, Ints]:
    """a, b with whole[i, j] − kept[i, j] = a[i] + b[j] wherever allowed."""
    allowed = (whole < HALF) & (kept < HALF)
    folded = np.where(allowed, whole - kept, HALF)
    rows = folded.min(axis=1)
    rows = np.where(rows >= HALF, 0, rows)
    cols = np.where(allowed, folded - rows[:, None], HALF).min(axis=0)
    return rows, np.where(cols >= HALF, 0, cols)
