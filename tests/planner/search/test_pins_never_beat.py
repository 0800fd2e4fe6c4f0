"""What a pin fixes is among what is tried without it: no pin gives a shorter plan than none."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import tapestry as tp
from tapestry import Tensor, f32, param
from tapestry.errors import Infeasible
from tapestry.planner import plan
from tapestry.program import Pin, Program

AXIS = "mesh0"


@tp.program
def gram(
    x: f32[Tensor, "n c"],
    w0: param[f32[Tensor, "c k"]],
    w1: param[f32[Tensor, "c h"]],
    w2: param[f32[Tensor, "k k"]],
) -> Tensor:
    """Two products read one input, the second for nobody: cut along what they fold both, x need not be gathered."""
    y = tp.einsum("nc,ck->nk", x, w0, name="first")
    tp.einsum("nc,ch->nh", x, w1, name="second")
    return tp.einsum("nc,nk->ck", y, y, name="gram") @ w2


def generated(seed: int) -> Program:
    """Products, sums and folds, of which some read what others before the last made."""
    rng = random.Random(seed)

    @tp.program
    def net() -> Tensor:
        rows, width = rng.choice([8, 64, 256]), rng.choice([32, 128, 256])
        made = [tp.input("x", "f32", (rows, width))]
        for k in range(rng.randint(3, 4)):
            y = rng.choice(made[-2:])
            match rng.choice(["product", "product", "relu", "add", "gram"]):
                case "product":
                    w = tp.param(f"w{k}", "f32", (y.shape[1], rng.choice([32, 128, 512])))
                    made.append(tp.einsum("nc,ck->nk", y, w, name=f"product{k}"))
                case "relu":
                    made.append(tp.relu(y))
                case "add":
                    made.append(y + next((z for z in made if z.shape == y.shape), y))
                case _:
                    made.append(tp.einsum("nc,nk->ck", y, y, name=f"gram{k}"))
        return made[-1]

    return net.bind()


def pins(program: Program) -> Iterator[Pin]:
    """Every way to cut an operation, and to lay a tensor before the run, or as its operation leaves it."""
    for op in program.operations:
        for dim in [*(dim.name for dim in op.dims if dim.cut and dim.extent > 1), None]:
            yield Pin("op", op.name, ((AXIS, dim),))
    for tensor in program.of_role("input", "param", "value"):
        for axis in [*tensor.axes, *([] if tensor.role == "input" else [None])]:
            yield Pin("tensor", tensor.name, ((AXIS, axis),))


def shorter(program: Program, some: list[Pin], memory: int | None = None) -> dict[str, float]:
    """The pins with which a plan takes less time, and how much of it."""
    best = plan(program, "cpu-4", mesh=(4,), memory=memory).document.predicted.makespan_s
    found = {}
    for pin in some:
        try:
            seconds = plan(program, "cpu-4", mesh=(4,), memory=memory, pins=[pin]).document.predicted.makespan_s
        except Infeasible:
            continue
        if seconds < best - 1e-9:
            found[f"{pin.target} {pin.pattern} {pin.cuts}"] = seconds / best
    return found


def test_operations_that_only_pay_together_are_cut_together() -> None:
    program = gram.bind(n=8, c=32, k=32, h=512)
    assert shorter(program, [Pin("op", "first", ((AXIS, "c"),)), Pin("tensor", "w0", ((AXIS, "c"),))]) == {}


@pytest.mark.parametrize("seed", [13, 15, 29])
def test_no_pin_beats_none(seed: int) -> None:
    """Of some of the pins of small programs."""
    program = generated(seed)
    some = sorted(pins(program), key=lambda pin: random.Random(f"{seed} {pin}").random())[:4]
    assert shorter(program, some) == {}


def test_nor_in_little_memory() -> None:
    """Two ways to cut a sum cost the same by the model, and one of them leaves work for while something is moved."""
    program = generated(8)
    assert shorter(program, [Pin("op", "product1", ((AXIS, "n"),)), Pin("tensor", "out", ((AXIS, "n"),))], 665728) == {}


def test_all_that_reads_a_tensor_may_take_it_as_it_lies() -> None:
    """Two products of one input, both cut along what they fold, need none of it moved; one alone gains nothing."""
    pins = [Pin("op", "product1", ((AXIS, "c"),)), Pin("tensor", "x", ((AXIS, "d1"),))]
    assert shorter(generated(8), pins, 466_009) == {}


def test_what_fits_by_the_model_and_not_once_packed_gives_way_to_what_does() -> None:
    """And not to what takes less by the model alone."""
    pins = [Pin("op", "relu", ((AXIS, "d1"),)), Pin("tensor", "x", ((AXIS, "d1"),))]
    assert shorter(generated(5), pins, 124_518) == {}
