"""Steps of training of the examples: gradients are torch's, the update AdamW's; over ranks they are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional

from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing.widening import in_f64

from .test_models import Weights, decoder, example

LLAMA = {"layers": 1, "heads": 2, "kv_heads": 1}


def llama_step() -> Program:
    return example("llama").train_step.bind(d=4, ffn=3, tokens=4, rate=0.01, **LLAMA)


def moe_step() -> Program:
    return example("moe").train_step.bind(t=6, d=4, x=3, f=5, room=1.0, rate=0.01)


def at_first(program: Program) -> dict[str, np.ndarray]:
    """Numbers for everything but what AdamW remembers, which starts at zeros."""
    found = random_inputs(program, seed=3)
    remembered = (".mean", ".square", ".steps")
    return {name: np.zeros_like(value) if name.endswith(remembered) else value for name, value in found.items()}


def llama_loss(w: Weights) -> torch.Tensor:
    out = functional.rms_norm(decoder(w, theta=500000.0, **LLAMA), (4,), w["norm"], eps=1e-6)
    return functional.mse_loss(out, w["target"])


def moe_loss(w: Weights) -> torch.Tensor:
    """Token by token, each to its expert while that has room."""
    likes = torch.softmax(w["tokens"] @ w["router"], 1)
    free, rows = [2] * 3, []
    for t, row in enumerate(w["tokens"]):
        x = int(likes[t].argmax())
        made = likes[t, x] * (torch.relu(row @ w["w_in"][x]) @ w["w_out"][x])
        rows.append(row + made if free[x] else row)
        free[x] = max(0, free[x] - 1)
    return functional.mse_loss(torch.stack(rows), w["target"])


def compare(program: Program, loss: Callable[[Weights], torch.Tensor]) -> None:
    exact = at_first(in_f64(program))
    given = {name: torch.tensor(value) for name, value in exact.items()}
    remembered = {f"{name}.{what}" for name in given for what in ("mean", "square")} | {"adamw.steps"}
    learned = [name for name, _ in program.states if name not in remembered]
    weights = [given[name].requires_grad_() for name in learned]
    value = loss(given)
    value.backward()
    found = evaluate(in_f64(program), exact)
    np.testing.assert_allclose(found["loss"], value.item(), rtol=1e-12)
    for name, weight in zip(learned, weights, strict=True):
        assert weight.grad is not None
        slope = weight.grad / (weight.grad.abs() + 1e-8)  # of both moments after one step, their corrections undone
        want = weight * (1 - 0.01 * 0.01) - 0.01 * slope
        np.testing.assert_allclose(found[name], want.detach().numpy(), rtol=1e-6, err_msg=name)


def test_a_step_of_llama_has_torchs_gradients() -> None:
    compare(llama_step(), llama_loss)


def test_a_step_of_the_mixture_of_experts_has_torchs_gradients() -> None:
    compare(moe_step(), moe_loss)


def test_a_step_of_the_mixture_of_experts_over_two_ranks_is_the_same() -> None:
    program = moe_step()
    inputs = at_first(program)
    made = plan(program, "cpu-4", mesh=(2,))
    assert made.check().ok
    found, want = made.run(inputs, device="numpy").outputs, evaluate(program, inputs)
    for name, value in want.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-4, err_msg=name)
