"""Processes with a GPU each that are killed or stopped: a typed error soon, and nothing of the run is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from tapestry.errors import UsageError
from tapestry.inputs import random_inputs
from tapestry.planner.format.codec import encode
from tapestry.planner.search.explicit import plan_partitions
from tapestry.workers import Silent, TaskError
from tapestry.workers.engines.engine import Settings
from tapestry.workers.engines.launch import launch

from ...engines.test_faults import alive, wait_for
from .executed import MACHINE, cut_along, gpus, needs_two
from .test_on_gpu import example_program

pytestmark = needs_two
ENGINES, ROOT = Path(__file__).parents[2] / "engines", Path(__file__).parents[4]
LIMIT_S = 120  # of one test
SOON_S = 5.0
LEFT_BYTES = 64 << 20  # what a driver may keep of its own accord


def free_bytes() -> list[int]:
    """Of every GPU, as the driver says to a process of its own, which leaves no context here."""
    command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(line) << 20 for line in found.split()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run that has to end, and to leave no process, memory or file. SEEN has the numbers of its processes."""
    for name in ("tmp", "seen"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ENGINES), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    before = free_bytes()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT_S)
    yield tmp_path
    pids = [int(path.name.removeprefix("pid-")) for path in (tmp_path / "seen").glob("pid-*")]
    wait_for("the ranks to end", lambda: not any(map(alive, pids)), 10)
    wait_for(
        "the memory of the GPUs",
        lambda: all(a >= b - LEFT_BYTES for a, b in zip(free_bytes(), before, strict=True)),
        10,
    )
    wait_for("the folder to go", lambda: not list((tmp_path / "tmp").glob("tapestry-*")), 10)
    signal.alarm(0)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"a test took longer than {LIMIT_S} s")


def run_faulty(when: str, monkeypatch: pytest.MonkeyPatch, patience_s: float = 30.0) -> None:
    monkeypatch.setenv("WHEN", when)
    program = example_program("mlp")
    document = plan_partitions(program, MACHINE, cut_along(program, 2, last=True)).document
    launch([(document, random_inputs(program, 0))], Settings("faulty_gpu:Faulty", patience_s=patience_s))


def since(folder: Path) -> float:
    """Seconds since a rank ended."""
    return time.time() - float((folder / "seen" / "ended").read_text())


@pytest.mark.parametrize("when", ["start", "idle", "compute", "transfer"])
def test_a_rank_that_is_killed_ends_the_run_and_is_named(
    when: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TaskError, match="the process was ended by SIGKILL") as caught:
        run_faulty(when, monkeypatch)
    assert since(folder) < SOON_S
    assert caught.value.rank == 1


def test_a_rank_that_stops_answering_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 waits for it in a kernel of the transfer, which never ends."""
    with pytest.raises(Silent, match="has not answered for 4 s") as caught:
        run_faulty("stopped", monkeypatch, patience_s=4)
    assert since(folder) < 4 + SOON_S
    assert caught.value.rank == 1


LAUNCH = """
import sys
from pathlib import Path
import numpy as np
from tapestry.inputs import random_inputs
from tapestry.planner.format import Resolved
from tapestry.planner.format.codec import decode
from tapestry.workers.engines.engine import Settings
from tapestry.workers.engines.torchrun import TorchrunEngine
plan = Resolved(decode(Path(sys.argv[1]).read_bytes()))
TorchrunEngine().run(plan, random_inputs(plan.program, 0), Settings("faulty_gpu:Faulty"))
"""


def test_ranks_die_with_the_process_that_launched_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While their GPUs are busy with something long."""
    monkeypatch.setenv("WHEN", "late")
    program = example_program("mlp")
    document = plan_partitions(program, MACHINE, cut_along(program, 2, last=True)).document
    (folder / "plan.json").write_bytes(encode(document))
    environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCH, str(folder / "plan.json")], env=environment)
    try:
        wait_for("two ranks at work", lambda: len(list((folder / "seen").glob("busy-*"))) == 2, LIMIT_S)
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()


def test_a_plan_for_more_gpus_than_there_are(folder: Path) -> None:
    program = example_program("mlp")
    ranks = gpus() + 1
    document = plan_partitions(program, MACHINE, cut_along(program, ranks, last=False)).document
    with pytest.raises(UsageError, match="more ranks on this host than it has GPUs") as caught:
        launch([(document, random_inputs(program, 0))], Settings("cupy"))
    assert f"{gpus()}" in str(caught.value)
