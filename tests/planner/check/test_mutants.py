"""The checker against every single alteration of the hand-written plans.

A mutant that the checker rejects must be rejected for a reason that fits the alteration. One that it passes must be
harmless: in every order that its lanes and waits allow (all, when there are few; else 200 seeded unfair ones), from
poisoned memory, the toy machine gets the reference's values. Some of those are run by the workers as well, in seeded
adversarial orders.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tapestry.planner.format.document import Document
from tapestry.reference import evaluate

from ...workers.unchecked import run_unchecked
from . import plans, writing
from .harm import drawn, show
from .mutations import mutants

pytestmark = pytest.mark.long

SAMPLE, SEEDS = 8, 5


@pytest.mark.parametrize("name", plans.ALL)
def test_every_mutant_is_rejected_rightly_or_harmless(name: str) -> None:
    document = plans.ALL[name]()
    passed = show(document, mutants(document, writing.read(document)))
    sample = random.Random(name).sample(passed, min(SAMPLE, len(passed)))
    assert_it_runs_right(document, *sample)


def assert_it_runs_right(document: Document, *like: Document) -> None:
    program = writing.read(document)
    inputs = drawn(program)
    expected = evaluate(program, inputs)
    for plan in (document, *like):
        for seed in range(SEEDS):
            result = run_unchecked(plan, inputs, order=seed, poison=True)
            assert result.bytes_moved == plan.traffic.bytes_total
            for tensor, value in expected.items():
                np.testing.assert_array_equal(result.outputs[tensor], value)
