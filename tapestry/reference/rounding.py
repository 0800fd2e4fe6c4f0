"""What executions may do otherwise than one another: the roundings of inexact functions, of folds and their results.

The oracle itself rounds as it does. To learn how far another right execution may be from it, it is evaluated again with
every such rounding made at random: what comes out differs by what the roundings of this program, on these inputs, do to
its outputs. Nothing is assumed of how errors grow, cancel or hang together (Parker, Monte Carlo arithmetic, 1997).
"""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from ..dtypes import DTYPES
from ..expr import FUNCTIONS, MONOIDS, Call, walk
from ..program import Block, Operation
from .values import Array

UNIT = {"f8e4m3": 2.0**-4, "f8e5m2": 2.0**-3, "bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-24, "f64": 2.0**-53}
"""The unit roundoff: the largest relative error of one rounding."""
_ULPS = 4
"""Units in which a function that is not correctly rounded may err."""


class Rounding:
    """The oracle's own: nothing is moved."""

    def function(self, name: str, value: Array) -> Array:  # noqa: ARG002
        """What a scalar function gives, in the type it computes in."""
        return value

    def terms(self, value: Array, share: float) -> Array:  # noqa: ARG002
        """What enters a fold, or comes out of it: it may be off by a share of itself."""
        return value

    def stored(self, value: Array, share: float) -> Array:  # noqa: ARG002
        """What is about to be rounded to its dtype and stored."""
        return value


class Shaken(Rounding):
    """Every rounding at random, from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def function(self, name: str, value: Array) -> Array:
        if FUNCTIONS[name].exact or value.dtype.kind != "f":
            return value
        unit = _ULPS * UNIT["f32" if value.dtype == np.float32 else "f64"]
        return self._moved(value, unit).astype(value.dtype)

    def terms(self, value: Array, share: float) -> Array:
        return self._moved(value, share) if share and value.dtype.kind == "f" else value

    stored = terms

    def _moved(self, value: Array, share: float) -> Array:
        moved: Array = np.asarray(self._random.random(value.shape))  # in one array: for large values memory is the time
        moved *= 2 * share
        moved += 1 - share
        moved *= value
        return moved


def share_of_terms(op: Operation, value: str, stored: str) -> float:
    """How far the terms of a fold of values of one dtype, stored in another, may be off; 0 where every order agrees.

    n additions in the type that adds up err by its unit times the square root of n, roundings being as often up as
    down; a part that one shard hands to another is rounded once to the dtype of the record.
    """
    monoid = MONOIDS[op.monoid or ""]
    if DTYPES[stored].kind != "float" or "float" in monoid.exact:
        return 0.0
    folded = prod(op.extents[name] for name in op.reduce_dims)
    record = UNIT.get(monoid.dtypes_for(value, stored)[0], 0.0)
    adds = max(UNIT[DTYPES[stored].compute], UNIT.get(DTYPES[value].compute, 0.0))
    return max(record, adds * sqrt(max(1, folded)))


def share_of_result(op: Operation, stored: str) -> float:
    """How far what an operation stores may be off by one rounding; 0 where every execution stores the same bits, but
    for what its fold does.
    """
    if DTYPES[stored].kind != "float":
        return 0.0
    if isinstance(op.body, Block):
        return UNIT[stored]
    inexact = any(isinstance(node, Call) and not FUNCTIONS[node.function].exact for node in walk(op.body))
    return UNIT[stored] if inexact else 0.0
