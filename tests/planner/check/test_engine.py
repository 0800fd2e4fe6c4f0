"""Mutants that the checker passes are harmless on the real engine too: seeded adversarial orders, poisoned memory."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tapestry.reference import evaluate

from ...workers.unchecked import run_unchecked
from . import plans, writing
from .harm import drawn, judged
from .mutations import mutants

SAMPLE, SEEDS = 8, 5


@pytest.mark.parametrize("name", plans.ALL)
def test_passed_mutants_run_right(name: str) -> None:
    document = plans.ALL[name]()
    program = writing.read(document)
    inputs = drawn(program)
    expected = evaluate(program, inputs)
    passed = [mutant.document for mutant in mutants(document, program) if judged(mutant).ok]
    for plan in [document, *random.Random(name).sample(passed, min(SAMPLE, len(passed)))]:
        for seed in range(SEEDS):
            result = run_unchecked(plan, inputs, order=seed, poison=True)
            assert result.bytes_moved == plan.traffic.bytes_total
            for tensor, value in expected.items():
                np.testing.assert_array_equal(result.outputs[tensor], value)
