"""Results that take the place of what they are made of: where the planner finds them, and what that saves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32, param, state
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.format import Compute
from tapestry.planner.lowering.memory import ALIGN
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close, partitions
from tapestry.workers import register_device, run

from ...workers.strict_device import StrictDevice

MACHINE = load_machine("cpu-4")
N = 64


def over(made: Plan) -> dict[str, str]:
    """The tensors that are written over, by the tensor that takes their place."""
    tensor = {buffer.name: buffer.tensor for buffer in made.document.buffers}
    tasks = (task for task in made.document.tasks if isinstance(task, Compute))
    return {tensor[task.write]: tensor[task.over] for task in tasks if task.over is not None}


def peak(made: Plan) -> int:
    return max(next(iter(tiers.values())) for tiers in made.document.peak_bytes.values())


def planned(program: Program, ranks: int = 1) -> Plan:
    made = plan(program, MACHINE, mesh=(ranks,), time_limit=20)
    assert made.check().ok, str(made.check())
    return made


@tp.program
def loss(x: f32[Tensor, "n k"], w: param[f32[Tensor, "k k"]]) -> Tensor:
    return tp.mean((x @ w) ** 2)


@tp.program
def descent(x: f32[Tensor, "n k"], w: state[f32[Tensor, "k k"]]) -> dict[str, Tensor]:
    value, grads = tp.value_and_grad(loss)(x, w)
    tp.optim.sgd({"w": w}, grads, rate=0.1, momentum=0.9)
    return {"loss": value}


@tp.program
def adam(x: f32[Tensor, "n k"], w: state[f32[Tensor, "k k"]]) -> dict[str, Tensor]:
    value, grads = tp.value_and_grad(loss)(x, w)
    tp.optim.adamw({"w": w}, grads, rate=0.1)
    return {"loss": value}


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize(("step", "states"), [(descent, ["w", "w.momentum"]), (adam, ["w", "w.mean", "w.square"])])
def test_states_are_updated_in_their_place(step: Program, states: list[str], ranks: int) -> None:
    made = planned(step.bind(n=4, k=N), ranks)
    buffers = {buffer.name: buffer for buffer in made.document.buffers}
    starts = {buffer.tensor: buffer for buffer in made.document.buffers if buffer.initial is not None}
    assert all(buffers[made.document.states[name]].offset == starts[name].offset for name in states)


def test_a_step_of_training_holds_one_copy_of_each_state() -> None:
    """The weight, two moments, and a gradient and what is made of it on the way: not eight matrices of 16 KiB."""
    assert peak(planned(adam.bind(n=4, k=N))) < 5.5 * 4 * N * N


def test_nothing_is_carried_from_step_to_step() -> None:
    StrictDevice.opened.clear()
    register_device("strict_in_place", f"{StrictDevice.__module__}:StrictDevice")
    made = planned(adam.bind(n=4, k=N))
    values = {t.name: np.zeros(t.shape, t.dtype.replace("f", "float")) for t in made.program.of_role("state")}
    with made.compile(values, device="strict_in_place") as compiled:
        compiled({"x": np.ones((4, N), np.float32)})
    assert StrictDevice.opened[0].counts["pack"] == 0


def test_a_state_that_is_read_after_its_update_keeps_its_place() -> None:
    """In the order of the program the old value is turned round once the new one is there."""

    @tp.program
    def both(x: f32[Tensor, "k"], w: state[f32[Tensor, "k"]]) -> dict[str, Tensor]:
        new = w + x
        tp.update(w, new)
        return {"new": new * 2.0, "old": tp.reverse(w, 0)}

    assert "w" not in over(planned(both.bind(k=N))).values()


def test_what_two_states_become_takes_the_place_of_one() -> None:
    @tp.program
    def shared(x: f32[Tensor, "k"], u: state[f32[Tensor, "k"]], w: state[f32[Tensor, "k"]]) -> Tensor:
        new = u + w
        tp.update(u, new)
        tp.update(w, new)
        return tp.sum(new * x)

    made = planned(shared.bind(k=N))
    rng = np.random.default_rng(0)
    inputs = {name: rng.uniform(-1, 1, N).astype(np.float32) for name in ("x", "u", "w")}
    assert_close(made.program, inputs, made.run(inputs, device="numpy").outputs, evaluate(made.program, inputs))
    with made.compile({"u": inputs["u"], "w": inputs["w"]}, device="numpy") as step:
        step({"x": inputs["x"]})
        step({"x": inputs["x"]})
        np.testing.assert_allclose(step.states["w"], 2 * (inputs["u"] + inputs["w"]), rtol=1e-6)


def test_states_that_change_places_are_not_lost() -> None:
    @tp.program
    def swapped(u: state[f32[Tensor, "k"]], w: state[f32[Tensor, "k"]]) -> Tensor:
        tp.update(u, w + 1.0)
        tp.update(w, u + 2.0)
        return tp.sum(u - w)

    made = planned(swapped.bind(k=N))
    first = {"u": np.full(N, 10, np.float32), "w": np.full(N, 20, np.float32)}
    with made.compile(first, device="numpy", poison=True) as step:
        step({})
        assert step.states["u"][0] == 21
        assert step.states["w"][0] == 12
        step({})
        assert step.states["u"][0] == 13
        assert step.states["w"][0] == 23


def test_a_residual_addition_takes_the_place_of_one_of_its_terms() -> None:
    @tp.program
    def residual(x: f32[Tensor, "n k"], w: param[f32[Tensor, "k k"]]) -> Tensor:
        h = tp.relu(x)
        return h + h @ w

    made = planned(residual.bind(n=256, k=N))
    assert len(over(made)) == 2  # the relu over x, the sum over one of its terms
    assert peak(made) <= 2 * 4 * 256 * N + 4 * N * N + 3 * ALIGN


def test_parameters_and_outputs_are_never_written_over() -> None:
    @tp.program
    def kept(x: f32[Tensor, "k"], w: param[f32[Tensor, "k"]]) -> dict[str, Tensor]:
        a = x * w
        b = tp.exp(w)
        return {"a": a, "b": b, "c": a + b}

    assert {*over(planned(kept.bind(k=N))).values()} <= {"x"}


# Programs of element-wise chains, turned and shifted reads, folds and states


@st.composite
def chains(draw: st.DrawFn) -> Program:
    """Squares made of squares, some element by element, some not; two states that are updated on the way."""
    length = draw(st.integers(2, 7))
    kinds = [draw(st.sampled_from(["add", "mask", "turn", "shift", "fold", "choose"])) for _ in range(length)]
    picks = [(draw(st.integers(0, 9)), draw(st.integers(0, 9))) for _ in range(length)]
    updates = draw(st.tuples(st.integers(0, 9), st.integers(0, 9)))

    @tp.program
    def chain(
        x: f32[Tensor, "6 6"], y: f32[Tensor, "6 6"], s: state[f32[Tensor, "6 6"]], u: state[f32[Tensor, "6 6"]]
    ) -> dict[str, Tensor]:
        there = [x, y, s, u]
        for kind, (one, other) in zip(kinds, picks, strict=True):
            a, b = there[-1 - one % len(there)], there[-1 - other % len(there)]
            there.append(made_of(kind, a, b))
        tp.update(s, 0.5 * s + there[-1 - updates[0] % len(there)])
        tp.update(u, there[-1 - updates[1] % len(there)] - u)
        return {"last": there[-1]}

    return chain.bind()


def made_of(kind: str, a: Tensor, b: Tensor) -> Tensor:
    match kind:
        case "add":
            return a + 0.5 * b
        case "mask":
            return tp.where(a > b, a, 0.25)
        case "turn":
            return a + 0.5 * tp.transpose(b)
        case "shift":
            return 0.5 * a + tp.reverse(b, 0)
        case "fold":
            return (a @ b) * 0.125
    return tp.where(a > 0.0, b, a)


@settings(max_examples=40, suppress_health_check=list(HealthCheck), database=None, deadline=None)
@given(st.data())
def test_chains_give_what_the_reference_gives(data: st.DataObject) -> None:
    program = data.draw(chains())
    made = plan_partitions(program, MACHINE, data.draw(st.integers(1, 3).flatmap(lambda n: partitions(program, n))))
    assert made.check().ok, str(made.check())
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    given = program.of_role("input", "state")
    inputs = {t.name: rng.uniform(-1, 1, t.shape).astype(np.float32) for t in given}
    found = run(made.checked, inputs, order=data.draw(st.none() | st.integers(0, 99)), poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
