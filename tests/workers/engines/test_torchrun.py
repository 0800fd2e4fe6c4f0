"""Processes under torchrun: the same bits as in one process, and errors that end every rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tapestry.errors import UsageError
from tapestry.planner import load_machine
from tapestry.planner.format import Document
from tapestry.planner.search.explicit import plan_partitions
from tapestry.testing import inputs_for, partitions, programs
from tapestry.workers import TaskError
from tapestry.workers.engines.engine import Settings
from tapestry.workers.engines.launch import Job, _first_error, launch
from tapestry.workers.faults import described

from ..sheets import halo_blur, split_matmul
from ..unchecked import run_unchecked

pytestmark = pytest.mark.long

X = np.arange(8, dtype=np.float32)


def generated(count: int) -> list[Job]:
    """Plans of generated programs under random partitions on up to four ranks."""
    jobs: list[Job] = []
    machine = load_machine("h200x8")

    @seed(1)
    @settings(max_examples=count, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        program = data.draw(programs())
        shards = data.draw(partitions(program, data.draw(st.integers(1, 4))))
        jobs.append((plan_partitions(program, machine, shards).document, data.draw(inputs_for(program))))

    draw()
    return jobs


def test_generated_plans_give_the_same_bits_as_in_one_process() -> None:
    """Sixty plans on one process group, memory poisoned in both engines."""
    rng = np.random.default_rng(0)
    matmul = {"a": rng.random((6, 8), np.float32), "b": rng.random((8, 5), np.float32)}
    jobs = [*generated(60), (split_matmul(), matmul), (halo_blur(), {"x": X})]
    for (document, inputs), got in zip(jobs, launch(jobs, Settings("numpy", poison=True)), strict=True):
        want = run_unchecked(document, inputs, poison=True)
        assert got.bytes_moved == want.bytes_moved
        assert {(e.rank, e.task, e.lane) for e in got.events} == {(e.rank, e.task, e.lane) for e in want.events}
        assert got.outputs.keys() == want.outputs.keys()
        for name, value in want.outputs.items():
            assert got.outputs[name].dtype == value.dtype
            assert got.outputs[name].tobytes() == value.tobytes(), name


def broken() -> Document:
    """Rank 1 is told to compute an element whose operand it does not store."""
    document = halo_blur()
    shards = document.tasks[1].shards  # type: ignore[union-attr]
    wrong = msgspec.structs.replace(document.layouts[shards], regions=("0:4", "2:8"))
    return msgspec.structs.replace(document, layouts={**document.layouts, shards: wrong})


def test_a_failure_on_one_rank_ends_all_and_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TaskError, match="touches elements that its buffer does not store") as caught:
        run_unchecked(broken(), {"x": X}, engine="torchrun")
    assert (caught.value.rank, caught.value.task, caught.value.tensor) == (1, 1, "y")
    assert not list(tmp_path.iterdir())


LOG = """
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 12)
[2]:
  rank      : 2 (local_rank: 2)
  exitcode  : -15 (pid: 13)
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 11)
"""


def test_a_rank_that_was_killed_is_named_rather_than_the_one_that_missed_it(tmp_path: Path) -> None:
    (tmp_path / "job0").mkdir()
    lost = described(RuntimeError("Connection closed by peer"), 0)
    (tmp_path / "job0" / "error-0.json").write_text(json.dumps(lost))
    error = _first_error(tmp_path, 1, LOG)
    assert str(error) == "rank 1: the process was ended by SIGKILL"
    assert "Connection closed by peer" in error.__notes__[0]
    assert "Connection closed" in str(_first_error(tmp_path, 1, LOG.replace("-9", "-15")))


JOIN = """
import os
import signal
import sys
import numpy as np
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's, to a rank that has not printed yet when another ended
from tapestry.errors import TapestryError
from tapestry.planner.format.codec import decode
from tapestry.workers.engines.engine import Settings
from tapestry.workers.engines.torchrun import TorchrunEngine
own, *plans = sys.argv[1:]
for path in plans:
    document = decode(Path(path).read_bytes())
    if own == path:
        import msgspec
        claims = msgspec.structs.replace(document.claims, seed=int(os.environ["RANK"]))
        document = msgspec.structs.replace(document, claims=claims)
    try:
        result = TorchrunEngine().run(document, {"x": np.arange(8, dtype=np.float32)}, Settings("numpy"))
        said = f"RANK {result.rank} {sorted(result.outputs)} {result.bytes_moved if result.rank == 0 else ''}"
    except TapestryError as error:
        said = f"ERROR {os.environ['RANK']} {type(error).__name__} {str(error).splitlines()[0]}"
    sys.stdout.write(said + "\\n")  # in one piece: the ranks share the pipe
"""


def joined(folder: Path, code: int, *documents: Document, own: int | None = None) -> str:
    """What two ranks print that run plans in a script under a torchrun of the user's, which ends with a code; of one of
    the plans (``own``, by its place) every rank has another.
    """
    from tapestry.planner.format.codec import encode

    (folder / "join.py").write_text(JOIN)
    paths = [folder / f"plan{k}.json" for k in range(len(documents))]
    for path, document in zip(paths, documents, strict=True):
        path.write_bytes(encode(document))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--local-addr", "127.0.0.1"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", str(folder / "join.py")]
    command += ["none" if own is None else str(paths[own]), *map(str, paths)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_joining_a_torchrun_in_which_a_rank_then_fails(tmp_path: Path) -> None:
    """Every rank has a typed error, once a plan was run before."""
    said = joined(tmp_path, 1, halo_blur(), broken())
    assert "RANK 0 ['z'] 16" in said
    assert "RANK 1 []" in said
    assert "ERROR 1 TaskError rank 1, task 1 (first): output[i" in said
    assert "ERROR 0 PeerFailed stopped because rank 1 failed" in said


def test_ranks_with_different_plans_are_told(tmp_path: Path) -> None:
    said = joined(tmp_path, 1, halo_blur(), own=0)
    assert "ERROR 1 UsageError ranks were given different plans" in said
    assert "ERROR 0 PeerFailed stopped because rank 1 failed" in said


def test_inputs_are_checked_before_anything_starts() -> None:
    with pytest.raises(UsageError, match="1 of 1 inputs are missing"):
        run_unchecked(halo_blur(), {}, engine="torchrun")
