"""Option texts as values, and what is said about those that are none."""

from __future__ import annotations

import pytest

from tapestry.errors import UsageError
from tapestry.planner.cli.options import Setting, parse_memory, parse_mesh, parse_settings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n=8", 8),
        ("n=-3", -3),
        ("n=1_000", 1000),
        ("eps=1e-6", 1e-6),
        ("causal=true", True),
        ("causal=False", False),
        ("dtype=bf16", "bf16"),
        ("x=nan", "nan"),
        ("name=a=b", "a=b"),
    ],
)
def test_settings(text: str, value: Setting) -> None:
    (found,) = parse_settings([text]).values()
    assert (type(found), found) == (type(value), value)


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
