"""Repeated layers are found by structure, with their period, whatever surrounds them."""

from __future__ import annotations

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import load_machine
from tapestry.planner.search.question import Question
from tapestry.planner.search.search import searched
from tapestry.planner.sharding.nodes import SourceNode
from tapestry.planner.sharding.repetition import Repetition, Repetitions, find_repetition, find_repetitions
from tapestry.planner.strategy.mesh import Mesh
from tapestry.program import Program

from ..training_step import trained


def found(program: Program) -> Repetition:
    return find_repetition(program)


@tp.program
def layered(x: f32[Tensor, "n c"], *, layers: int = 4, wide: int = 0, shared: int = 0) -> Tensor:
    """Two operations a layer, one before and one after; ``wide``: the layer that is of another shape."""
    table = tp.param("table", "f32", (x.shape[1],))
    x = tp.tanh(x)
    for k in range(layers):
        c = x.shape[1]
        w = tp.param(f"w{k}", "f32", (c, c + 1 if k == wide - 1 else c))
        x = tp.einsum("nc,cd->nd", x, w)[:, :c]
        x = tp.maximum(x, table) if shared else tp.relu(x)
    return tp.exp(x)


@pytest.mark.parametrize("layers", [2, 3, 7])
def test_layers_are_found_with_their_period(layers: int) -> None:
    program = layered.bind(n=8, c=6, layers=layers)
    assert found(program) == Repetition(1, 2, layers)


def test_layers_that_share_a_tensor_are_found() -> None:
    assert found(layered.bind(n=8, c=6, layers=5, shared=1)) == Repetition(1, 2, 5)


def test_representatives_are_in_the_first_layer() -> None:
    repetition = Repetition(1, 2, 3)
    assert [repetition.representative(k) for k in range(9)] == [0, 1, 2, 1, 2, 1, 2, 7, 8]


def test_a_layer_of_another_shape_ends_the_stretch() -> None:
    assert found(layered.bind(n=8, c=6, layers=7, wide=3)) == Repetition(7, 2, 4)


@tp.program
def straight(x: f32[Tensor, "n c"]) -> Tensor:
    return tp.exp(tp.tanh(tp.relu(x)))


def test_nothing_repeats() -> None:
    assert found(straight.bind(n=8, c=6)).count == 0


@tp.program
def skipping(x: f32[Tensor, "n c"]) -> Tensor:
    """Operations of equal structure whose wiring differs: the third reads the first again."""
    a = tp.relu(x)
    b = a + x
    c = tp.relu(b)
    return c + a


def test_equal_operations_wired_otherwise_do_not_repeat() -> None:
    assert found(skipping.bind(n=8, c=6)).count == 0


@tp.program
def tapped(x: f32[Tensor, "n c"]) -> tuple[Tensor, Tensor]:
    """Layers of which one is an output too."""
    a = tp.relu(x * 0.5)
    b = tp.relu(a * 0.5)
    c = tp.relu(b * 0.5)
    return a, tp.relu(c * 0.5)


def test_a_layer_whose_value_leaves_the_program_is_apart() -> None:
    repetition = found(tapped.bind(n=8, c=6))
    program = tapped.bind(n=8, c=6)
    tied = [k for k in range(len(program.operations)) if repetition.representative(k) != k]
    assert not any(program.operations[k].output in program.outputs for k in tied)


def test_backward_layers_and_updates_repeat_too() -> None:
    few, many = (trained.bind(n=8, c=6, layers=layers) for layers in (6, 12))
    stretches = find_repetitions(many).stretches
    assert [s.count for s in stretches] == [s.count + 6 for s in find_repetitions(few).stretches]
    assert len(stretches) == 3
    decided = [
        {r.representative(k) for k in range(len(p.operations))}
        for p, r in ((p, find_repetitions(p)) for p in (few, many))
    ]
    assert len(decided[0]) == len(decided[1]) < len(few.operations) // 2


@pytest.mark.parametrize("mesh", [(2,), (2, 2)])
def test_weights_are_decided_once_though_stretches_stand_for_different_layers(mesh: tuple[int, ...]) -> None:
    """Forward reads the weight of one layer in place of all, backward that of another, the updates of a third."""
    decided = []
    for layers in (6, 12):
        question = Question.of(trained.bind(n=8, c=6, layers=layers), load_machine("cpu-4"), Mesh.of(mesh, 4))
        model = searched(question).model
        decided.append([node for k, node in enumerate(model.nodes) if model.tied_to[k] == k])
    assert len(decided[0]) == len(decided[1])
    weights = [node.name for node in decided[1] if isinstance(node, SourceNode) and node.name.startswith("w")]
    # The first layer's is read once less: nothing asks for the gradient of what goes in.
    assert {"w0in", "w1in"} <= {*weights}
    assert len(weights) < 24, "of 72: two weights of each layer with what AdamW remembers of it"


def test_memory_is_told_where_stretches_begin_and_end() -> None:
    repetitions = Repetitions((Repetition(1, 2, 6), Repetition(14, 1, 8)))
    assert repetitions.telling(24) == [0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23]
    assert Repetitions((Repetition(1, 2, 3),)).telling(9) == [0, 1, 2, 3, 4, 7, 8]
