"""The command line as a function: arguments in, exit code and the two streams out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tapestry.planner.cli import main


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Tapestry = Callable[..., Ended]


@pytest.fixture
def tapestry(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tapestry:
    """`tapestry("machine", "list")` runs the command in this process."""
    monkeypatch.delenv("TAPESTRY_DEBUG", raising=False)

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["tapestry", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        assert "Traceback" not in err
        return Ended(code if isinstance(code, int) else int(code is not None), out, err)

    return run
