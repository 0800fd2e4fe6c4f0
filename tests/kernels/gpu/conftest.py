"""Tests of this folder take turns on GPUs that others use too."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from ...gpus import in_turn


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    return (yield from in_turn(item, nextitem))
