"""A plan given on the command line, and the options that commands on plans share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...errors import UsageError

PlanFile = Annotated[Path, typer.Argument(metavar="plan.json", help="A plan that `tapestry plan -o` wrote.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def read_plan(path: Path) -> bytes:
    """The file's content. UsageError when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error
