"""The code of docs/language.md runs and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "language.md"


def test_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    file = tmp_path / "page.py"
    file.write_text(code, encoding="utf-8")
    exec(compile(code, str(file), "exec"), {"__name__": "page"})
    printed = re.sub(r"   # page\.py:\d+", "", capsys.readouterr().out)
    (shown,) = re.findall(r"```\n(program.*?)```", text, re.DOTALL)
    assert printed.startswith(shown)
    assert "update count" in printed
    assert "pin tensor y: data=t" in printed
