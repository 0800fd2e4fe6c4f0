"""Which code a device is given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.kernels.errors import WrongValue
from tapestry.kernels.runtime.architecture import architecture, target

SUPPORTED = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)


@pytest.mark.parametrize(
    ("capability", "wanted"),
    [
        ((8, 0), "sm_80"),
        ((8, 6), "sm_86"),
        ((9, 0), "sm_90"),
        ((10, 0), "sm_100"),
        ((10, 7), "sm_103"),  # the same major version, a newer minor one: machine code still runs
        ((13, 2), "compute_121"),  # newer than the compiler: the driver assembles
    ],
)
def test_the_newest_code_that_runs(capability: tuple[int, int], wanted: str) -> None:
    assert target(capability, SUPPORTED) == wanted


def test_a_gpu_that_is_too_old_is_refused() -> None:
    with pytest.raises(WrongValue, match="too old"):
        target((7, 5), SUPPORTED)


@given(st.integers(8, 14), st.integers(0, 9), st.sets(st.sampled_from(SUPPORTED), min_size=1))
def test_code_is_never_newer_than_the_device(major: int, minor: int, supported: set[int]) -> None:
    if not any(80 <= number <= 10 * major + minor for number in supported):
        return
    found = architecture(target((major, minor), supported))
    assert found.number in supported
    assert 80 <= found.number <= 10 * major + minor
    assert found.portable or found.number // 10 == major
