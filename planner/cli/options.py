"""The texts of command-line options as values. Every malformed text is a UsageError that names the option."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import typer

from ...errors import UsageError
from ..machine.units import parse_budgets

Force = Annotated[bool, typer.Option("--force", help="Replace files that are there already.")]

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def is_setting(text: str) -> bool:
    return _ASSIGNMENT.fullmatch(text) is not None


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """`name=value` texts as a dict; the program reads each value by the type of its parameter.

    >>> parse_settings(["layers=32", "causal=true"])
    {'layers': '32', 'causal': 'true'}
    """
    settings: dict[str, str] = {}
    for text in texts:
        name, value = _assignment(text, "--set")
        if name in settings:
            raise UsageError(f"--set gives {name!r} twice", sides={"first": settings[name], "then": value})
        settings[name] = value
    return settings


def _assignment(text: str, option: str) -> tuple[str, str]:
    match = _ASSIGNMENT.fullmatch(text)
    if match is None or not match[2]:
        raise UsageError(f"{option} takes name=value, not {text!r}")
    return match[1], match[2]


def parse_mesh(text: str) -> tuple[int, ...] | dict[str, int]:
    """`8` and `2x4` are sizes of mesh axes; `data=2,model=4` names them too.

    >>> parse_mesh("2x4"), parse_mesh("data=2,model=4")
    ((2, 4), {'data': 2, 'model': 4})
    """
    if "=" not in text:
        return tuple(_axis(size, text) for size in text.split("x"))
    pairs = [_assignment(part.strip(), "--mesh") for part in text.split(",")]
    if len(dict(pairs)) < len(pairs):
        raise UsageError(f"--mesh names an axis twice: {text!r}")
    return {name: _axis(size, text) for name, size in pairs}


def _axis(size: str, text: str) -> int:
    if not re.fullmatch("0{0,9}[1-9][0-9]{0,9}", size):
        raise UsageError(f"--mesh {text!r} has an axis of size {size!r}", hint="write 8, 2x4 or data=2,model=4")
    return int(size)


def parse_memory(text: str) -> int | dict[str, int]:
    """Budgets in bytes: of the tier that compute uses, or of the tiers named.

    >>> parse_memory("8GiB"), parse_memory("hbm=3.5GiB,host=0")
    (8589934592, {'hbm': 3758096384, 'host': 0})
    """
    try:
        return parse_budgets(text)
    except UsageError as error:
        where = f"--memory {error.where or ''}".strip()
        raise UsageError(error.what, where=where, sides=error.sides, hint=error.hint) from error
