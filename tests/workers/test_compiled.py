"""Compiled plans: steps one after another give what as many runs give, to the bit."""

from __future__ import annotations

import gc
import sys
from itertools import pairwise

import numpy as np
import psutil
import pytest

import tapestry as tp
from tapestry import Tensor, f32, param, state
from tapestry.errors import UsageError
from tapestry.planner import Plan, plan
from tapestry.workers import Compiled, Unread


@tp.program
def loss(x: f32[Tensor, "n k"], y: f32[Tensor, "n"], w: param[f32[Tensor, "k"]]) -> Tensor:
    return tp.mean((x @ w - y) ** 2)


@tp.program
def step(
    x: f32[Tensor, "n k"], y: f32[Tensor, "n"], w: state[f32[Tensor, "k"]], s: param[f32[Tensor, "k"]]
) -> dict[str, Tensor]:
    value, grads = tp.value_and_grad(loss)(x, y, w * s)
    tp.optim.adamw({"w": w}, {"w": grads["w"]}, rate=0.1)
    return {"loss": value}


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(step.bind(n=8, k=6), "cpu-4", mesh=(4,), time_limit=20)


def start() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    values = {"w": rng.normal(size=6), "s": np.ones(6), "w.mean": np.zeros(6), "w.square": np.zeros(6)}
    return {name: value.astype(np.float32) for name, value in values.items()} | {"adamw.steps": np.zeros(())}


def batch(k: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(100 + k)
    return {"x": rng.normal(size=(8, 6)).astype(np.float32), "y": rng.normal(size=8).astype(np.float32)}


@pytest.mark.parametrize("poison", [False, True])
def test_steps_are_runs(made: Plan, poison: bool) -> None:
    values = start()
    with made.compile(values, device="numpy", poison=poison) as compiled:
        for k in range(4):
            result = made.run(batch(k) | values, device="numpy").outputs
            found = compiled(batch(k))
            values = {name: result.get(name, value) for name, value in values.items()}
            assert found["loss"].tobytes() == result["loss"].tobytes()
            states = compiled.states
            assert set(states) == {"w", "adamw.steps", "w.mean", "w.square"}
            assert all(states[name].tobytes() == values[name].tobytes() for name in states)


def test_states_that_change_places() -> None:
    """Each begins where the other may end: they are set aside before they are put down."""

    @tp.program
    def swap(a: state[f32[Tensor, "n"]], b: state[f32[Tensor, "n"]], x: f32[Tensor, "n"]) -> Tensor:
        tp.update(a, b + x)
        tp.update(b, a * 2.0)
        return x + 1.0

    made = plan(swap.bind(n=8), "cpu-4", mesh=(4,), time_limit=20)
    a, b, x = np.arange(8, dtype=np.float32), np.ones(8, np.float32), np.full(8, 3, np.float32)
    with made.compile({"a": a, "b": b}, device="numpy") as compiled:
        for _ in range(3):
            compiled({"x": x})
            a, b = b + x, a * 2
            assert compiled.states["a"].tolist() == a.tolist()
            assert compiled.states["b"].tolist() == b.tolist()


def test_outputs_are_arrays_of_their_own(made: Plan) -> None:
    with made.compile(start(), device="numpy") as compiled:
        first = compiled(batch(0))["loss"]
        kept = first.copy()
        compiled(batch(1))
        assert first == kept


def test_refusals(made: Plan) -> None:
    with pytest.raises(UsageError, match="was not checked"):
        Compiled(made.document, start())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="are missing"):
        made.compile({"w": np.zeros(6, np.float32)})
    with pytest.raises(UsageError, match="has no input 'x'"):
        made.compile(start() | batch(0))
    with made.compile(start(), device="numpy") as compiled:
        with pytest.raises(UsageError, match="wrong shape"):
            compiled(batch(0) | {"y": np.zeros(9, np.float32)})
        with pytest.raises(UsageError, match="has no input 'w'"):
            compiled(batch(0) | {"w": np.zeros(6, np.float32)})


def test_a_checkpoint_may_hold_more_than_is_read(made: Plan) -> None:
    with pytest.warns(Unread, match="holds what step does not read: head.weight, head.bias$"):
        compiled = made.compile(start() | {"head.weight": np.zeros(3), "head.bias": np.zeros(1)}, device="numpy")
    with compiled:
        assert set(compiled(batch(0))) == {"loss"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ten_thousand_steps_leave_nothing_behind() -> None:
    """Neither objects nor memory outside Python, nor open files: what a step takes it gives back."""

    @tp.program
    def total(x: f32[Tensor, "n"], w: state[f32[Tensor, "n"]]) -> Tensor:
        tp.update(w, w + x)
        return tp.sum(w)

    def held() -> tuple[int, int, int]:
        gc.collect()
        process = psutil.Process()
        return len(gc.get_objects()), process.memory_info().rss, process.num_fds()

    made = plan(total.bind(n=8), "cpu-4", mesh=(4,), time_limit=20)
    fed = {"x": np.ones(8, np.float32)}
    with made.compile({"w": np.zeros(8, np.float32)}, device="numpy") as compiled:
        for _ in range(1_000):
            compiled(fed)
        seen = [held()]
        for _ in range(3):
            for _ in range(3_000):
                compiled(fed)
            seen.append(held())
        assert compiled.states["w"].tolist() == [10_000] * 8
    # What is lost is lost in every stretch; what the allocator keeps for other tests of this process is not.
    objects, resident, files = (min(b - a for a, b in pairwise(kept)) for kept in zip(*seen, strict=True))
    assert objects < 300  # a tenth of an object a step
    assert resident < 3_000 * 100
    assert files == 0
