"""Indices outside of their axis on a GPU: a typed error, after which the GPU goes on; of replayed graphs as well."""

from __future__ import annotations

import pytest

from ...test_failed_steps import CASES, check_a_step_that_fails
from ..test_outside import check_what_follows, check_what_is_said
from .executed import needs_gpu

pytestmark = needs_gpu


@pytest.mark.parametrize("ranks", [1, 2])
def test_what_is_said(ranks: int) -> None:
    check_what_is_said("cupy", ranks)


def test_what_follows_in_replays_of_a_graph() -> None:
    check_what_follows("cupy")


@pytest.mark.parametrize("case", CASES)
def test_states_stay_what_they_were(case: str) -> None:
    check_a_step_that_fails("cupy", "h200x8", *CASES[case])
