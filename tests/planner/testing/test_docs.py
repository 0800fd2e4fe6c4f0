"""The code of docs/testing.md runs and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def test_the_page_runs_and_prints_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    file = tmp_path / "page.py"
    file.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), encoding="utf-8")
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), {"__name__": "page"})
    assert capsys.readouterr().out == "".join(re.findall(r"\n\n```\n(.*?)```", text, re.DOTALL))
