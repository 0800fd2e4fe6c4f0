"""Tests of this folder take turns on GPUs that others use too."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ....gpus import in_turn


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Values are what is tested here: a plan for one kind of GPU gives the same ones on another."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::tapestry.workers.OtherHardware"))


@pytest.fixture
def alone() -> None:
    """No other test runs meanwhile: for those that take, or measure, all of a GPU."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    return (yield from in_turn(item, nextitem))
