"""Transforms as block operations: cut along what they do not transform, known to every process, verified."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import ProgramError
from tapestry.planner import plan
from tapestry.program import Block
from tapestry.reference import evaluate
from tapestry.testing import program_of


@tp.program
def filtered(x: f32[Tensor, "n t"], kernel: f32[Tensor, "t"]) -> Tensor:
    """Rows convolved around with a kernel, by the product of their transforms."""
    a, b = tp.rfft(x), tp.rfft(kernel)
    real = a[..., 0] * b[:, 0] - a[..., 1] * b[:, 1]
    imaginary = a[..., 0] * b[:, 1] + a[..., 1] * b[:, 0]
    return tp.irfft(tp.stack([real, imaginary], -1), x.shape[1])


@given(n=st.integers(1, 5), t=st.integers(1, 9), seed=st.integers(0, 99))
def test_a_product_of_transforms_is_a_convolution_around(n: int, t: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, kernel = rng.normal(size=(n, t)).astype("float32"), rng.normal(size=t).astype("float32")
    around = np.stack([np.roll(kernel[::-1], k + 1) for k in range(t)])
    [found] = evaluate(filtered.bind(n=n, t=t), {"x": x, "kernel": kernel}).values()
    np.testing.assert_allclose(found, x @ around.T, atol=1e-4)


def test_other_processes_know_the_kernels(tmp_path: Path) -> None:
    """Rows are cut, and the plan is read by a process that has run no file of anybody's."""
    made = plan(filtered.bind(n=8, t=64), "cpu-4", mesh=(4,), objective="bytes")
    made.save(tmp_path / "plan.json")
    of_rows = [op.name for op in made.program.operations if isinstance(op.body, Block) and op.dims[0].name == "n"]
    assert [made.document.shardings[name].partition for name in of_rows] == [{"n": "mesh0"}] * 2
    options = [str(tmp_path / "plan.json"), "--random", "1", "--verify"]
    command = [sys.executable, "-c", "from tapestry.planner.cli import main; main()", "run", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("call", "told", "wrong", "said"),
    [
        (lambda x: tp.rfft(x), "k=4!", "k=3!", "rfft makes 3 x 2 of 6, not 4 x 2"),
        (lambda x: tp.fft(tp.reshape(x, (3, 2))), "k=3!", "k=2!", "fft makes 2 x 2 of 3 x 2"),
        (lambda x: tp.irfft(tp.reshape(x, (3, 2)), 4), "s=4!", "s=3!", "irfft makes 3 of 3 x 2, asked for 4"),
    ],
    ids=["rfft", "fft", "irfft"],
)
def test_extents_that_do_not_fit_are_refused(call: object, told: str, wrong: str, said: str) -> None:
    assert callable(call)
    text = str(program_of(call, x=np.zeros(6, "float32")))
    assert told in text, text
    with pytest.raises(ProgramError, match=said):
        tp.parse(text.replace(told, wrong))
