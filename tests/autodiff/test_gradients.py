"""Gradients of the standard operations beside torch's, in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tapestry as tp
from tapestry import Tensor, f64, param
from tapestry.errors import UsageError
from tapestry.planner import plan
from tapestry.reference import evaluate

T = torch.Tensor
F = torch.nn.functional


@tp.program
def elementwise(x: f64[Tensor, "n"], y: f64[Tensor, "n"]) -> Tensor:
    a = tp.exp(x) + tp.log(tp.abs(x) + 1) + tp.sqrt(x * x + 1) + tp.rsqrt(x * x + 2) + tp.sin(x) * tp.cos(y)
    b = tp.tanh(x) + tp.erf(y) + tp.sigmoid(x) + tp.relu(x) + tp.silu(y) + tp.gelu(x) + tp.gelu(y, approximate="tanh")
    c = tp.maximum(x, y) * tp.minimum(x, y) + tp.where(x > 0, x * y, y / 3) + (x * x + 1) ** y - x / (y * y + 1)
    return tp.sum(a * b * c + (x - 0.3) % 2.0 * tp.floor(y))


def elementwise_t(x: T, y: T) -> T:
    a = torch.exp(x) + torch.log(x.abs() + 1) + torch.sqrt(x * x + 1) + torch.rsqrt(x * x + 2) + x.sin() * y.cos()
    b = x.tanh() + y.erf() + x.sigmoid() + F.relu(x) + F.silu(y) + F.gelu(x) + F.gelu(y, approximate="tanh")
    c = (
        torch.maximum(x, y) * torch.minimum(x, y)
        + torch.where(x > 0, x * y, y / 3)
        + (x * x + 1) ** y
        - x / (y * y + 1)
    )
    return (a * b * c + torch.remainder(x - 0.3, 2.0) * y.floor()).sum()


@tp.program
def folds(x: f64[Tensor, "n k"], v: f64[Tensor, "n"]) -> Tensor:
    ends = tp.max(x, 1) + tp.min(x, 1) + tp.prod(x, 1)
    return tp.sum((tp.logsumexp(x, 1) + tp.variance(x, 1) + tp.mean(x, 1) + tp.sum(x * x, 1) + ends) * v)


def folds_t(x: T, v: T) -> T:
    ends = x.amax(1) + x.amin(1) + x.prod(1)
    return ((x.logsumexp(1) + x.var(1, correction=0) + x.mean(1) + (x * x).sum(1) + ends) * v).sum()


@tp.program
def products(a: f64[Tensor, "b m k"], w: f64[Tensor, "b k n"], u: f64[Tensor, "n"]) -> Tensor:
    return tp.sum((a @ w + u) ** 2) + tp.sum(tp.einsum("bmk,bkn->mn", a, w) ** 3)


def products_t(a: T, w: T, u: T) -> T:
    return ((a @ w + u) ** 2).sum() + (torch.einsum("bmk,bkn->mn", a, w) ** 3).sum()


@tp.program
def convolution(x: f64[Tensor, "n c y x"], w: f64[Tensor, "k g r s"], b: f64[Tensor, "k"]) -> Tensor:
    return tp.sum((tp.conv2d(x, w, stride=2, padding=1, dilation=(1, 2), groups=2) + b[:, None, None]) ** 2)


def convolution_t(x: T, w: T, b: T) -> T:
    return (F.conv2d(x, w, b, stride=2, padding=1, dilation=(1, 2), groups=2) ** 2).sum()


@tp.program
def pools(x: f64[Tensor, "n c y x"]) -> Tensor:
    return tp.sum(tp.max_pool2d(x, 2) ** 2) + tp.sum(tp.avg_pool2d(x, 3, stride=2, padding=1) ** 3)


def pools_t(x: T) -> T:
    return (F.max_pool2d(x, 2) ** 2).sum() + (F.avg_pool2d(x, 3, 2, 1) ** 3).sum()


@tp.program
def norms(x: f64[Tensor, "n k"], w: f64[Tensor, "k"], b: f64[Tensor, "k"], v: f64[Tensor, "n k"]) -> Tensor:
    return tp.sum((tp.layer_norm(x, w, b) + tp.rms_norm(x, w) + tp.softmax(x * v)) * v)


def norms_t(x: T, w: T, b: T, v: T) -> T:
    extents = (x.shape[-1],)
    return ((F.layer_norm(x, extents, w, b) + F.rms_norm(x, extents, w, 1e-6) + F.softmax(x * v, -1)) * v).sum()


@tp.program
def views(x: f64[Tensor, "a b c"], y: f64[Tensor, "d e"]) -> Tensor:
    flat = tp.reshape(tp.transpose(x, (2, 0, 1)), (-1,))
    joined = tp.concat([flat[::2], tp.reshape(tp.pad(y, 1), (-1,))], axis=0)
    stacked = tp.stack([y, tp.flip(y, 0)], axis=1)
    return tp.sum(joined**3) + tp.sum(stacked**2) + tp.sum(tp.broadcast_to(y[0], (3, 4, y.shape[1])) ** 3)


def views_t(x: T, y: T) -> T:
    joined = torch.cat([x.permute(2, 0, 1).reshape(-1)[::2], F.pad(y, (1, 1, 1, 1)).reshape(-1)])
    return (joined**3).sum() + (torch.stack([y, y.flip(0)], 1) ** 2).sum() + (y[0].expand(3, 4, -1) ** 3).sum()


@tp.program
def attention(
    q: f64[Tensor, "b t h e"], k: f64[Tensor, "b s g e"], v: f64[Tensor, "b s g e"], c: f64[Tensor, "b t h e"]
) -> Tensor:
    return tp.sum((tp.attention(q, k, v, causal=True) + tp.attention(q, k, v, scale=0.3)) * c)


def attention_t(q: T, k: T, v: T, c: T) -> T:
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    one = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
    other = F.scaled_dot_product_attention(*heads, scale=0.3, enable_gqa=True)
    return ((one + other).transpose(1, 2) * c).sum()


@tp.program
def quartic(x: f64[Tensor, "n"]) -> Tensor:
    return tp.sum(tp.exp(x) * tp.sin(x) + x**4)


@tp.program
def second(x: f64[Tensor, "n"], v: f64[Tensor, "n"]) -> Tensor:
    """A product of the Hessian with v, when it is differentiated."""
    return tp.sum(tp.grad(quartic, wrt="x")(x) * v)


def second_t(x: T, v: T) -> T:
    (first,) = torch.autograd.grad((x.exp() * x.sin() + x**4).sum(), x, create_graph=True)
    return (first * v).sum()


CASES: list[tuple[Any, Callable[..., T], dict[str, int]]] = [
    (elementwise, elementwise_t, {"n": 7}),
    (folds, folds_t, {"n": 3, "k": 5}),
    (products, products_t, {"b": 2, "m": 3, "k": 4, "n": 5}),
    (convolution, convolution_t, {"n": 2, "c": 4, "y": 7, "x": 9, "k": 6, "g": 2, "r": 3, "s": 3}),
    (pools, pools_t, {"n": 2, "c": 2, "y": 6, "x": 8}),
    (norms, norms_t, {"n": 4, "k": 6}),
    (views, views_t, {"a": 2, "b": 3, "c": 4, "d": 3, "e": 2}),
    (attention, attention_t, {"b": 2, "t": 5, "s": 5, "h": 4, "g": 2, "e": 3}),
    (second, second_t, {"n": 5}),
]


@pytest.mark.parametrize(("program", "in_torch", "extents"), CASES, ids=[case[1].__name__[:-2] for case in CASES])
def test_gradients_are_torchs(program: Any, in_torch: Callable[..., T], extents: dict[str, int]) -> None:
    made = tp.value_and_grad(program, wrt="*").bind(**extents)
    inputs = {t.name: np.random.default_rng(k).normal(size=t.shape) for k, t in enumerate(made.of_role("input"))}
    found = evaluate(made, inputs)
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in inputs.items()}
    value = in_torch(**leaves)
    value.backward()
    np.testing.assert_allclose(found["value"], value.item(), rtol=1e-12)
    for name, leaf in leaves.items():
        assert leaf.grad is not None
        wanted = leaf.grad.numpy()
        np.testing.assert_allclose(found[f"grad.{name}"], wanted, rtol=1e-10, atol=1e-10 * np.abs(wanted).max())


@tp.program
def regression(
    x: f64[Tensor, "n k"], y: f64[Tensor, "n"], w: param[f64[Tensor, "k"]], b: param[f64[Tensor, ""]]
) -> Tensor:
    return tp.mean((x @ w + b - y) ** 2)


def test_params_are_differentiated_unless_others_are_named() -> None:
    assert tp.grad(regression).bind(n=4, k=3).outputs == ("grad.w", "grad.b")
    assert tp.value_and_grad(regression, wrt=("x", "b")).bind(n=4, k=3).outputs == ("value", "grad.x", "grad.b")


def test_a_gradient_is_planned_and_run_like_any_program() -> None:
    made = tp.value_and_grad(regression).bind(n=8, k=3)
    rng = np.random.default_rng(0)
    inputs = {"x": rng.normal(size=(8, 3)), "y": rng.normal(size=8), "w": rng.normal(size=3), "b": np.asarray(0.5)}
    found = plan(made, "cpu-4", mesh=(4,), time_limit=20).run(inputs).outputs
    for name, wanted in evaluate(made, inputs).items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-12)


def test_a_step_of_descent_is_one_program() -> None:
    @tp.program
    def step(
        x: f64[Tensor, "n k"], y: f64[Tensor, "n"], w: tp.state[f64[Tensor, "k"]], b: tp.state[f64[Tensor, ""]]
    ) -> Tensor:
        loss, grads = tp.value_and_grad(regression)(x, y, w, b)
        tp.update(w, w - 0.1 * grads["w"])
        tp.update(b, b - 0.1 * grads["b"])
        return loss

    made = step.bind(n=6, k=2)
    assert made.states == (("w", made.states[0][1]), ("b", made.states[1][1]))
    rng = np.random.default_rng(0)
    x, y, w, b = rng.normal(size=(6, 2)), rng.normal(size=6), rng.normal(size=2), np.asarray(0.0)
    found = evaluate(made, {"x": x, "y": y, "w": w, "b": b})
    error = x @ w + b - y
    np.testing.assert_allclose(next(iter(found.values())), (error**2).mean(), rtol=1e-12)


def test_what_the_loss_does_not_depend_on_gets_zeros() -> None:
    @tp.program
    def one(x: f64[Tensor, "n"], unused: f64[Tensor, "k"]) -> Tensor:
        return tp.sum(x)

    found = evaluate(tp.grad(one, wrt="*").bind(n=3, k=2), {"x": np.ones(3), "unused": np.ones(2)})
    assert found["grad.x"].tolist() == [1.0, 1.0, 1.0]
    assert found["grad.unused"].tolist() == [0.0, 0.0]


def test_what_is_held_counts_as_a_constant() -> None:
    @tp.program
    def product(x: f64[Tensor, "n"]) -> Tensor:
        return tp.sum(tp.stop_gradient(tp.exp(x)) * x)

    found = evaluate(tp.grad(product, wrt="x").bind(n=3), {"x": np.arange(3.0)})
    np.testing.assert_allclose(found["grad.x"], np.exp(np.arange(3.0)))


def test_the_branch_that_is_not_taken_does_not_matter() -> None:
    @tp.op
    def safe(x: f64[Tensor, "n"]) -> f64[Tensor, "n"]:
        n = tp.indices("n")
        return tp.where(x[n] > 0, tp.log(x[n]), x[n])

    @tp.program
    def safe_log(x: f64[Tensor, "n"]) -> Tensor:
        return tp.sum(safe(x))

    found = evaluate(tp.grad(safe_log, wrt="x").bind(n=3), {"x": np.asarray([0.0, -1.0, 2.0])})
    assert found["grad.x"].tolist() == [1.0, 1.0, 0.5]


def test_what_a_guard_fills_in_stays_behind_the_conditions_of_the_fold() -> None:
    @tp.op
    def some(x: f64[Tensor, "n"], z: f64[Tensor, "n"]) -> f64[Tensor, ""]:
        n = tp.indices("n")
        return tp.sum[n](tp.pad(x, ((2, -2),), value=1.0)[n] * z[n], where=n < 3)

    @tp.program
    def filled(x: f64[Tensor, "n"], z: f64[Tensor, "n"]) -> Tensor:
        return some(x, z)

    found = evaluate(tp.grad(filled, wrt="*").bind(n=5), {"x": np.arange(5.0) + 5, "z": np.arange(5.0)})
    assert found["grad.z"].tolist() == [1.0, 1.0, 5.0, 0.0, 0.0]
    assert found["grad.x"].tolist() == [2.0, 0.0, 0.0, 0.0, 0.0]


def test_relu_has_no_slope_at_zero() -> None:
    @tp.program
    def positive(x: f64[Tensor, "n"]) -> Tensor:
        return tp.sum(tp.relu(x))

    found = evaluate(tp.grad(positive, wrt="x").bind(n=3), {"x": np.asarray([-1.0, 0.0, 1.0])})
    assert found["grad.x"].tolist() == [0.0, 0.0, 1.0]


@tp.program
def rows(x: f64[Tensor, "n k"]) -> Tensor:
    return tp.sum(x, 1)


@tp.program
def positions(x: f64[Tensor, "n"], i: tp.int32[Tensor, "n"]) -> Tensor:
    return tp.sum(x * i)


@pytest.mark.parametrize(
    ("gradient", "extents", "message"),
    [
        (tp.grad(rows, wrt="x"), {"n": 2, "k": 3}, "the gradient is that of one number"),
        (tp.grad(positions), {"n": 2}, "no float param to differentiate along"),
        (tp.grad(positions, wrt="y"), {"n": 2}, "there is no tensor 'y'"),
        (tp.grad(positions, wrt="i"), {"n": 2}, "i is of integers or truth values"),
    ],
)
def test_refusals(gradient: Any, extents: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        gradient.bind(**extents)
    assert "test_gradients.py" in str(raised.value)


def test_only_programs_have_gradients() -> None:
    with pytest.raises(UsageError, match="program"):
        tp.grad(lambda x: x)  # type: ignore[arg-type]
