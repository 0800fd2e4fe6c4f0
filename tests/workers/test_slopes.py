"""Slopes of attention in NumPy, on one rank and on several."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.closeness import assert_close
from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.reference import evaluate

from .slopes import SMALL, Case
from .unchecked import run_unchecked


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("case", SMALL, ids=str)
def test_slopes_are_those_of_the_reference(case: Case, ranks: int) -> None:
    case.check(ranks)


def test_no_score_is_stored() -> None:
    """The operations between the slope of the result and those of q, k and v hold nothing of every query and key."""
    program = Case("bf16", (64, 96, 4, 2, 8), seen={"causal": True, "offset": 32}).program()
    made = {op.name for op in program.operations if "slopes" in op.name}
    assert made == {"grad.slopes_q", "grad.slopes_k", "grad.slopes_v"}
    assert not [tensor.name for tensor in program.tensors if {64, 96} <= set(tensor.shape)]


def test_heads_that_are_parts_of_one_axis_store_no_scores() -> None:
    """Heads are told apart where they are read, as 8 h + c of columns."""

    @tp.program
    def loss(x: f32[Tensor, "t=24 d=16"]) -> Tensor:
        q = tp.reshape(x @ tp.param("wq", "f32", (16, 32)), (24, 4, 8))
        k, v = (tp.reshape(x @ tp.param(name, "f32", (16, 16)), (24, 2, 8)) for name in ("wk", "wv"))
        return tp.mean(tp.attention(q, k, v, causal=True) ** 2)

    program = tp.grad(loss).bind()
    assert {"grad.slopes_q", "grad.slopes_k", "grad.slopes_v"} <= {op.name for op in program.operations}
    given = random_inputs(program, 3)
    made = plan(program, "cpu-4", mesh=(2,), time_limit=10)
    found = run_unchecked(made.document, given, poison=True)
    assert_close(program, given, found.outputs, evaluate(program, given))


def test_slopes_of_slopes_are_torchs() -> None:
    """The kernels have slopes of their own, by operations that do store scores."""
    torch = pytest.importorskip("torch")

    @tp.program
    def loss() -> Tensor:
        q, k, v = tp.param("q", "f64", (5, 4, 3)), tp.param("k", "f64", (6, 2, 3)), tp.param("v", "f64", (6, 2, 3))
        return tp.sum(tp.attention(q, k, v, causal=True, offset=1) ** 2)

    @tp.program
    def steepness() -> Tensor:
        _, slopes = tp.value_and_grad(loss, wrt=("q", "k", "v"))()
        q, k, v = (tp.sum(slope * slope) for slope in slopes.values())
        return q + k + v

    program = tp.grad(steepness, wrt=("q", "k", "v")).bind()
    given = random_inputs(program, 5)
    q, k, v = (torch.tensor(given[name], requires_grad=True) for name in "qkv")
    scores = torch.einsum("thc,shc->hts", q, k.repeat_interleave(2, 1)) * 3**-0.5
    scores = scores.masked_fill(~torch.ones(5, 6, dtype=torch.bool).tril(1), -torch.inf)
    y = torch.einsum("hts,shc->thc", scores.softmax(-1), v.repeat_interleave(2, 1))
    slopes = torch.autograd.grad((y**2).sum(), (q, k, v), create_graph=True)
    torch.cat([slope.flatten() for slope in slopes]).square().sum().backward()
    found = evaluate(program, given)
    for name, x in zip("qkv", (q, k, v), strict=True):
        np.testing.assert_allclose(found[f"grad.{name}"], x.grad, rtol=1e-9, atol=1e-9)
