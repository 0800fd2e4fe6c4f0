"""Plans to draw: a stencil with halos, gathered weights, a partial sum, and layers."""

from __future__ import annotations

from pathlib import Path

import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.planner import Plan, plan
from tapestry.program import Pin


@tp.op
def smooth(a: f32[Tensor, "y x"]) -> f32[Tensor, "y x"]:
    y, x = tp.indices("y x")
    return a.get[y - 1, x] + a[y, x] + a.get[y + 1, x]


@tp.program
def stencil(image: f32[Tensor, "y x"]) -> dict[str, Tensor]:
    first = smooth(image)
    return {"out": smooth(first)}


@tp.op
def around(a: f32[Tensor, "y x"]) -> f32[Tensor, "y x"]:
    y, x = tp.indices("y x")
    return a.get[y - 1, x - 1] + a.get[y - 1, x + 1] + a.get[y + 1, x - 1] + a.get[y + 1, x + 1]


@tp.program
def blurred(image: f32[Tensor, "y x"]) -> dict[str, Tensor]:
    first = image * 2.0
    return {"out": around(first)}


@tp.program
def dense(x: f32[Tensor, "n k"], w: param[f32[Tensor, "k m"]]) -> dict[str, Tensor]:
    return {"out": tp.relu(tp.matmul(x, w))}


def op(pattern: str, axis: str | None) -> Pin:
    return Pin("op", pattern, (("mesh0", axis),))


def tensor(pattern: str, axis: str | None) -> Pin:
    return Pin("tensor", pattern, (("mesh0", axis),))


@pytest.fixture(scope="session")
def rows() -> Plan:
    """427 rows cut over four ranks: a halo of one row."""
    return plan(stencil.bind(y=427, x=64), "cpu-4", mesh=(4,), pins=(op("*", "y"), tensor("image", "y")))


@pytest.fixture(scope="session")
def tiled() -> Plan:
    """100 x 80 elements in tiles over 2 x 2 ranks: halos on two sides and at a corner."""
    cut = Pin("op", "*", (("mesh0", "y"), ("mesh1", "x")))
    return plan(blurred.bind(y=100, x=80), "cpu-4", mesh=(2, 2), pins=(cut,))


@pytest.fixture(scope="session")
def folded() -> Plan:
    """A product cut along what it sums over: every rank has a partial result."""
    return plan(dense.bind(n=64, k=96, m=32), "cpu-4", mesh=(4,), pins=(op("matmul", "k"), op("relu", "n")))


@pytest.fixture(scope="session")
def gathered() -> Plan:
    """Weights cut at rest, needed whole."""
    pins = (op("*", "n"), tensor("w", "k"))
    return plan(dense.bind(n=64, k=96, m=32), "cpu-4", mesh=(4,), pins=pins)


@pytest.fixture(scope="session")
def whole() -> Plan:
    """Weights copied to every rank."""
    pins = (op("*", "n"), tensor("w", None))
    return plan(dense.bind(n=64, k=96, m=32), "cpu-4", mesh=(4,), pins=pins)


@pytest.fixture(scope="session")
def layered() -> Plan:
    import sys

    sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
    try:
        import llama
    finally:
        sys.path.pop(0)
    program = llama.forward.bind(layers=3, d=256, heads=8, kv_heads=4, ffn=512, tokens=512)
    return plan(program, "h200x8", mesh=(8,))
