"""Attention that a program spells out, as one kernel for few queries, which runs on the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, bf16, int32
from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close

from ...kernels.elementwise.host import needs_compiler
from .host_machine import HostMachine


@tp.op
def scores(
    q: bf16[Tensor, "h e"], k: bf16[Tensor, "s g e"], at: int32[Tensor, ""], *, group: int, hidden: float
) -> bf16[Tensor, "h s"]:
    h, s, e = tp.indices("h s e")
    score = tp.sum[e](q[h, e] * k[s, h // group, e])
    return tp.where(s - 1 <= at, score * 0.125, hidden)


@tp.op
def weighed(p: bf16[Tensor, "h s"], v: bf16[Tensor, "s g e"], *, group: int) -> bf16[Tensor, "h e"]:
    h, s, e = tp.indices("h s e")
    return tp.sum[s](p[h, s] * v[s, h // group, e])


@tp.program
def attends(
    q: bf16[Tensor, "h e=64"],
    k: bf16[Tensor, "s g e"],
    v: bf16[Tensor, "s g e"],
    at: int32[Tensor, ""],
    *,
    group: int,
    axis: int = 1,
    hidden: float = float("-inf"),
) -> Tensor:
    shares = tp.softmax(scores(q, k, at, group=group, hidden=hidden).astype("f32"), axis=axis).astype("bf16")
    return weighed(shares, v, group=group)


@tp.program
def sees_all(q: bf16[Tensor, "h e=64"], k: bf16[Tensor, "s h e"], v: bf16[Tensor, "s h e"]) -> Tensor:
    scaled = tp.einsum("he,she->hs", q, k) * 0.25
    return tp.einsum("hs,she->he", tp.softmax(scaled.astype("f32")).astype("bf16"), v)


CASES: dict[str, tuple[Callable[[], Program], bool]] = {
    "heads in groups, keys up to an integer of the data": (lambda: attends.bind(h=4, g=2, s=80, group=2), True),
    "a head a group, all keys": (lambda: sees_all.bind(h=3, s=70), True),
    "weights of heads, not of keys": (lambda: attends.bind(h=4, g=2, s=80, group=2, axis=0), False),
    "keys that are hidden weigh something": (lambda: attends.bind(h=4, g=2, s=80, group=2, hidden=-1.0), False),
}


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_attention_is_recognised_by_what_it_computes(machine: HostMachine, name: str) -> None:
    bound, found_so = CASES[name]
    program = bound()
    made = plan(program, "h200x2", mesh=(1,), rewrite=True, time_limit=20)
    for at in (0, 37) if "data" in name else (0,):
        inputs = random_inputs(program, 3)
        inputs |= {"at": np.int32(at)} if "at" in inputs else {}
        found = made.run(inputs, device="on_host")
        assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert ("few" in machine.kernels) == found_so
