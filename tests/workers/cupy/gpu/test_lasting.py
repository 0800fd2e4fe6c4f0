"""A GPU whose memory is taken by others, and ten thousand steps of training: what a step takes it gives back."""

from __future__ import annotations

import gc
import subprocess
import sys
from time import perf_counter

import numpy as np
import psutil
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner.format import Resolved
from tapestry.planner.format.checked import Checked
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.workers import Compiled, TaskError

from ....files import example
from ...unchecked import run_unchecked
from .executed import MACHINE, needs_gpu, whole

pytestmark = [*needs_gpu, pytest.mark.usefixtures("alone")]

LEFT = 3 << 29
TAKE = f"""
import sys
from cupy.cuda import Memory, runtime
held = Memory(runtime.memGetInfo()[0] - {LEFT})
print("held", flush=True)
sys.stdin.read()
"""


@tp.program
def three(x: f32[Tensor, "n"]) -> tuple[Tensor, Tensor]:
    return x * 2.0, x + 1.0


def planned(program: Program) -> Resolved:
    return Resolved(plan_partitions(program, MACHINE, whole(program)).document, program)


def test_memory_that_another_process_took() -> None:
    """The task error says how much there was no room for; with room the same process runs the same plan."""
    n = 1 << 28
    plan, inputs = planned(three.bind(n=n)), {"x": np.zeros(n, np.float32)}
    other = subprocess.Popen([sys.executable, "-c", TAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(TaskError, match=r"no memory for \d+ bytes of hbm") as caught:
            run_unchecked(plan, inputs, device="cupy")
        assert caught.value.rank == 0
    finally:
        other.communicate("")
    found = run_unchecked(plan, inputs, device="cupy").outputs
    assert [float(value.sum(dtype=np.float64)) for value in found.values()] == [0, n]


def test_ten_thousand_steps_of_training() -> None:
    """Memory of the GPU and of the host, page-locked or not, open files and the time of a step stay what they are."""
    from cupy.cuda import runtime

    digits = example("digits")
    program = digits.train_step.bind(n=16)
    rng = np.random.default_rng(0)
    batch = {
        "images": rng.random((16, 1, 8, 8)).astype(np.float32),
        "labels": rng.integers(0, 10, 16).astype(np.int32),
    }

    def held() -> tuple[int, int, int, int]:
        gc.collect()
        process = psutil.Process()
        free, total = runtime.memGetInfo()
        return total - free, process.memory_info().rss, process.num_fds(), process.num_threads()

    took = []
    with Compiled(Checked(planned(program)), digits.first_weights(program), device="cupy") as step:
        for number in range(10_000):
            if number == 1_000:
                before = held()
            began = perf_counter()
            loss = step(batch)["loss"]
            took.append(perf_counter() - began)
        after = held()
    assert np.isfinite(loss)
    assert after[0] == before[0]
    assert after[1] - before[1] < 9_000 * 100
    assert after[2:] == before[2:]
    # What else the machine does makes steps longer, never shorter: the shortest tell whether a step grows.
    assert min(took[9_000:]) < 1.5 * min(took[1_000:2_000])
