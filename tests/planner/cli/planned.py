"""Plans that many tests of the command line begin with: written by it, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapestry.planner.cli import main


def planned(folder: Path, source: str, *sizes: str) -> str:
    """The plan that `tapestry plan net.py:net --set SIZES` writes for four ranks."""
    (folder / "net.py").write_text(source, encoding="utf-8")
    arguments = [f"{folder / 'net.py'}:net", "--set", *sizes, "--machine", "cpu-4", "--mesh", "4"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["tapestry", "plan", *arguments, "-o", str(folder / "plan.json")])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return (folder / "plan.json").read_text(encoding="utf-8")
