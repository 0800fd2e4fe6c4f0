"""What has to be shown of a plan that passes though its program or machine was altered: it computes what it embeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapestry.errors import TapestryError
from tapestry.inputs import random_inputs
from tapestry.planner.check import checked
from tapestry.planner.format.document import Document
from tapestry.reference import evaluate
from tapestry.serialize import program_from_json
from tapestry.workers import run

SEEDS = 2


def harm(document: Document) -> str | None:
    """What goes wrong when it runs, in an adversarial order, or None: it gives what its program means."""
    program = program_from_json(document.program)
    for seed in range(SEEDS):
        inputs = random_inputs(program, seed)
        with np.errstate(all="ignore"):
            expected = evaluate(program, inputs)
            try:
                result = run(checked(document), inputs, device="numpy", order=seed, poison=True)
            except TapestryError as error:
                return f"it does not run: {error}"
        for name, value in expected.items():
            if not alike(result.outputs[name], value):
                return f"{name} is {result.outputs[name].ravel()[:8]}, and means {value.ravel()[:8]}"
    return None


def alike(one: Any, other: Any) -> bool:
    """Integers are equal; floats, of small programs, to a hundredth of the greatest."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.kind in "biu":
        return bool(np.array_equal(one, other))
    here, there = one.astype(np.float64), other.astype(np.float64)
    finite = there[np.isfinite(there)]
    return bool(np.allclose(here, there, rtol=1e-2, atol=1e-2 * np.abs(finite).max(initial=1e-9), equal_nan=True))
