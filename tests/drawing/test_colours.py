"""Colours of drawings, also where they are shown by something that knows no variables: Inkscape, LaTeX, previews."""

from __future__ import annotations

import re

from tapestry.drawing.svg import style_sheet


def test_every_colour_of_the_theme_is_said_in_plain_before() -> None:
    sheet = style_sheet("page.css")
    day = dict(re.findall(r"--(\w+):(#\w+)", sheet.partition("@media")[0]))
    declarations = re.findall(r"[{;]([\w-]+):var\(--(\w+)\)", sheet)
    assert ("fill", "paper") in declarations
    for name, colour in declarations:
        assert f"{name}:{day[colour]};{name}:var(--{colour})" in sheet
