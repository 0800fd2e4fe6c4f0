"""Values computed again where memory decides: which, what that costs, and that nothing else changes."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import Infeasible
from tapestry.inputs import random_inputs
from tapestry.planner import Plan, parse_bytes, plan
from tapestry.planner.early import updated_early
from tapestry.planner.origin import prove_origin
from tapestry.planner.recompute import fetched_again, recomputed, spread, ways
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.verify import verify


def training(layers: int, n: int, k: int) -> Program:
    """A step of training of a chain of equal layers; what they leave is much more than their weights."""

    @tp.program
    def step(x: f32[Tensor, "n k"], y: f32[Tensor, "n k"]) -> dict[str, Tensor]:
        weights = []

        @tp.program
        def loss(x: f32[Tensor, "n k"], y: f32[Tensor, "n k"]) -> Tensor:
            h = x
            for layer in range(layers):
                weights.append(tp.state(f"w{layer}", "f32", (k, k), axes=("k", "j")))
                h = tp.relu(tp.einsum("nk,kj->nj", h, weights[-1]))
            return tp.mean((h - y) ** 2)

        value, grads = tp.value_and_grad(loss, wrt="w*")(x, y)
        tp.optim.sgd(dict(zip(grads, weights, strict=True)), grads, rate=0.1)
        return {"loss": value}

    return step.bind(n=n, k=k)


def peak(made: Plan) -> int:
    return max(tiers["hbm"] for tiers in made.document.peak_bytes.values())


def held(made: Plan) -> int:
    """The same without what kernels work in, which takes no more than is left."""
    return min([peak(made), *(room.offset for room in made.document.rooms.values())])


def seconds(made: Plan) -> float:
    return made.document.predicted.makespan_s


def copies(made: Plan) -> int:
    """How many operations are there a second time."""
    return sum(".again" in op.name for op in made.program.operations)


def within(program: Program, budget: int) -> Plan:
    return plan(program, "h200x8", mesh=(1,), memory={"hbm": budget}, time_limit=600)


# -- which values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [16, 36, 64])
def test_a_chain_is_forgotten_between_values_about_the_square_root_of_its_length_apart(layers: int) -> None:
    """As Chen et al., arXiv:1604.06174, by comparing ways."""
    program = updated_early(training(layers, 1024, 8))
    found = ways(program, lambda op: float(len(op.dims)))
    one = 1024 * 8 * 4
    assert found[0].peak >= 2 * layers * one
    assert found[-1].peak <= (4 * sqrt(layers) + 4) * one
    work = sum(len(op.dims) for op in program.operations)
    assert found[-1].seconds < 0.5 * work


def test_what_is_quickly_computed_is_forgotten_first() -> None:
    program = updated_early(training(8, 1024, 8))
    by_fold = {op.output: op.monoid is not None for op in program.operations}
    mildest = spread(ways(program, lambda op: 100.0 if op.monoid else 1.0), [0.9])[0]
    assert mildest.again
    assert not any(by_fold[name] for name, _ in mildest.again)


def test_ways_cost_more_for_less() -> None:
    found = ways(training(8, 64, 8), lambda op: 1.0)
    assert not found[0].again
    assert all(a.peak > b.peak and a.seconds < b.seconds for a, b in pairwise(found))


def test_copies_stand_right_before_what_reads_them_and_compute_the_same() -> None:
    program = training(6, 4, 3)
    inputs = random_inputs(program)
    want = evaluate(program, inputs)
    for way in ways(program, lambda op: 1.0):
        found = recomputed(program, way).program
        verify(found)
        assert len(found.operations) == len(program.operations) + sum(len(at) for _, at in way.again)
        for name, value in evaluate(found, inputs).items():
            np.testing.assert_array_equal(value, want[name], err_msg=name)


def test_a_value_is_there_until_it_is_first_read() -> None:
    """However long that takes: a copy instead of it would save nothing that computing it later would not."""

    @tp.program
    def waiting(x: f32[Tensor, "n"]) -> Tensor:
        late, y = tp.exp(x), x
        for _ in range(60):
            y = tp.sin(y)
        y = y * late
        for _ in range(60):
            y = tp.sin(y)
        return y + late

    program = waiting.bind(n=4)
    found = ways(program, lambda op: 1.0)
    assert all(way.again == (("exp", (122,)),) for way in found[1:])
    for way in found:
        verify(recomputed(program, way).program)


# -- the order of updates ------------------------------------------------------------------------------------------


def test_weights_are_updated_when_their_gradients_are_there() -> None:
    program = training(8, 16, 4)
    early = updated_early(program)
    verify(early)
    assert set(early.operations) == set(program.operations)
    at = {op.name: k for k, op in enumerate(early.operations)}
    updates = [at[early.producer[new].name] for _, new in early.states]
    grads = [
        max(at[early.producer[n].name] for n in early.operations[k].operands if n in early.producer) for k in updates
    ]
    assert max(k - made for k, made in zip(updates, grads, strict=True)) <= 8


def test_a_program_without_states_stays_in_its_order() -> None:
    @tp.program
    def net(x: f32[Tensor, "n"]) -> Tensor:
        return tp.exp(x) + 1

    program = net.bind(n=4)
    assert updated_early(program) == program


# -- plans ---------------------------------------------------------------------------------------------------------

STEP = training(8, 4096, 32)


@pytest.fixture(scope="module")
def kept() -> Plan:
    return plan(STEP, "h200x8", mesh=(1,), time_limit=600)


def test_where_there_is_memory_nothing_is_computed_again(kept: Plan) -> None:
    assert copies(kept) == 0
    assert kept.program == STEP


def test_less_memory_is_more_computed_again_and_more_time(kept: Plan) -> None:
    found = [kept, *(within(STEP, share * held(kept) // 100) for share in (80, 60, 45))]
    for made, share in zip(found, (100, 80, 60, 45), strict=True):
        assert made.check().ok
        assert held(made) <= share * held(kept) // 100
        assert made is kept or peak(made) <= share * held(kept) // 100
    assert copies(found[1]) > 0
    assert copies(found[1]) <= copies(found[2]) <= copies(found[3])
    assert seconds(found[0]) < seconds(found[1]) <= seconds(found[2]) <= seconds(found[3])


def test_the_least_budget_counts_what_computing_again_frees(kept: Plan) -> None:
    with pytest.raises(Infeasible) as refused:
        within(STEP, held(kept) // 10)
    budget = parse_bytes(str(refused.value.hint).split("hbm=")[1].split()[0])
    assert budget < 0.6 * held(kept)
    assert peak(within(STEP, budget)) <= budget


def test_the_plan_says_what_it_was_made_from() -> None:
    program = training(6, 64, 4)
    whole = plan(program, "cpu-4", mesh=(1,))
    lean = plan(program, "cpu-4", mesh=(1,), memory={"host": whole.document.peak_bytes["0"]["host"] * 6 // 10})
    assert copies(lean) > 0
    assert "executed, both compute the same" in str(prove_origin(lean.document, lean.program, program))


def test_outputs_and_states_are_the_same() -> None:
    program = training(4, 64, 4)
    inputs = random_inputs(program)
    whole = plan(program, "cpu-4", mesh=(1,))
    lean = plan(program, "cpu-4", mesh=(1,), memory={"host": whole.document.peak_bytes["0"]["host"] * 7 // 10})
    assert copies(lean) > 0
    again = recomputed(program, ways(program, lambda op: 1.0)[-1]).program
    for made in (lean, plan(again, "cpu-4", mesh=(2,))):
        assert made.check().ok
        found, want = made.run(inputs, device="numpy").outputs, evaluate(program, inputs)
        for name, value in want.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_weights_are_copied_where_the_backward_pass_reads_them() -> None:
    """A rank that keeps a part of a weight fetches the rest for both passes, as in ZeRO's third stage."""
    program = updated_early(training(8, 4, 3))
    inputs = random_inputs(program)
    found = fetched_again(program).program
    copied = [op for op in found.operations if op.name.endswith(".again")]
    assert [op.name for op in copied] == [f"w{layer}.again" for layer in range(5, 0, -1)]
    for op in copied:
        reader = found.consumers[op.output][0]
        assert reader.name.startswith("grad.d_h")
        assert found.operations.index(reader) == found.operations.index(op) + 1
    want = evaluate(program, inputs)
    for name, value in evaluate(found, inputs).items():
        np.testing.assert_array_equal(value, want[name], err_msg=name)
