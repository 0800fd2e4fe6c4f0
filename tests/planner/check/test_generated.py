"""Generated programs of every dtype and kind, planned, then altered: rejected rightly, or right on the real engine."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tapestry.planner import load_machine
from tapestry.planner.check import check
from tapestry.planner.search.explicit import plan_partitions
from tapestry.reference import evaluate
from tapestry.testing import assert_close, inputs_for, partitions, programs

from ...workers.unchecked import run_unchecked
from .harm import FITTING, judged
from .mutations import mutants

pytestmark = pytest.mark.long

MACHINE = replace(load_machine("cpu-4"), devices_per_host=8)
SAMPLE, SEEDS = 20, 3


@settings(max_examples=12)
@given(st.data())
def test_altered_plans_of_generated_programs(data: st.DataObject) -> None:
    program = data.draw(programs())
    shards = data.draw(st.integers(2, 4).flatmap(lambda ranks: partitions(program, ranks)))
    document = plan_partitions(program, MACHINE, shards).document
    assert check(document).ok, str(check(document))
    inputs = data.draw(inputs_for(program))
    expected = evaluate(program, inputs)
    found = list(mutants(document, program))
    for mutant in random.Random(len(found)).sample(found, min(SAMPLE, len(found))):
        note(f"{mutant.kind}: {mutant.what}")
        report = judged(mutant)
        if not report.ok:
            assert report.codes & FITTING[mutant.kind], f"{mutant.kind}: {mutant.what}\n{report}"
            continue
        for seed in range(SEEDS):
            result = run_unchecked(mutant.document, inputs, order=seed, poison=True)
            assert result.bytes_moved == mutant.document.traffic.bytes_total
            assert_close(program, inputs, result.outputs, expected)
