"""A compiler's complaint with the lines it is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

CONTEXT = 2  # lines shown before and after
SHOWN = 5  # complaints shown with their lines

_COMPLAINT = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?P<text>(?:catastrophic |fatal )?error.*)$", re.MULTILINE
)


def describe(log: str, sources: Mapping[str, str]) -> str:
    """The first errors of a log, each under the lines of source it points at; the whole log where none points anywhere.

    `sources` are the files by the names the compiler uses.
    """
    shown = list(_complaints(log, sources))
    if not shown:
        return log.strip()
    rest = len(shown) - SHOWN
    return "\n".join(shown[:SHOWN] + ([f"... and {rest} more"] if rest > 0 else []))


def _complaints(log: str, sources: Mapping[str, str]) -> Iterator[str]:
    for match in _COMPLAINT.finditer(log):
        head = f"{match['file']}:{match['line']}: {match['text']}"
        yield "\n".join([head, *_excerpt(sources.get(match["file"], ""), int(match["line"]))])


def _excerpt(text: str, number: int) -> Iterator[str]:
    lines = text.splitlines()
    for at in range(max(1, number - CONTEXT), min(len(lines), number + CONTEXT) + 1):
        yield f"  {'>' if at == number else ' '} {at:>5} | {lines[at - 1]}"
