"""The command line as a function: arguments in, exit code and the two streams out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tapestry.planner.cli import main

from .planned import planned


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


NET = """
import tapestry as tp
from tapestry import Tensor, f32, param

@tp.program
def net(x: f32[Tensor, "n m"], w: param[f32[Tensor, "m k"]]) -> Tensor:
    return tp.relu(x @ w)
"""
SET = ("--set", "n=64", "m=16", "k=32")


@pytest.fixture
def net(tmp_path: Path) -> str:
    """A product, as a program is given to a command."""
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    return f"{tmp_path / 'net.py'}:net"


@pytest.fixture(scope="session")
def _product(tmp_path_factory: pytest.TempPathFactory) -> str:
    return planned(tmp_path_factory.mktemp("product"), NET, *SET[1:])


@pytest.fixture
def plan_file(_product: str, tmp_path: Path) -> Path:
    """Its plan, for four ranks."""
    path = tmp_path / "plan.json"
    path.write_text(_product, encoding="utf-8")
    return path
