"""Every public operation on small tensors: beside torch or NumPy, cut over ranks, and differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor
from tapestry.dsl.declare import input as declare
from tapestry.dtypes import name_of
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.reference import evaluate
from tapestry.testing import assert_close, partitions, program_of

from ..workers.unchecked import run_unchecked
from .cases import CASES, FIRST
from .registry import Case

MACHINE = load_machine("h200x8")


def named(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, id=f"{case.name}-{k}") for k, case in enumerate(cases)]


@pytest.mark.parametrize("case", named(CASES))
def test_it_computes_what_torch_or_numpy_does(case: Case) -> None:
    found = evaluate(case.program, case.inputs)
    expected = case.expected()
    assert len(case.program.outputs) == len(expected)
    for name, value in zip(case.program.outputs, expected, strict=True):
        wanted = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        assert found[name].shape == wanted.shape
        np.testing.assert_allclose(found[name], wanted, rtol=case.within, atol=1e-13)


@pytest.mark.parametrize("case", named(list(FIRST.values())))
def test_it_runs_cut_over_ranks(case: Case) -> None:
    """In f32, any way that its operations may be cut, over two to four ranks; counted bytes are the plan's."""
    inputs = dict(case.in_dtype("f32"))
    program = program_of(case.call, **inputs)

    @settings(max_examples=1, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @seed(len(case.name))
    @given(st.data())
    def execute(data: st.DataObject) -> None:
        shards = data.draw(partitions(program, data.draw(st.integers(2, 4))))
        document = plan_partitions(program, MACHINE, shards).document
        found = run_unchecked(Resolved(document, program), inputs, poison=True)
        assert_close(program, inputs, found.outputs, evaluate(program, inputs))
        assert found.bytes_moved == document.traffic.bytes_total

    execute()


def loss_of(case: Case, outputs: list[Any]) -> Any:
    """One number of all results, each weighed by what sets its elements apart."""
    return sum((np.sqrt(2 + k) * (out * out).sum() + (out * 0.5).sum()) for k, out in enumerate(outputs))


@pytest.mark.parametrize("case", named([case for case in CASES if case.differentiates]))
def test_its_gradient_is_torchs(case: Case) -> None:
    floats = [f"x{k}" for k in case.floats]

    @tp.program
    def loss() -> Tensor:
        xs = [declare(name, name_of(array.dtype), array.shape) for name, array in case.inputs.items()]
        found = case.call(*xs)
        outputs = list(found) if isinstance(found, tuple | list) else [found]
        parts = [np.sqrt(2 + k) * tp.sum(out * out) + tp.sum(out * 0.5) for k, out in enumerate(outputs)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    made = tp.grad(loss, wrt=floats).bind()
    found = evaluate(made, case.inputs)
    arrays = [torch.from_numpy(np.array(array)) for array in case.arrays]
    for k in case.floats:
        arrays[k].requires_grad_()
    result = case.oracle(*arrays)
    loss_of(case, list(result) if isinstance(result, tuple | list) else [result]).backward()
    for name, array in zip(case.inputs, arrays, strict=True):
        if name in floats:
            wanted = torch.zeros_like(array) if array.grad is None else array.grad
            np.testing.assert_allclose(found[f"grad.{name}"], wanted.numpy(), rtol=1e-10, atol=1e-11, err_msg=name)
