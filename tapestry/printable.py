"""Text for terminals: what would act on one is shown as an escape; rows in columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Control characters of ASCII and Latin-1, line and paragraph separators, marks and overrides of the writing direction,
# characters without width, halves of surrogate pairs.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb"
)
_IN_A_TEXT = re.compile(f"[{_UNSEEN}]")
_IN_A_LINE = re.compile(f"[\t\n{_UNSEEN}]")


def printable(text: str, *, line: bool = False) -> str:
    r"""The text with characters that act on a terminal written as escapes; with ``line``, line ends and tabs as well.

    >>> print(printable("w\x1b[2J"), printable("a\nb", line=True))
    w\x1b[2J a\nb
    """
    return (_IN_A_LINE if line else _IN_A_TEXT).sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


def columns(rows: Sequence[Sequence[str]], *, indent: str = "") -> str:
    """Left-aligned columns, two blanks apart.

    >>> print(columns([["a", "1"], ["bcd", "22"]]))
    a    1
    bcd  22
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(indent + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
