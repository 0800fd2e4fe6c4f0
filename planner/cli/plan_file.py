"""A plan given on the command line, and the options that commands on plans share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UsageError
from .talk import STREAM

if TYPE_CHECKING:
    from ..interface import Plan

PlanFile = Annotated[Path, typer.Argument(metavar="plan.json", help="What `tapestry plan -o` wrote; - is stdin.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def read_plan(path: Path) -> bytes:
    """The file's content, or for ``-`` that of stdin. UsageError when it cannot be read."""
    if path == STREAM:
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error


def given_plan(path: Path) -> Plan:
    """The plan of a file or of stdin. Raises what `tapestry.planner.load_plan` raises."""
    from ..format.codec import decode_unchanged
    from ..interface import Plan

    where = "stdin" if path == STREAM else str(path)
    return Plan(decode_unchanged(read_plan(path), where))
