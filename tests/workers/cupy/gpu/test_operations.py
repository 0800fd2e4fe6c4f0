"""Every public operation on a GPU, as its cases have it: whole, and cut over ranks, against the reference."""

from __future__ import annotations

import pytest

from tapestry.errors import UsageError
from tapestry.testing import program_of

from ....operations.cases import CASES, FIRST
from ....operations.registry import Case
from ....operations.test_operations import named
from .executed import executed, executed_cut, needs_gpu, whole

pytestmark = needs_gpu
FOURIER = {"fft", "ifft", "rfft", "irfft"}


@pytest.mark.parametrize("case", named(CASES))
def test_it_computes_what_the_reference_does(case: Case) -> None:
    """In f32, in which GPUs compute."""
    compare(case, "f32")


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16"])
@pytest.mark.parametrize("case", named(list(FIRST.values())))
def test_it_does_so_in_other_types(case: Case, dtype: str) -> None:
    """The long one, and short ones, for whose results some functions are approximated."""
    if case.name in FOURIER and dtype != "f64":
        with pytest.raises(UsageError, match="takes an axis of f32 or f64"):
            compare(case, dtype)
    else:
        compare(case, dtype)


def compare(case: Case, dtype: str) -> None:
    inputs = dict(case.in_dtype(dtype))
    program = program_of(case.call, **inputs)
    executed(program, whole(program), inputs)
    executed_cut(program, inputs, 1, len(case.name))
