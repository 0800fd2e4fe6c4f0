"""Writing SVG: elements as text, numbers short, names escaped, colours by theme.

A drawing carries its own style sheet. Inside an HTML page the same sheet stands once in the page, so the drawings
follow its theme.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from ..printable import printable

Value = str | int | float | None

_NOT_XML = re.compile("[\ufffe\uffff]")  # what `printable` leaves


def style_sheet(*more: str) -> str:
    """The sheet of all drawings, and further ones of this folder, without comments and blanks that say nothing."""
    sheets = (files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("drawing.css", *more))
    short = re.sub(r"\s*([{};:,])\s+", r"\1", re.sub(r"/\*.*?\*/\s*", "", "".join(sheets))).replace("\n", "")
    day = dict(re.findall(r"--(\w+):(#\w+)", short.partition("@media")[0]))
    # What knows no variables takes the colour before, and would draw all in black without it.
    return re.sub(r"([\w-]+):var\(--(\w+)\)", lambda found: f"{found[1]}:{day[found[2]]};{found[0]}", short)


def clean(text: str) -> str:
    """Text fit for XML content and attributes: escaped, and what acts instead of being seen written as its escape."""
    return escape(_NOT_XML.sub("\N{REPLACEMENT CHARACTER}", printable(text)))


def number(value: float) -> str:
    """At most two decimals, no trailing zeros.

    >>> number(3.0), number(0.126), number(-0.001)
    ('3', '0.13', '0')
    """
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def tag(name: str, *children: str, **attributes: Value) -> str:
    """An element; children are markup. ``stroke_width`` is written stroke-width, ``class_`` class; None leaves it out.

    >>> tag("g", tag("title", "x"), class_="a", stroke_width=1.5)
    '<g class="a" stroke-width="1.5"><title>x</title></g>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{clean(value) if isinstance(value, str) else number(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    content = "".join(children)
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def title(text: str) -> str:
    """What shows when the pointer rests on the element it is a child of."""
    return tag("title", clean(text))


def rect(x: float, y: float, width: float, height: float, *children: str, **attributes: Value) -> str:
    """A rectangle; negative sizes become none."""
    return tag("rect", *children, x=x, y=y, width=max(width, 0), height=max(height, 0), **attributes)


def text(x: float, y: float, content: str, class_: str = "", **attributes: Value) -> str:
    """A line of text with its baseline at y."""
    return tag("text", clean(content), x=x, y=y, class_=class_ or None, **attributes)


def line(x1: float, y1: float, x2: float, y2: float, class_: str = "line", **attributes: Value) -> str:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, **attributes)


def text_width(content: str, size: float = 12) -> float:
    """About how wide a text is in the sans-serif faces that the style sheet asks for."""
    narrow = sum(character in "fijlrtI.,:;|'!()[] " for character in content)
    return size * (0.62 * (len(content) - narrow) + 0.38 * narrow)


def shortened(content: str, width: float, size: float = 12) -> str:
    """The text, or as much of its end as fits behind an ellipsis: in dotted names the end tells most."""
    if text_width(content, size) <= width:
        return content
    while content and text_width("…" + content, size) > width:
        content = content[1:]
    return "…" + content if len(content) > 1 else ""


@dataclass(frozen=True)
class Drawing:
    """A finished picture: its size and its markup. ``label`` is read out to those who do not see it.

    ``defs`` are the patterns and pictures that it refers to; a page of several drawings holds them once.
    """

    width: float
    height: float
    body: str
    label: str = ""
    defs: tuple[str, ...] = ()

    def inline(self) -> str:
        """For a page that has the `style_sheet`."""
        return self._svg("", "")

    def alone(self) -> str:
        """As a file, with a background."""
        style = tag("style", style_sheet()) + (tag("defs", *self.defs) if self.defs else "")
        return self._svg(style, rect(0, 0, self.width, self.height, class_="paper")) + "\n"

    def at(self, x: float, y: float) -> str:
        """As part of another drawing."""
        return tag("g", self.body, transform=f"translate({number(x)} {number(y)})")

    def _svg(self, style: str, paper: str) -> str:
        box = f"0 0 {number(self.width)} {number(self.height)}"
        attributes: Mapping[str, Value] = {"width": self.width, "height": self.height, "viewBox": box, "role": "img"}
        return tag(
            "svg", style, title(self.label) if self.label else "", paper, self.body,
            xmlns="http://www.w3.org/2000/svg", class_="tapestry", **attributes,
        )  # fmt: skip


def stacked(drawings: list[Drawing], gap: float = 24, label: str = "") -> Drawing:
    """Drawings below one another."""
    y, parts = 0.0, []
    for drawing in drawings:
        parts.append(drawing.at(0, y))
        y += drawing.height + gap
    width = max((drawing.width for drawing in drawings), default=0)
    return Drawing(width, max(y - gap, 0), "".join(parts), label, all_defs(drawings))


def all_defs(drawings: Iterable[Drawing]) -> tuple[str, ...]:
    """What the drawings refer to, each once."""
    return tuple(dict.fromkeys(entry for drawing in drawings for entry in drawing.defs))
