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
import numpy as np
import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import plan


@tp.program
def mean(x: f32[Tensor, "n"], kept: tp.state[f32[Tensor, "n"]]) -> Tensor:
    tp.update(kept, 0.5 * kept + 0.5 * x)
    return tp.sum(kept) + tp.sum(x)


made = plan(mean.bind(n=8), "cpu-4", mesh=(2,), time_limit=20)
values, x = {"kept": np.zeros(8, np.float32)}, np.arange(8, dtype=np.float32)
with made.compile(values, device="numpy") as here, made.compile(values, device="numpy", engine="torchrun") as step:
    for k in range(3):
        expected, found = here({"x": x * k}), step({"x": x * k})
    states = step.states
    if os.environ["RANK"] == "0":
        assert found["out"].tobytes() == expected["out"].tobytes()
        assert states["kept"].tobytes() == here.states["kept"].tobytes()
        print("agreed")
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
    assert "agreed" in ended.stdout.split(), ended.stderr
    assert ended.returncode != 0
    assert "in the script" in ended.stderr
