"""Small plans that the mutators of programs, machines and figures start from: every kind of body, fold and view."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import tapestry as tp
from tapestry import Tensor, f32, int32, param
from tapestry.planner import plan
from tapestry.planner.format.document import Document
from tapestry.program import Operation, Pin, Program

from . import plans, planted


@tp.program
def attending(q: f32[Tensor, "t h e"], k: f32[Tensor, "t h e"], v: f32[Tensor, "t h e"]) -> Tensor:
    return tp.attention(q, k, v, causal=True)


@tp.program
def greatest(x: f32[Tensor, "n k"]) -> Tensor:
    return tp.argmax(x, axis=1)


@tp.program
def counting(x: int32[Tensor, "n"], total: tp.state[int32[Tensor, "n"]]) -> Tensor:
    tp.update(total, total + x)
    return tp.where(x > 2, x * tp.constant([1, 2, 3, 4, 5, 6]), total)


@tp.program
def dense(x: f32[Tensor, "n d"], w: param[f32[Tensor, "d h"]]) -> Tensor:
    return tp.relu(x @ w)


def cut(program: Program, **dims: str) -> Document:
    """Planned on two ranks with the named operations cut along a dimension."""
    pins = [Pin("op", op, (("mesh0", dim),)) for op, dim in dims.items()]
    return plan(program, "cpu-4", mesh=(2,), pins=pins).document


def _fold(program: Program) -> Operation:
    return next(op for op in program.operations if op.reduce_dims)


def keys_cut() -> Document:
    """Attention whose keys are cut: records of the softmax are folded."""
    program = attending.bind(t=6, h=2, e=3)
    return cut(program, **{_fold(program).name: _fold(program).reduce_dims[0]})


def heads_cut() -> Document:
    program = attending.bind(t=6, h=2, e=3)
    return cut(program, **{_fold(program).name: "h"})


def positions() -> Document:
    """The position of the greatest: pairs are folded."""
    program = greatest.bind(n=4, k=6)
    return cut(program, **{_fold(program).name: _fold(program).reduce_dims[0]})


def states() -> Document:
    return plan(counting.bind(n=6), "cpu-4", mesh=(2,)).document


def planned() -> Document:
    return plan(dense.bind(n=8, d=6, h=10), "cpu-4", mesh=(2,)).document


BASES: dict[str, Callable[[], Document]] = {
    make.__name__: cache(make) for make in (keys_cut, heads_cut, positions, states, planned, plans.causal_keys_split)
} | {name: cache(planted.GIVEN[name]().plan) for name in planted.GIVEN if " " not in name and name != "masked"}
BLOCKS = ("keys_cut", "heads_cut")
