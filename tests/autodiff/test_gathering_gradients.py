"""Gradients through reads and writes at places that the data say, beside torch's, in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tapestry as tp
from tapestry import Tensor, f64, int32, int64
from tapestry.planner import plan
from tapestry.reference import evaluate

T = torch.Tensor
F = torch.nn.functional


@tp.program
def words(
    table: f64[Tensor, "v d"], w: f64[Tensor, "d c"], ids: int64[Tensor, "t"], labels: int64[Tensor, "t"]
) -> Tensor:
    return tp.cross_entropy(tp.embedding(ids, table) @ w, labels)


def words_t(table: T, w: T, ids: T, labels: T) -> T:
    return F.cross_entropy(F.embedding(ids, table) @ w, labels)


@tp.program
def along(x: f64[Tensor, "n k"], ids: int64[Tensor, "n j"]) -> Tensor:
    return tp.sum(tp.take_along_axis(x, ids, 1) ** 3)


def along_t(x: T, ids: T) -> T:
    return (torch.gather(x, 1, ids) ** 3).sum()


@tp.program
def scattered(x: f64[Tensor, "v d"], u: f64[Tensor, "t d"], s: f64[Tensor, "t"], ids: int64[Tensor, "t"]) -> Tensor:
    return tp.sum(tp.scatter_add(x, ids, u * tp.reshape(s, (-1, 1))) ** 2)


def scattered_t(x: T, u: T, s: T, ids: T) -> T:
    return (x.index_add(0, ids, u * s[:, None]) ** 2).sum()


@tp.op
def weighted(x: f64[Tensor, "t d"], s: f64[Tensor, "t k"], at: int64[Tensor, "t k"], *, v: int) -> f64[Tensor, "v d"]:
    """Each row into k places, each with a weight."""
    t, k, d, v = tp.indices("t k d v")
    return tp.sum[t, k](tp.where(at[t, k] == v, x[t, d] * s[t, k], 0.0))


@tp.program
def dispatched(x: f64[Tensor, "t d"], s: f64[Tensor, "t k"], ids: int64[Tensor, "t k"]) -> Tensor:
    return tp.sum(weighted(x, s, ids, v=5) ** 2)


def dispatched_t(x: T, s: T, ids: T) -> T:
    rows = (x[:, None, :] * s[:, :, None]).reshape(-1, x.shape[1])
    return (torch.zeros(5, x.shape[1], dtype=x.dtype).index_add(0, ids.reshape(-1), rows) ** 2).sum()


@tp.program
def windows(x: f64[Tensor, "n d"], u: f64[Tensor, "m d"], start: int64[Tensor, ""]) -> Tensor:
    moved = tp.dynamic_update_slice(x, u, [start, 0])
    return tp.sum(tp.dynamic_slice(moved, [start + 1, 0], [3, 2]) ** 3)


def windows_t(x: T, u: T, start: T) -> T:
    at = int(start)
    moved = torch.cat([x[:at], u, x[at + len(u) :]])
    return (moved[at + 1 : at + 4, :2] ** 3).sum()


CASES: list[tuple[Any, Callable[..., T], dict[str, int], dict[str, tuple[int, ...]]]] = [
    (words, words_t, {"v": 6, "d": 3, "c": 4, "t": 5}, {"ids": (5,), "labels": (5,)}),
    (along, along_t, {"n": 3, "k": 5, "j": 4}, {"ids": (3, 4)}),
    (scattered, scattered_t, {"v": 5, "d": 2, "t": 7}, {"ids": (7,)}),
    (dispatched, dispatched_t, {"t": 4, "d": 3, "k": 2}, {"ids": (4, 2)}),
    (windows, windows_t, {"n": 7, "d": 3, "m": 2}, {"start": ()}),
]


@pytest.mark.parametrize(("program", "in_torch", "extents", "ids"), CASES)
def test_gradients_are_torchs_and_runs_are_the_references(
    program: Any, in_torch: Callable[..., T], extents: dict[str, int], ids: dict[str, tuple[int, ...]]
) -> None:
    floats = [tensor.name for tensor in program.bind(**extents).of_role("input") if tensor.name not in ids]
    made = tp.value_and_grad(program, wrt=tuple(floats)).bind(**extents)
    rng = np.random.default_rng(0)
    inputs = {
        t.name: rng.integers(0, 4, t.shape) if t.name in ids else rng.normal(size=t.shape)
        for t in made.of_role("input")
    }
    found = evaluate(made, inputs)
    leaves = {name: torch.tensor(x, requires_grad=name in floats) for name, x in inputs.items()}
    value = in_torch(**leaves)
    value.backward()
    np.testing.assert_allclose(found["value"], value.item(), rtol=1e-12)
    for name in floats:
        grad = leaves[name].grad
        assert grad is not None
        np.testing.assert_allclose(found[f"grad.{name}"], grad.numpy(), rtol=1e-10, atol=1e-12)
    run = plan(made, "cpu-4", mesh=(2,)).run(inputs, device="numpy").outputs
    for name, wanted in found.items():
        np.testing.assert_allclose(run[name], wanted, rtol=1e-10, atol=1e-12)


def test_the_gradient_of_a_lookup_goes_to_the_rows_alone() -> None:
    made = tp.grad(words, wrt=("table",)).bind(v=6, d=3, c=4, t=5)
    [back] = [op for op in made.operations if op.output == "grad.table"]
    assert [one.dim for one in back.selections] == ["v"]
    made = tp.grad(dispatched, wrt=("x", "s")).bind(t=4, d=3, k=2)
    assert all(op.selections for op in made.operations if op.output in made.outputs)


def test_ids_have_no_gradient() -> None:
    @tp.program
    def only_ids(x: f64[Tensor, "v"], ids: int32[Tensor, "t"]) -> Tensor:
        return tp.sum(tp.take(x, ids))

    with pytest.raises(tp.UsageError, match="int"):
        tp.grad(only_ids, wrt=("ids",)).bind(v=3, t=2)
