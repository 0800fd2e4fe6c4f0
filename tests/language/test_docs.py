"""The code of the pages runs and prints what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tapestry.expr import MONOIDS

DOCS = Path(__file__).parents[2] / "docs"


def executed(page: str, tmp_path: Path) -> str:
    """The text of a page, all of its code having run, block after block."""
    text = (DOCS / page).read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    file = tmp_path / "page.py"
    file.write_text(code, encoding="utf-8")
    exec(compile(code, str(file), "exec"), {"__name__": "page"})
    return text


def test_the_page_of_the_language_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = executed("language.md", tmp_path)
    printed = re.sub(r"   # page\.py:\d+", "", capsys.readouterr().out)
    (shown,) = re.findall(r"```\n(program.*?)```", text, re.DOTALL)
    assert printed.startswith(shown)
    assert "update count" in printed
    assert "pin tensor y: data=t" in printed


def test_the_page_of_what_may_be_added_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = set(MONOIDS)
    try:
        executed("extending.md", tmp_path)
    finally:
        for name in set(MONOIDS) - known:
            del MONOIDS[name]
    assert "= powers[k] x[n, k]" in capsys.readouterr().out
