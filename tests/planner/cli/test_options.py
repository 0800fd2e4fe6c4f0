"""Option texts as values, and what is said about those that are none."""

from __future__ import annotations

import pytest

from tapestry.errors import UsageError
from tapestry.planner.cli.options import parse_memory, parse_mesh, parse_settings


def test_settings_are_texts_by_name() -> None:
    assert parse_settings(["n=8", "dtype=bf16", "name=a=b"]) == {"n": "8", "dtype": "bf16", "name": "a=b"}


@pytest.mark.parametrize("texts", [["n"], ["n="], ["=3"], ["3=n"], ["a b=3"], ["n=1", "n=2"]])
def test_settings_that_are_none(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="--set"):
        parse_settings(texts)


@pytest.mark.parametrize(
    "text", ["", "0", "2x", "2x0", "-1", "2*4", "1.5", "data=2,model", "data=2,data=4", "data=", "²"]
)
def test_meshes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--mesh"):
        parse_mesh(text)


@pytest.mark.parametrize("text", ["", "hbm", "hbm=", "hbm=much", "hbm=-1", "hbm=1,hbm=2", "hbm=1GiB;host=2"])
def test_budgets_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--memory"):
        parse_memory(text)


def test_a_budget_without_a_tier_is_of_the_memory_beside_the_compute() -> None:
    assert parse_memory("8GiB") == 8 << 30
    assert parse_memory("hbm=8GiB, host=0") == {"hbm": 8 << 30, "host": 0}
