"""docs/kernels-runtime.md: what stands before "On a GPU" runs, and prints what it says it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

DOC = Path(__file__).parents[3] / "docs" / "kernels-runtime.md"


def test_the_page_runs() -> None:
    text = DOC.read_text(encoding="utf-8").partition("## On a GPU")[0]
    blocks = re.findall(r"```python\n(.*?)```(?:\n```\n(.*?)```)?", text, re.DOTALL)
    names: dict[str, Any] = {}
    assert len(blocks) == 3
    for code, said in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, str(DOC), "exec"), names)
        assert not said or out.getvalue() == said
    assert [kernel.name for kernel in names["made"]] == ["forward", "forward"]
    assert (names["kernel"].registers, names["kernel"].shared) > (0, -1)
