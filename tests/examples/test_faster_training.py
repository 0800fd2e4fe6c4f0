"""A torch model trained with kernels in place of its layers learns as it does without; its times need a GPU."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tapestry.kernels.torch import fuse_for_inference, fuse_for_training

EXAMPLE = Path(__file__).parents[2] / "examples" / "faster_training.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def test_losses_are_those_of_the_model_as_it_was(example: dict[str, Any]) -> None:
    images, labels = example["data"](16)
    plain, fused = example["network"](8), example["network"](8)
    made = fuse_for_training(fused)
    assert (len(made.convolutions.taken), len(made.norms.taken), len(made.excitations)) == (6, 10, 2)
    curves = [example["trained"](model, (images, labels), 16, 12) for model in (plain, fused)]
    assert curves[0][-1] < curves[0][0]
    torch.testing.assert_close(*map(torch.tensor, curves), rtol=1e-4, atol=1e-4)
    held_back = images[-64:]
    with torch.no_grad():
        served = fuse_for_inference(fused, torch.float32)(held_back)
        torch.testing.assert_close(served, plain.eval()(held_back), rtol=1e-2, atol=1e-2)


@pytest.mark.long
def test_it_runs_as_a_program() -> None:
    command = [sys.executable, str(EXAMPLE), "--steps", "2", "--size", "16", "--width", "8", "--batch", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "as it was: loss" in done.stdout
    assert "fused for inference" in done.stdout
