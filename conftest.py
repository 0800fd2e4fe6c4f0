"""What every test of the project shares: which folders pytest walks, in which order, and how hypothesis draws."""

import gc
import os

import pytest
from hypothesis import settings

# The code of these folders is reached through `tapestry/`, once (docs/decisions/0001-symlinked-packages.md).
collect_ignore = ["planner", "kernels", "workers", "build"]

# Times say more about the machine than about the code; the same draws every time, except when fuzzing.
settings.register_profile("tapestry", deadline=None, derandomize="TAPESTRY_FUZZ" not in os.environ)
settings.load_profile("tapestry")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that are marked `long` come first, so that no worker is left alone with one."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """What was collected stays until the end: the garbage collector need not look at it again, nor as often."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
