"""Processes that are stopped, and launchers that are killed: a run ends, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from tapestry.planner.format.codec import encode
from tapestry.workers import BytesDiffer, Deadlock, Silent, TaskError

from ..sheets import halo_blur
from ..unchecked import run_unchecked

pytestmark = pytest.mark.long

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[3]
LAUNCH = """
import sys
import numpy as np
from pathlib import Path
from tapestry.planner.format.codec import decode
from tapestry.workers.engines.engine import Settings
from tapestry.workers.engines.torchrun import TorchrunEngine
document = decode(Path(sys.argv[1]).read_bytes())
TorchrunEngine().run(document, {"x": np.arange(8, dtype=np.float32)}, Settings("faulty:Sleeping"))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made; ranks find the devices of `faulty`."""
    for name in ("tmp", "seen"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return tmp_path


def wait_for(what: str, found: object, limit_s: float = 900) -> None:
    assert callable(found)
    until = time.monotonic() + limit_s
    while not found():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ranks_die_with_the_process_that_launched_them(folder: Path) -> None:
    (folder / "plan.json").write_bytes(encode(halo_blur()))
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCH, str(folder / "plan.json")], env=environment)
    try:
        wait_for("two ranks at work", lambda: len(list((folder / "seen").iterdir())) == 2)
        pids = [int(path.name) for path in (folder / "seen").iterdir()]
        assert list((folder / "tmp").glob("tapestry-*"))
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    wait_for("the ranks to end", lambda: not any(map(alive, pids)))
    wait_for("the folder to go", lambda: not list((folder / "tmp").glob("tapestry-*")))


def test_a_rank_that_stops_answering_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    inputs = {"x": np.arange(8, dtype=np.float32)}
    with pytest.raises(Silent, match="has not answered for 4 s") as caught:
        run_unchecked(halo_blur(), inputs, engine="torchrun", device="faulty:Stopped", patience_s=4)
    assert (caught.value.rank, caught.value.task, caught.value.tensor) == (1, 1, "y")
    assert not list((folder / "tmp").iterdir())


def test_ranks_that_wait_for_one_another_end_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes answer, and nothing goes on: neither is stopped, and no plan is to blame."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    inputs = {"x": np.arange(8, dtype=np.float32)}
    with pytest.raises(Deadlock, match="no task has begun or ended for 3 s") as caught:
        run_unchecked(halo_blur(), inputs, engine="torchrun", device="faulty:Hanging", patience_s=3)
    assert "waits in task 0 (send x)" in str(caught.value)
    assert not list((folder / "tmp").iterdir())


@pytest.mark.parametrize("when", ["start", "transfer"])
def test_a_rank_that_is_killed_ends_the_run_and_is_named(
    when: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    monkeypatch.setenv("WHEN", when)
    with pytest.raises(TaskError, match="the process was ended by SIGKILL") as caught:
        run_unchecked(halo_blur(), {"x": np.arange(8, dtype=np.float32)}, engine="torchrun", device="faulty:Killed")
    inside = {"start": (None, ""), "transfer": (0, "x")}[when]
    assert (caught.value.rank, caught.value.task, caught.value.tensor) == (1, *inside)
    assert not list((folder / "tmp").iterdir())


def test_bytes_that_are_not_planned_are_an_error(folder: Path) -> None:
    inputs = {"x": np.arange(8, dtype=np.float32)}
    with pytest.raises(BytesDiffer, match="5 bytes came from rank 0, and 4 are planned") as caught:
        run_unchecked(halo_blur(), inputs, engine="torchrun", device="faulty:Spendthrift")
    assert (caught.value.rank, caught.value.task, caught.value.tensor) == (1, 0, "x")
