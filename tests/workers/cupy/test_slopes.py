"""Slopes of attention by torch's products, and by the calls that cuDNN is asked for."""

from __future__ import annotations

import pytest

from ..slopes import LARGE, SMALL, Case
from .host_machine import HostMachine

pytest.importorskip("torch")


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("case", [case for case in SMALL if case.dtype != "bf16"], ids=str)
def test_slopes_are_those_of_the_reference(case: Case, ranks: int, on_host: str) -> None:
    case.check(ranks, on_host)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("case", [case for case in LARGE if case.dtype != "bf16"], ids=str)
def test_a_library_is_asked_for_what_it_has(case: Case, ranks: int, on_host: str, machine: HostMachine) -> None:
    case.check(ranks, on_host)
    asked = machine.kernels.count("library slopes")
    assert asked
    t, s, *_ = case.sizes
    if ranks == 1:  # one call for the slopes of all: of the keys that all see, and of the others
        assert asked == (2 if case.seen.get("offset", 0) > 0 or t > s else 1)
