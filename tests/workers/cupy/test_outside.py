"""Indices of the data that are outside of their axis, on kernels that cannot raise: what a run says of them."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, int32
from tapestry.errors import IndexOutside
from tapestry.planner import Plan, plan
from tapestry.program import Pin
from tapestry.workers import TaskError

from ...kernels.elementwise.host import needs_compiler
from ..test_failed_steps import CASES, check_a_step_that_fails

pytestmark = needs_compiler


@tp.op
def entries(table: f32[Tensor, "u v"], i: int32[Tensor, "t"], j: int32[Tensor, "t"]) -> f32[Tensor, "t"]:
    t = tp.indices("t")
    return table[i[t], j[t]]


@tp.op
def moved(table: f32[Tensor, "u v"], i: int32[Tensor, "t"]) -> f32[Tensor, "t v"]:
    t, v = tp.indices("t v")
    return table[i[t] + 2, v]


@tp.program
def looked_up(table: f32[Tensor, "u v"], i: int32[Tensor, "t"], j: int32[Tensor, "t"]) -> dict[str, Tensor]:
    return {"entries": entries(table, i, j), "moved": moved(table, i)}


U, V, T = 5, 7, 6
TABLE = np.arange(U * V, dtype=np.float32).reshape(U, V)


def inputs(**changed: int) -> dict[str, np.ndarray]:
    """Indices inside; of those named the one at 4 is as given."""
    found = {"table": TABLE, "i": np.array([0, 1, 2, 0, 1, 2], np.int32), "j": np.arange(T, dtype=np.int32)}
    for name, value in changed.items():
        found[name][4] = value
    return found


def planned(ranks: int) -> Plan:
    return plan(looked_up.bind(u=U, v=V, t=T), "h200x8", mesh=(ranks,), pins=[Pin("op", "*", (("mesh0", "t"),))])


SAID = [  # what is given, and what is said of it; a place only where its memory is not another's by the end of the step
    ({"i": -1}, "entries", r"i(\[4\])? is -1", U),
    ({"j": 9}, "entries", r"j(\[4\])? is 9", V),
    ({"i": 3}, "moved", r"the index computed from i(\[4\])? is 5", U),
]


def check_what_is_said(device: str, ranks: int, engine: str = "local") -> None:
    """Each index with its own axis, and the table that it is an index of."""
    made = planned(ranks)
    for changed, op, said, extent in SAID:
        with pytest.raises(
            TaskError, match=rf"{said}, outside of the axis[^$]*table[^$]*\[0, {extent - 1}\]"
        ) as caught:
            made.run(inputs(**changed), device=device, engine=engine)
        assert engine != "local" or isinstance(caught.value.__cause__, IndexOutside)
        assert (caught.value.rank, caught.value.name) == (ranks - 1, op)
        assert caught.value.task is not None


def check_what_follows(device: str) -> None:
    """A step that failed is nothing to the next one, of the same kernels."""
    made, good = planned(1), inputs()
    with made.compile({}, device=device) as step:
        for _ in range(3):
            assert step(good)["entries"].tolist() == TABLE[good["i"], good["j"]].tolist()
            with pytest.raises(TaskError, match=r"j(\[4\])? is 8, outside"):
                step(inputs(j=8))


def test_what_is_said(on_host: str) -> None:
    check_what_is_said(on_host, 2)


def test_what_follows(on_host: str) -> None:
    check_what_follows(on_host)


@pytest.mark.parametrize("case", CASES)
def test_states_stay_what_they_were(on_host: str, case: str) -> None:
    check_a_step_that_fails(on_host, "h200x8", *CASES[case])
