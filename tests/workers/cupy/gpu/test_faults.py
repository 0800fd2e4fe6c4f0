"""Processes with a GPU each that are killed or stopped: a typed error soon, and nothing of the run is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from msgspec.structs import replace

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import TapestryError, UsageError
from tapestry.inputs import random_inputs
from tapestry.planner.format import Document
from tapestry.planner.format.codec import encode
from tapestry.planner.search.explicit import plan_partitions
from tapestry.workers import Silent, TaskError
from tapestry.workers.engines.engine import Settings
from tapestry.workers.engines.launch import launch

from ....gpus import gpus, visible
from ...engines.test_faults import alive, wait_for
from ...sheets import Sheet, blur
from .executed import MACHINE, SEVERAL, cut_along, needs_two
from .test_lasting import TAKE
from .test_on_gpu import example_program

pytestmark = [*needs_two, pytest.mark.usefixtures("alone")]
ENGINES, ROOT = Path(__file__).parents[2] / "engines", Path(__file__).parents[4]
LIMIT_S = 120  # of one test
SOON_S, PATIENCE_S = 5.0, 4.0
LEFT_BYTES = 64 << 20  # what a driver may keep of its own accord


def free_bytes() -> list[int]:
    """Of every GPU, as the driver tells a process of its own, so that no context is made here."""
    command = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(line) << 20 for line in found.split()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where ranks leave word. Runs inside have to end, and to leave no process, memory or file."""
    for name in ("tmp", "seen"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ENGINES), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    before = free_bytes()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT_S)
    yield tmp_path / "seen"
    pids = [int(path.read_text()) for path in (tmp_path / "seen").glob("*-pid-*")]
    wait_for("the ranks to end", lambda: not any(map(alive, pids)), 10)
    wait_for("the folders to go", lambda: not list((tmp_path / "tmp").glob("tapestry-*")), 10)
    least = [found - LEFT_BYTES for found in before]
    wait_for("the memory", lambda: all(a >= b for a, b in zip(free_bytes(), least, strict=True)), 10)
    signal.alarm(0)


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"a test took longer than {LIMIT_S} s")


def planned(ranks: int) -> Document:
    program = example_program("mlp")
    return plan_partitions(program, MACHINE, cut_along(program, ranks, last=True)).document


def brought_from_the_host() -> Document:
    """Two ranks whose inputs lie in the memory of the host, and are copied to the GPU ahead of all else."""
    sheet = Sheet(blur(), 2)
    mine, wide = ["0:4", "4:8"], ["0:5", "3:8"]
    start, x = sheet.buffer("x", mine, initial=True), sheet.buffer("x", wide)
    y, z = sheet.buffer("y", wide), sheet.buffer("z", mine)
    copied = sheet.copy("x", start, x, mine)
    before = sheet.transfer("x", x, x, mine, wide, [copied])
    first = sheet.compute("first", mine, [x], y, [before])
    between = sheet.transfer("y", y, y, mine, wide, [first])
    sheet.compute("second", mine, [y], z, [between])
    document = sheet.document({"z": z})
    tiers = [replace(b, tier="host" if b.name == start else "hbm") for b in document.buffers]
    return replace(document, buffers=tuple(tiers))


ENDS = {
    "KilledAtStart": "the process was ended by SIGKILL",
    "KilledIdle": "the process was ended by SIGKILL",
    "KilledInAKernel": "the process was ended by SIGKILL",
    "KilledInACopy": "the process was ended by SIGKILL",
    "KilledInATransfer": "the process was ended by SIGKILL",
    "Stopped": f"the process has not answered for {PATIENCE_S:g} s",
}


@pytest.mark.parametrize("ranks", SEVERAL)
def test_a_rank_that_is_killed_or_stopped_ends_its_run_and_is_named(folder: Path, ranks: int) -> None:
    """All runs side by side."""
    document, inputs = planned(ranks), random_inputs(example_program("mlp"), 0)
    jobs = dict.fromkeys(ENDS, (document, inputs))
    jobs["KilledInACopy"] = brought_from_the_host(), {"x": np.arange(8, dtype=np.float32)}

    def ended(device: str) -> tuple[TapestryError, float]:
        with pytest.raises(TapestryError) as caught:
            launch([jobs[device]], Settings(f"faulty_gpu:{device}", patience_s=PATIENCE_S))
        return caught.value, time.time() - float((folder / f"{device}-ended-1").read_text())

    with ThreadPoolExecutor(len(ENDS)) as pool:
        found = dict(zip(ENDS, pool.map(ended, ENDS), strict=True))
    for device, (error, seconds) in found.items():
        assert isinstance(error, Silent if device == "Stopped" else TaskError), f"{device}: {error}"
        assert ENDS[device] in str(error)
        assert error.rank == 1
        assert seconds < SOON_S + PATIENCE_S * (device == "Stopped"), f"{device} took {seconds} s"


LAUNCH = """
import sys
from pathlib import Path
from tapestry.inputs import random_inputs
from tapestry.planner.format import Resolved
from tapestry.planner.format.codec import decode
from tapestry.workers.engines.engine import Settings
from tapestry.workers.engines.torchrun import TorchrunEngine
plan = Resolved(decode(Path(sys.argv[1]).read_bytes()))
TorchrunEngine().run(plan, random_inputs(plan.program, 0), Settings("faulty_gpu:Busy"))
"""


@pytest.mark.parametrize("ranks", SEVERAL)
def test_ranks_die_with_the_process_that_launched_them(folder: Path, ranks: int) -> None:
    """While their GPUs are busy with something long."""
    (folder / "plan.json").write_bytes(encode(planned(ranks)))
    environment = {**os.environ, "TMPDIR": str(folder.parent / "tmp")}
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCH, str(folder / "plan.json")], env=environment)
    try:
        wait_for("all ranks at work", lambda: len(list(folder.glob("Busy-busy-*"))) == ranks, LIMIT_S)
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()


@tp.program
def outer(x: f32[Tensor, "n"], y: f32[Tensor, "m"]) -> Tensor:
    return tp.sum(tp.exp(tp.einsum("n,m->nm", x, y)), axis=1)


@pytest.mark.parametrize("ranks", SEVERAL)
def test_memory_of_one_gpu_that_another_process_took(folder: Path, ranks: int) -> None:
    program = outer.bind(n=1 << 15, m=ranks << 14)
    document = plan_partitions(program, MACHINE, cut_along(program, ranks, last=False)).document
    job = document, random_inputs(program, 0)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible()[1]}
    other = subprocess.Popen(
        [sys.executable, "-c", TAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(TaskError, match=r"no memory for \d+ bytes of hbm") as caught:
            launch([job], Settings("cupy"))
        assert caught.value.rank == 1
    finally:
        other.communicate("")


def test_a_plan_for_more_gpus_than_there_are(folder: Path) -> None:
    document, inputs = planned(gpus() + 1), random_inputs(example_program("mlp"), 0)
    with pytest.raises(UsageError, match="more ranks on this host than it has GPUs") as caught:
        launch([(document, inputs)], Settings("cupy"))
    assert f"{gpus()}" in str(caught.value)
