"""What the language has beside operations, on a GPU: element types, results in place, scans, reads where data say,
random numbers, and steps of decoding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tapestry.dtypes import DTYPES
from tapestry.inputs import random_inputs
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.space import Region
from tapestry.testing import assert_close, partitions

from ....files import example
from ....language.test_scans import CUMULATIVE, recurrent, scanned
from ....operations.test_dtypes import mixed_program, run_conversions
from ....operations.test_random import assert_same_bits, drawing
from ... import test_in_place as functions
from ...test_selections import inputs_of, selecting
from ...unchecked import run_unchecked
from .. import test_in_place as ways
from ..test_selections import INPUTS, PROGRAM
from .executed import EXAMPLES, cut_along, executed, executed_cut, needs_gpu, whole

pytestmark = needs_gpu


@pytest.mark.long
@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - {"bool"}))
def test_every_element_type(dtype: str) -> None:
    program, inputs = mixed_program(dtype)
    executed(program, whole(program), inputs)
    executed_cut(program, inputs, 2, len(dtype))


def test_conversions_round_as_the_reference_does() -> None:
    run_conversions("cupy")


# -- in place ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", sorted({name for name, _, _ in functions.CASES}))
def test_a_function_over_each_of_its_arguments(function: str) -> None:
    for _, dtype, place in (case for case in functions.CASES if case[0] == function):
        program = functions.called(function, dtype)
        assert program is not None
        inputs = random_inputs(program, 3)
        with np.errstate(all="ignore"):
            expected = evaluate(program, inputs)
            found = run_unchecked(functions.over(program, place), inputs, device="cupy")
            assert_close(program, inputs, found.outputs, expected)


@pytest.mark.parametrize("cut", [ways.whole, ways.stretches])
@pytest.mark.parametrize("name", ways.CASES)
def test_what_is_written_over_is_read_first(name: str, cut: Callable[[Program], dict[str, list[Region]]]) -> None:
    ways.written_over(name, cut, "cupy")


# -- scans and selections ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("monoid", [*CUMULATIVE, "recurrence"])
def test_scans_in_one_piece_and_in_blocks_that_are_cut_apart(monoid: str) -> None:
    for blocks in (1, 4):
        if monoid == "recurrence":
            program = recurrent.bind(t=24, n=3, blocks=blocks)
        else:
            program = scanned.bind(n=3, t=24, monoid=monoid, blocks=blocks)
        inputs = random_inputs(program, 1)
        for ranks, last in ((1, False), (4, False), (4, True)):
            executed(program, cut_along(program, ranks, last=last), inputs)
        executed_cut(program, inputs, 2, blocks)


def test_lookups_and_writes_where_data_say() -> None:
    executed(PROGRAM, whole(PROGRAM), INPUTS)
    executed_cut(PROGRAM, INPUTS, 6, 1)


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(4))
def test_folds_that_select_by_data(chunk: int) -> None:
    @settings(
        max_examples=max(1, EXAMPLES // 50),
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.data())
    def execute(data: st.DataObject) -> None:
        program = data.draw(selecting())
        inputs = inputs_of(program, data.draw(st.integers(0, 99)))
        shards = data.draw(partitions(program, data.draw(st.integers(1, 3))))
        found = executed(program, shards, inputs)
        np.testing.assert_array_equal(found.outputs["out"], evaluate(program, inputs)["out"])

    seed(chunk)(execute)()


# -- random numbers ----------------------------------------------------------------------------------------------------


def test_random_numbers_are_the_same_bits_however_they_are_cut() -> None:
    program, inputs = drawing()
    wanted = evaluate(program, inputs)
    for ranks, last in ((1, False), (3, False), (3, True)):
        found = executed(program, cut_along(program, ranks, last=last), inputs)
        assert_same_bits(program, found.outputs, wanted)


# -- examples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 2])
def test_tokens_decoded_one_by_one(ranks: int) -> None:
    """The cache is a state: what one step leaves is what the next finds."""
    step = example("llama").decode_step.bind(layers=1, d=64, heads=4, kv_heads=2, ffn=96, context=8, vocabulary=40)
    held = random_inputs(step, seed=3)
    held |= {name: np.zeros_like(held[name]) for name, _ in step.states}
    for place, token in enumerate([3, 39, 0]):
        held |= {"token": np.array([token], np.int32), "at": np.array(place, np.int32)}
        found = executed(step, cut_along(step, ranks, last=True), held)
        held |= {name: found.outputs[name] for name, _ in step.states}
