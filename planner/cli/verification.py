"""A run's values against the reference's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...closeness import tolerance
from ...errors import CheckFailed
from ...program import Program
from .tensor_file import Array


@dataclass(frozen=True)
class Difference:
    """One tensor: the largest absolute error, and the same relative to max(1, largest value of the reference)."""

    tensor: str
    max_abs_error: float
    max_rel_error: float
    allowed: float

    @property
    def ok(self) -> bool:
        return self.max_rel_error <= self.allowed


def differences(program: Program, found: Mapping[str, Array], reference: Mapping[str, Array]) -> list[Difference]:
    """One for each output and state of the reference, in its order. NaN agrees with NaN, an infinity with itself."""
    values = dict(program.states)
    return [
        _difference(name, found[name], expected, tolerance(program, values.get(name, name)))
        for name, expected in reference.items()
    ]


def _difference(name: str, found: Array, expected: Array, allowed: float) -> Difference:
    a, b = (array.astype(np.float64, copy=False) for array in (found, expected))
    same = (found == expected) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        errors = np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf)
    if allowed == 0:  # two large integers may differ and yet be one float
        errors = np.maximum(errors, 1.0)
    errors = np.where(same, 0.0, errors)
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
    largest = float(errors.max(initial=0.0))
    return Difference(name, largest, largest / scale, allowed)


def summary(found: list[Difference]) -> dict[str, Any]:
    """What `tapestry run --json --verify` adds."""
    return {
        "max_abs_error": max((difference.max_abs_error for difference in found), default=0.0),
        "max_rel_error": max((difference.max_rel_error for difference in found), default=0.0),
        "verified": all(difference.ok for difference in found),
    }


def demand_equal(found: list[Difference]) -> None:
    """Raises CheckFailed with the worst tensor that is beyond its tolerance."""
    wrong = [difference for difference in found if not difference.ok]
    if wrong:
        worst = max(wrong, key=lambda difference: difference.max_rel_error)
        sides = {"relative error": f"{worst.max_rel_error:.3g}", "allowed": f"{worst.allowed:.3g}"}
        raise CheckFailed("the run does not give the reference's values", where=worst.tensor, sides=sides)
