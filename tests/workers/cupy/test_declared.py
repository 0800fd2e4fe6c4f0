"""Block operations that users declare, on a GPU: their torch function, called on what the kernels have laid out."""

from __future__ import annotations

import numpy as np
import pytest

from tapestry.errors import UsageError
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.reference import evaluate
from tapestry.testing import assert_close
from tapestry.workers.faults import TaskError

from ...language.test_blocks import cut, ranked, values, weighted
from ..unchecked import run_unchecked

MACHINE = load_machine("cpu-4")


@pytest.mark.parametrize("parts", [1, 3])
def test_its_torch_function_is_called(on_host: str, parts: int) -> None:
    program = ranked.bind(n=6, s=5)
    x = values(6, 5).astype(np.float32)
    document = plan_partitions(program, MACHINE, cut(program, "sorted_rows", "n", parts)).document
    found = run_unchecked(Resolved(document, program), {"x": x}, device=on_host, poison=True)
    assert_close(program, {"x": x}, found.outputs, evaluate(program, {"x": x}))


@pytest.mark.parametrize("parts", [1, 2])
def test_partial_states_are_folded(on_host: str, monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    program = weighted.bind(n=2, s=6, e=3)
    inputs = {"score": values(2, 6).astype(np.float32), "v": values(6, 3).astype(np.float32)}
    document = plan_partitions(program, MACHINE, cut(program, "soft_mean", "s", parts)).document
    given_a_torch_function(monkeypatch)
    found = run_unchecked(Resolved(document, program), inputs, device=on_host, poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))


def given_a_torch_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel with NumPy's function for torch's: on the host both see the same memory."""
    from dataclasses import replace

    import torch

    from tapestry.blocks import BLOCKS

    entry = BLOCKS["soft_mean"]
    assert entry.bodies is not None
    numpy = entry.bodies.numpy

    def called(score: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(numpy(score.numpy(), v.numpy()))

    monkeypatch.setitem(BLOCKS, "soft_mean", replace(entry, bodies=replace(entry.bodies, torch=called)))


def test_without_a_torch_function_it_is_refused(on_host: str) -> None:
    program = weighted.bind(n=2, s=4, e=2)
    inputs = {"score": values(2, 4).astype(np.float32), "v": values(4, 2).astype(np.float32)}
    document = plan_partitions(program, MACHINE, cut(program, "soft_mean", "s", 1)).document
    with pytest.raises((UsageError, TaskError), match=r"soft_mean has no function for GPUs(.|\n)*torch="):
        run_unchecked(Resolved(document, program), inputs, device=on_host)
