"""The site is made of docs/ without a warning, and every link between its pages leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .transcript import DOCS

ROOT = DOCS.parent
# [text](target), but not an image of another place or a link to the net; what stands in code is no link.
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(#[^)\s]*)?\)")


@pytest.mark.long
def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(DOCS), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode, made.stderr) == (0, "")
    assert 'class="toctree' in (tmp_path / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", sorted(p.relative_to(ROOT).as_posix() for p in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
)
def test_links_lead_to_files(page: str) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target for target, _ in _LINK.findall(text) if target]
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []
