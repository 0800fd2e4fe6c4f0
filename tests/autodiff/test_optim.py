"""Optimizers beside torch's, step after step on the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tapestry as tp
from tapestry import Tensor, f64, param, state
from tapestry.errors import UsageError
from tapestry.program import Program
from tapestry.reference import evaluate

Arrays = dict[str, Any]
STEPS = 5


@tp.program
def loss(x: f64[Tensor, "n k"], y: f64[Tensor, "n"], w: param[f64[Tensor, "k"]], b: param[f64[Tensor, ""]]) -> Tensor:
    return tp.mean((x @ w + b - y) ** 2)


def step_of(optimize: Callable[[dict[str, Tensor], dict[str, Tensor]], None]) -> Program:
    @tp.program
    def step(
        x: f64[Tensor, "n k"], y: f64[Tensor, "n"], w: state[f64[Tensor, "k"]], b: state[f64[Tensor, ""]]
    ) -> dict[str, Tensor]:
        value, grads = tp.value_and_grad(loss)(x, y, w, b)
        optimize({"w": w, "b": b}, grads)
        return {"loss": value}

    return step.bind(n=6, k=3)


def trained(program: Program) -> list[Arrays]:
    """The losses and weights of a few steps; what an optimizer remembers starts at zeros."""
    rng = np.random.default_rng(0)
    given = {t.name: np.zeros(t.shape) for t in program.of_role("state")} | {"w": rng.normal(size=3)}
    given = {name: np.asarray(value, program.tensor(name).dtype.replace("f", "float")) for name, value in given.items()}
    found = []
    for _ in range(STEPS):
        result = evaluate(program, {"x": np.cos(np.arange(18.0)).reshape(6, 3), "y": np.arange(6.0), **given})
        given = {name: result[name] for name, _ in program.states}
        found.append({"loss": result["loss"], "w": given["w"], "b": given["b"]})
    return found


def trained_by_torch(optimizer: Callable[[list[torch.Tensor]], Any], clip: float | None = None) -> list[Arrays]:
    w, b = torch.tensor(np.random.default_rng(0).normal(size=3)), torch.zeros((), dtype=torch.float64)
    leaves = [w.requires_grad_(), b.requires_grad_()]
    x, y = torch.cos(torch.arange(18.0, dtype=torch.float64)).reshape(6, 3), torch.arange(6.0, dtype=torch.float64)
    made, found = optimizer(leaves), []
    for _ in range(STEPS):
        made.zero_grad()
        value = ((x @ w + b - y) ** 2).mean()
        value.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(leaves, clip)
        made.step()
        found.append({"loss": value.item(), "w": w.detach().numpy().copy(), "b": b.item()})
    return found


def clipped(weights: dict[str, Tensor], grads: dict[str, Tensor]) -> None:
    smaller, norm = tp.optim.clip_by_global_norm(grads, 0.5)
    assert norm.shape == ()
    tp.optim.sgd(weights, smaller, rate=0.1)


SGD, ADAMW = torch.optim.SGD, torch.optim.AdamW
CASES: list[tuple[str, Any, Any, float | None]] = [
    ("plain", lambda w, g: tp.optim.sgd(w, g, rate=0.1), lambda p: SGD(p, lr=0.1), None),
    (
        "momentum",
        lambda w, g: tp.optim.sgd(w, g, rate=0.05, momentum=0.9, weight_decay=0.1),
        lambda p: SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
        None,
    ),
    (
        "adamw",
        lambda w, g: tp.optim.adamw(w, g, rate=0.03, betas=(0.8, 0.95), weight_decay=0.2),
        lambda p: ADAMW(p, lr=0.03, betas=(0.8, 0.95), weight_decay=0.2),
        None,
    ),
    ("clipped", clipped, lambda p: SGD(p, lr=0.1), 0.5),
]


@pytest.mark.parametrize(
    ("optimize", "in_torch", "clip"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_weights_go_where_torchs_go(optimize: Any, in_torch: Any, clip: float | None) -> None:
    for ours, theirs in zip(trained(step_of(optimize)), trained_by_torch(in_torch, clip), strict=True):
        for name, wanted in theirs.items():
            np.testing.assert_allclose(ours[name], wanted, rtol=1e-12)


def test_a_rate_may_be_an_input() -> None:
    @tp.program
    def step(x: f64[Tensor, "n"], rate: f64[Tensor, ""], w: state[f64[Tensor, "n"]]) -> dict[str, Tensor]:
        tp.optim.sgd({"w": w}, {"w": x}, rate=rate)
        return {"norm": tp.sum(x * x)}

    found = evaluate(step.bind(n=2), {"x": np.ones(2), "rate": np.asarray(0.5), "w": np.ones(2)})
    assert found["w"].tolist() == [0.5, 0.5]


def test_what_is_remembered_of_16_bit_weights_is_f32() -> None:
    @tp.program
    def step(g: tp.bf16[Tensor, "n"], w: state[tp.bf16[Tensor, "n"]]) -> dict[str, Tensor]:
        tp.optim.adamw({"w": w}, {"w": g})
        return {"norm": tp.sum(g * g)}

    made = step.bind(n=2)
    assert {t.name: t.dtype for t in made.of_role("state")} == {
        "w": "bf16", "adamw.steps": "f64", "w.mean": "f32", "w.square": "f32"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("optimize", "message"),
    [
        (lambda w, g: tp.optim.sgd(w, {"w": g["w"]}, rate=0.1), "sgd: b has no gradient"),
        (lambda w, g: tp.optim.sgd(w, {"w": g["b"], "b": g["b"]}, rate=0.1), "the gradient of w has another shape"),
        (lambda w, g: tp.optim.adamw({"b": g["b"]}, {"b": g["b"]}), "is not a state"),
    ],
)
def test_refusals(optimize: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        step_of(optimize)
