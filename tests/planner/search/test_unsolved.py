"""Choices that need no solver are tried where there is time for a solver, too."""

from __future__ import annotations

import pytest

import tapestry as tp
from tapestry import Tensor, bf16
from tapestry.planner import load_machine, plan
from tapestry.planner.search import views
from tapestry.planner.search.question import Question
from tapestry.planner.search.search import searched
from tapestry.planner.search.unsolved import unsolved
from tapestry.planner.search.views import other_views
from tapestry.planner.sharding.solving import Solution
from tapestry.planner.strategy.mesh import Mesh
from tapestry.program import Pin, Program
from tests.files import example


def test_no_choice_without_a_solver_is_shorter_than_the_answer() -> None:
    """The solver's sum of times misses which of them overlap: its best took 180 µs, what descent finds 153."""
    machine = load_machine("h200x8")
    program = example("moe").train_step.bind()
    searching = searched(Question.of(program, machine, Mesh.of((8,), machine.device_count), time_limit=600))
    answer = other_views(searching, searching.first())
    for choice in unsolved(searching):
        found = searching.lowered(choice, Solution("fallback", choice, searching.costs.of(choice), 0))
        assert answer.makespan_s <= found.makespan_s * 1.001


def gradients(layers: int) -> Program:
    """Of all weights of decoder layers, which every rank has: what is waited for decides, not what is moved."""
    llama = example("llama")

    @tp.program
    def loss(x: bf16[Tensor, "t=8192 d=4096"], target: bf16[Tensor, "t d"]) -> Tensor:
        h = llama.decoder(x, layers=layers, heads=32, kv_heads=8, ffn=14336, theta=5e5)
        away = tp.rms_norm(h, llama.weight("norm", d=4096)).astype("f32") - target.astype("f32")
        return tp.mean(away * away)

    @tp.program
    def net(x: bf16[Tensor, "t=8192 d=4096"], target: bf16[Tensor, "t d"]) -> dict[str, Tensor]:
        _, grads = tp.value_and_grad(loss, wrt=("layers.*", "norm"))(x, target)
        return {f"d_{name}": each for name, each in grads.items()}

    return net.bind()


def test_of_large_programs_no_pin_gives_a_much_shorter_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large program was asked of the solver alone, in one view of overlap: 7.15 ms, where these pins gave 6.31."""
    monkeypatch.setattr(views, "MANY", 10)
    program = gradients(2)
    pins = [
        Pin("op", op.name, (("mesh0", "t"),), "zigzag")
        for op in program.operations
        if "t" in op.extents and not op.name.startswith("grad.")
    ]
    free, pinned = (plan(program, "h200x8", mesh=(8,), pins=some, time_limit=600) for some in ([], pins))
    assert free.document.predicted.makespan_s <= 1.02 * pinned.document.predicted.makespan_s
