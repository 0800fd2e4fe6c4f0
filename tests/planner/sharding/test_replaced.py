"""What takes the place of what by the program alone, and what the model and its shortage make of it."""

from __future__ import annotations

import tapestry as tp
from tapestry import Tensor, f32, param, state
from tapestry.planner import load_machine, plan
from tapestry.planner.sharding.replaced import replaced
from tapestry.program import Program

K = 256
MATRIX = 4 * K * K


@tp.program
def loss(x: f32[Tensor, "n k"], w: param[f32[Tensor, "k k"]]) -> Tensor:
    return tp.mean((x @ w) ** 2)


@tp.program
def adam(x: f32[Tensor, "n k"], w: state[f32[Tensor, "k k"]]) -> dict[str, Tensor]:
    value, grads = tp.value_and_grad(loss)(x, w)
    tp.optim.adamw({"w": w}, grads, rate=0.1)
    return {"loss": value}


def step() -> Program:
    return adam.bind(n=4, k=K)


def test_new_values_take_the_place_of_states() -> None:
    program = step()
    found = replaced(program)
    assert {state: found[new] for state, new in program.states} == {state: state for state, _ in program.states}


def test_what_is_on_the_way_from_a_state_to_its_new_value_does_too() -> None:
    @tp.program
    def averaged(x: f32[Tensor, "k"], m: state[f32[Tensor, "k"]]) -> Tensor:
        tp.update(m, 0.9 * m + 0.1 * x)
        return tp.sum(x)

    program = averaged.bind(k=8)
    ((_, new),) = program.states
    way = [name for name, old in replaced(program).items() if old == "m"]
    assert new in way
    assert len(way) == 2


def test_what_is_read_again_keeps_its_place() -> None:
    @tp.program
    def again(x: f32[Tensor, "k"], w: state[f32[Tensor, "k"]]) -> dict[str, Tensor]:
        y = tp.relu(x)
        new = w + y
        tp.update(w, new)
        return {"a": new * y, "b": tp.reverse(w, 0), "y": tp.reverse(y, 0)}

    found = replaced(again.bind(k=8))
    assert "w" not in found.values()
    assert [old for old in found.values() if old != "x"] == []


def test_one_copy_of_every_state_is_enough_to_plan() -> None:
    """Four matrices, and the rows that the gradient is made of, in less than five."""
    made = plan(step(), load_machine("h200x8"), mesh=(1,), memory={"hbm": 5 * MATRIX})
    assert made.check().ok
    assert made.document.claims.status == "optimal"
