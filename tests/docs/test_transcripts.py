"""The pages that show a terminal show what it prints, and their code runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tapestry.planner.cli.app import app

from .transcript import DOCS, PAGES, brought_up_to_date


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_is_printed(page: str, tmp_path: Path) -> None:
    """If it does not: ``python -m tests.docs.transcript``, and look at what changed."""
    text = (DOCS / page).read_text(encoding="utf-8")
    assert brought_up_to_date(text, tmp_path) == text


def test_every_command_has_its_help_on_the_page() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [f"## {name}" for name in commands()]


def commands() -> Iterator[str]:
    def below(command: Any, name: str) -> Iterator[str]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name
        else:
            for word, each in inner.items():
                yield from below(each, f"{name} {word}")

    return below(typer.main.get_command(app), "tapestry")
