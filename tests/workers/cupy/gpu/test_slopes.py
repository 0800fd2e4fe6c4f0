"""Slopes of attention on a GPU: by cuDNN, and by torch's products."""

from __future__ import annotations

import pytest

from ...slopes import LARGE, SMALL, Case
from .executed import needs_gpu

pytestmark = needs_gpu


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("case", [*SMALL, *LARGE], ids=str)
def test_slopes_are_those_of_the_reference(case: Case, ranks: int) -> None:
    case.check(ranks, "cupy")


@pytest.mark.parametrize("case", [case for case in (*SMALL, *LARGE) if case.sizes[0] >= 4], ids=str)
def test_queries_from_both_ends(case: Case) -> None:
    case.check_zigzag("cupy")
