"""Products whose algorithm is measured are right by whichever it is."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.reference import evaluate
from tapestry.testing import assert_close
from tapestry.workers.cupy import quickest

from .executed import needs_gpu

pytestmark = needs_gpu


@tp.program
def added(a: f32[Tensor, "i=256 k=384"], b: f32[Tensor, "k=384 j=96"], r: f32[Tensor, "i=256 j=96"]) -> Tensor:
    return tp.relu(a @ b) + (a @ b + r)


@pytest.mark.parametrize("chosen", range(4))
def test_every_algorithm_gives_the_product(monkeypatch: pytest.MonkeyPatch, chosen: int) -> None:
    monkeypatch.setattr(quickest, "LARGE", 1)
    measured: list[int] = []
    monkeypatch.setattr(quickest, "least", lambda times: measured.append(len(times)) or min(chosen, len(times) - 1))
    program = added.bind()
    inputs = random_inputs(program, 3)
    found = plan(program, "h200", mesh=(1,), time_limit=20).run(inputs, device="cupy")
    assert measured
    assert np.isfinite(next(iter(found.outputs.values()))).all()
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
