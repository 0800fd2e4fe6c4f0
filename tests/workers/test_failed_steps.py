"""A step of a compiled plan that fails leaves the states as they were before it; the next one goes on from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, int32
from tapestry.planner import Plan, plan
from tapestry.program import Pin
from tapestry.workers import TaskError, keeping

V, D, T = 6, 4, 8


def sums_of_positives(x: Any) -> Any:
    """[n, s] -> [n]"""
    if (x < 0).any():
        raise ValueError("there is something below 0")
    return x.sum(axis=-1)


FUSSY = tp.block("sums_of_positives", sums_of_positives, operands="x", fold=1)


@tp.op
def rows(table: f32[Tensor, "v d"], ids: int32[Tensor, "t"]) -> f32[Tensor, "t d"]:
    t, d = tp.indices("t d")
    return table[ids[t], d]


@tp.op
def next_rows(table: f32[Tensor, "v d"], ids: int32[Tensor, "t"]) -> f32[Tensor, "t d"]:
    t, d = tp.indices("t d")
    return table[ids[t] + 1, d]


@tp.program
def counted(ids: int32[Tensor, "t"], seen: tp.state[f32[Tensor, "v d"]]) -> Tensor:
    """What is looked up is of the new state, which lies where the old one does."""
    more = seen + 1.0
    tp.update(seen, more)
    return rows(more, ids)


@tp.program
def counted_on(ids: int32[Tensor, "t"], seen: tp.state[f32[Tensor, "v d"]]) -> Tensor:
    """By indices that are computed."""
    more = seen + 1.0
    tp.update(seen, more)
    return next_rows(more, ids)


def total(x: Tensor) -> Tensor:
    v, d = tp.indices(v=x.shape[0], d=x.shape[1])
    found: Tensor = FUSSY(x[v, d], fold=d)
    return found


@tp.program
def called(x: f32[Tensor, "v d"], seen: tp.state[f32[Tensor, "v d"]]) -> Tensor:
    """A function of the user's reads the new state."""
    more = seen + 1.0
    tp.update(seen, more)
    return total(more + x)


def planned(program: Any, machine: str, cut: str) -> Plan:
    extents = {"v": V, "d": D} | ({} if program is called else {"t": T})
    made = plan(program.bind(**extents), machine, mesh=(2,), pins=[Pin("op", "*", (("mesh0", cut),))])
    assert keeping.overwritten(made.resolved), "the state is updated in its place"
    return made


def check_a_step_that_fails(device: str, machine: str, program: Any, good: list[int], bad: list[int]) -> None:
    made, start = planned(program, machine, "d"), np.arange(V * D, dtype=np.float32).reshape(V, D)
    with made.compile({"seen": start}, device=device) as step:
        for done in range(1, 4):
            before = step.states["seen"]
            with pytest.raises(TaskError, match="outside of the axis"):
                step({"ids": np.array(bad, np.int32)})
            assert step.states["seen"].tobytes() == before.tobytes()
            found = step({"ids": np.array(good, np.int32)})["out"]
            at = np.array(good) + (program is counted_on)
            assert found.tolist() == (start + done)[at].tolist()
        assert step.states["seen"].tolist() == (start + 3).tolist()


CASES: Mapping[str, tuple[Any, list[int], list[int]]] = {
    "given": (counted, [0, 1, 2, 3, 4, 5, 0, 1], [0, 1, 2, 3, 6, 5, 0, 1]),
    "computed": (counted_on, [0, 1, 2, 3, 4, 4, 0, 1], [0, 1, 2, 3, 5, 4, 0, 1]),
}


@pytest.mark.parametrize("case", CASES)
def test_an_index_outside_of_its_axis(case: str) -> None:
    check_a_step_that_fails("numpy", "cpu-4", *CASES[case])


def sums(outputs: Mapping[str, Any]) -> list[float]:
    [found] = outputs.values()
    return list(found.tolist())


def test_a_function_of_the_user_s() -> None:
    made, start = planned(called, "cpu-4", "v"), np.zeros((V, D), np.float32)
    with made.compile({"seen": start}, device="numpy") as step:
        assert sums(step({"x": start})) == [D] * V
        with pytest.raises(TaskError, match="something below 0"):
            step({"x": start - 5})
        assert (step.states["seen"] == 1).all()
        assert sums(step({"x": start})) == [2 * D] * V


def test_nothing_is_set_aside_where_nothing_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """All indices are inside, or nothing is looked up."""
    monkeypatch.setattr(keeping.Keeping, "_ways", lambda self: pytest.fail("states were set aside"))
    program, good, bad = CASES["given"]
    made = planned(program, "cpu-4", "d")
    with made.compile({"seen": np.zeros((V, D), np.float32)}, device="numpy") as step:
        step({"ids": np.array(good, np.int32)})
        with pytest.raises(pytest.fail.Exception):
            step({"ids": np.array(bad, np.int32)})
