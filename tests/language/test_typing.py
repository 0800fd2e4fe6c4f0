"""User programs pass ``mypy --strict``: the code of README.md and docs/language.md, and a file of what users write."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "language.md")
FOREIGN = "cupy.*,cupy_backends.*,networkx.*,numba.*,pytoulbar2.*,scipy.*,sklearn.*,threadpoolctl"
# The options of pyproject.toml: mypy reads again whatever it knows by other ones.
CONFIGURATION = f"""[mypy]
strict = true
warn_unreachable = true
[mypy-{FOREIGN}]
ignore_missing_imports = true
"""


def check(folder: Path, *files: Path) -> str:
    """What mypy --strict says of the files, with a configuration of the user's own.

    What it knows of our modules and of foreign ones it has from `make lint`, as from a user's earlier run.
    """
    config = folder / "mypy.ini"
    config.write_text(CONFIGURATION, encoding="utf-8")
    cache = ROOT / ".mypy_cache"
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", str(cache), *map(str, files)]
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=400)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One run over all: every page a module of its blocks one after another, and a file with mistakes."""
    folder = tmp_path_factory.mktemp("users")
    files = []
    for page in PAGES:
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        assert blocks
        files.append(folder / f"{page.stem.lower()}_page.py")
        files[-1].write_text("\n\n".join(blocks), encoding="utf-8")
    files.append(folder / "typed_programs.py")
    files[-1].write_text((ROOT / "tests" / "language" / "typed_programs.py").read_text(encoding="utf-8"))
    files.append(folder / "wrong.py")
    files[-1].write_text(WRONG, encoding="utf-8")
    return check(folder, *files)


WRONG = """import tapestry as tp
from tapestry import Tensor, f32


@tp.op
def double(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
    n = tp.indices("n")
    return x[n] * 2


@tp.program
def net(x: f32[Tensor, "n"]) -> Tensor:
    x.sum()
    double("x")
    tp.sum(x, axs=0)
    return double(x)
"""


def test_user_programs_pass(said: str) -> None:
    wrong = [line for line in said.splitlines() if ": error:" in line and not line.startswith("wrong.py")]
    assert wrong == []


def test_mistakes_are_found(said: str) -> None:
    lines = [
        int(line.split(":")[1]) for line in said.splitlines() if line.startswith("wrong.py") and ": error:" in line
    ]
    assert lines == [13, 14, 15]


def test_the_file_of_what_users_write_binds() -> None:
    names: dict[str, object] = {"__name__": "typed_programs"}
    path = ROOT / "tests" / "language" / "typed_programs.py"
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    assert names["names"] == ("out", "table", "t")
