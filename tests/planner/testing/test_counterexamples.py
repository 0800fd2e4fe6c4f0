"""A counterexample is printed as text that is the program again where it is pasted."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.vendor.pretty import pretty

import tapestry as tp
from tapestry.program import Program
from tapestry.testing import programs


def pasted(text: str) -> Program:
    """What the first program of a message is."""
    (found,) = re.findall(r'tp\.parse\("""\\\n(.*?)"""\)', text, re.DOTALL)[:1]
    return tp.parse(found)


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(programs())
def test_a_drawn_program_prints_as_what_makes_it(program: Program) -> None:
    found = pasted(pretty(program))
    assert str(found) == str(program)
    assert (set(found.tensors), found.operations) == (set(program.tensors), program.operations)


def test_what_hypothesis_says_of_a_failure_holds_the_smallest_program() -> None:
    @settings(max_examples=50, database=None, suppress_health_check=list(HealthCheck))
    @given(programs())
    def no_sums(program: Program) -> None:
        assert all(op.monoid != "sum" for op in program.operations)

    with pytest.raises(AssertionError) as error:
        no_sums()
    found = pasted("\n".join(error.value.__notes__))
    assert [op.monoid for op in found.operations].count("sum") == 1
    assert len(found.operations) <= 3
