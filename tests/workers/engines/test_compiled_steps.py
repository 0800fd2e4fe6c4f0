"""A compiled plan in a script that torchrun started: all processes make the same calls, rank 0 has what comes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = """
import os
from pathlib import Path
import numpy as np
import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import plan
from tapestry.program import Pin
from tapestry.workers import PeerFailed, TaskError, keeping


@tp.program
def mean(x: f32[Tensor, "n"], kept: tp.state[f32[Tensor, "n"]]) -> Tensor:
    tp.update(kept, 0.5 * kept + 0.5 * x)
    return tp.sum(kept) + tp.sum(x)


def say(word):
    # A file each: what two processes print to one pipe may run into one another.
    Path(__file__).with_name(word + os.environ["RANK"]).touch()


def sums_of_positives(x):
    if (x < 0).any():
        raise ValueError("there is something below 0")
    return x.sum(axis=-1)


FUSSY = tp.block("sums_of_positives", sums_of_positives, operands="x", fold=1)


@tp.program
def called(x: f32[Tensor, "v d"], seen: tp.state[f32[Tensor, "v d"]]) -> Tensor:
    more = seen + 1.0
    tp.update(seen, more)
    v, d = tp.indices(v=6, d=4)
    return tp.sum(FUSSY((more + x)[v, d], fold=d))


def a_step_that_fails_on_one_rank():
    # Rank 1 has the last rows.
    again = plan(called.bind(v=6, d=4), "cpu-4", mesh=(2,), pins=[Pin("op", "*", (("mesh0", "v"),))])
    assert keeping.overwritten(again.resolved), "the state is updated in its place"
    fine = np.zeros((6, 4), np.float32)
    bad = fine.copy()
    bad[5] = -5
    with again.compile({"seen": fine}, device="numpy", engine="torchrun") as step:
        for done in range(1, 3):
            try:
                step({"x": bad})
            except PeerFailed as error:
                assert (os.environ["RANK"], error.origin) == ("0", 1), error
            except TaskError as error:
                assert (os.environ["RANK"], error.rank) == ("1", 1), error
            else:
                raise AssertionError("nothing was said")
            found = step({"x": fine})
            states = step.states
            if os.environ["RANK"] == "0":
                assert [float(value) for value in found.values()] == [24.0 * done], found
                assert (states["seen"] == done).all(), states
    say("unharmed")


a_step_that_fails_on_one_rank()
made = plan(mean.bind(n=8), "cpu-4", mesh=(2,), time_limit=20)
values, x = {"kept": np.zeros(8, np.float32)}, np.arange(8, dtype=np.float32)
with made.compile(values, device="numpy") as here, made.compile(values, device="numpy", engine="torchrun") as step:
    for k in range(3):
        expected, found = here({"x": x * k}), step({"x": x * k})
    states = step.states
    if os.environ["RANK"] == "0":
        assert found["out"].tobytes() == expected["out"].tobytes()
        assert states["kept"].tobytes() == here.states["kept"].tobytes()
        say("agreed")
    else:
        assert (found, states) == ({}, {})
        raise ArithmeticError("in the script")
    step({"x": x})
"""


def test_steps_give_the_bits_of_one_process_and_a_script_that_fails_on_one_rank_ends_on_all(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "0"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command += [str(tmp_path / "script.py")]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    said = {path.name for path in tmp_path.iterdir() if path.name != "script.py"}
    assert said == {"unharmed0", "unharmed1", "agreed0"}, ended.stderr
    assert ended.returncode != 0
    assert "in the script" in ended.stderr
