"""Tables of a page, as markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import quote

from ...drawing.svg import Drawing, clean

TAB = "\t"


def row(*cells: str, head: bool = False, names: Sequence[str] = ()) -> str:
    """Cells are markup; one that starts with a tab is a number, set to the right. ``names``: what it is chosen by."""
    name = "th" if head else "td"
    plain, figure = f"<{name}>", f'<{name} class="n">'
    written = (f"{figure if cell[:1] == TAB else plain}{cell.removeprefix(TAB)}</{name}>" for cell in cells)
    return f"<tr{named(names) if names else ''}>{''.join(written)}</tr>"


def named(names: Iterable[str]) -> str:
    """The attribute by which the explorer finds a part of the page that is about operations or tensors."""
    return f' data-names="{" ".join(map(quote, names))}"'


def table(head: str, rows: Iterable[str]) -> str:
    """Scrolls by itself where the page is narrower."""
    return f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'


def wide(drawing: Drawing) -> str:
    return f'<div class="wide">{drawing.inline()}</div>'


def bar(share: float, colour: str, longest: int = 220) -> str:
    """A bar as long as a share of the longest."""
    return f'<div class="bar" style="width:{longest * share:.0f}px;background:{clean(colour)}"></div>'
