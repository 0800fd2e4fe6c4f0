"""One HTML file, whole in itself: its style and its pictures are inside, nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .svg import clean, style_sheet


@dataclass(frozen=True)
class Section:
    """A heading and its markup."""

    heading: str
    body: str

    @property
    def anchor(self) -> str:
        return "".join(c if c.isalnum() else "-" for c in self.heading.lower())


def page(heading: str, subtitle: str, sections: Sequence[Section], head: str = "", made_by: str = "show") -> str:
    """The file's text. ``head`` is markup under the title, before the sections; ``made_by`` the command, at the end."""
    links = "".join(f'<a href="#{section.anchor}">{clean(section.heading)}</a>' for section in sections)
    body = "".join(f'<section id="{s.anchor}"><h2>{clean(s.heading)}</h2>{s.body}</section>' for s in sections)
    sheet = style_sheet("page.css")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{clean(heading)}</title><style>{sheet}</style></head>"
        f'<body class="tapestry"><header><h1>{clean(heading)}</h1><div class="soft">{subtitle}</div>'
        f"{head}<nav>{links}</nav></header>"
        f"<main>{body}<footer>Made by tapestry {made_by}.</footer></main></body></html>\n"
    )
