"""Every public operation on a GPU, as its cases have it: whole, and cut over ranks, against the reference."""

from __future__ import annotations

import pytest

from tapestry.testing import program_of

from ....operations.cases import CASES
from ....operations.registry import Case
from ....operations.test_operations import named
from .executed import executed, executed_cut, needs_gpu, whole

pytestmark = needs_gpu


@pytest.mark.parametrize("case", named(CASES))
def test_it_computes_what_the_reference_does(case: Case) -> None:
    """In f32, in which GPUs compute."""
    inputs = dict(case.in_dtype("f32"))
    program = program_of(case.call, **inputs)
    executed(program, whole(program), inputs)
    executed_cut(program, inputs, 1, len(case.name))
