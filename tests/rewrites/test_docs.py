"""The code of docs/rewrites.md runs and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tapestry.rewrites import RULES

PAGE = Path(__file__).parents[2] / "docs" / "rewrites.md"


def test_the_page_runs_and_prints_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    known = dict(RULES)
    file = tmp_path / "page.py"
    file.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), encoding="utf-8")
    try:
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), {"__name__": "page"})
    finally:
        for name in RULES.keys() - known.keys():
            del RULES[name]
    assert capsys.readouterr().out == "".join(re.findall(r"\n\n```\n(.*?)```", text, re.DOTALL))
