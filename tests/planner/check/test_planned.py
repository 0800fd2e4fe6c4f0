"""The checker and the planner, which share no code: planned programs pass, altered plans are rejected or harmless."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.expr import Affine, Bound, Const, Read
from tapestry.planner import load_machine
from tapestry.planner.format.document import Document
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Operation, Program
from tapestry.space import Box, Region, parse_region
from tapestry.testing import partitions, programs

from . import plans, writing
from .harm import show
from .mutations import mutants

MACHINE = replace(load_machine("cpu-4"), devices_per_host=8)
SAMPLE = 120


@settings(max_examples=150)
@given(st.data())
def test_plans_of_generated_programs_pass(data: st.DataObject) -> None:
    program = data.draw(programs())
    shards = data.draw(st.integers(1, 5).flatmap(lambda ranks: partitions(program, ranks)))
    report = plan_partitions(program, MACHINE, shards).check()
    assert report.ok, str(report)


def cut(shape: Sequence[int], axis: int, ranks: int) -> list[Region]:
    """A box in equal slabs along one axis."""
    n = shape[axis]
    slabs = [(r * n // ranks, (r + 1) * n // ranks) for r in range(ranks)]
    lo, hi = [0] * len(shape), list(shape)
    boxes = [Box((*lo[:axis], a, *lo[axis + 1 :]), (*hi[:axis], b, *hi[axis + 1 :])) for a, b in slabs]
    return [box.region() for box in boxes]


def perceptron() -> Program:
    tensors = [writing.tensor("x", 4, 3, role="input"), writing.tensor("w", 3, 6, role="param")]
    tensors += [
        writing.tensor("h", 4, 6),
        writing.tensor("g", 4, 6),
        writing.tensor("v", 6, 2, role="param"),
        writing.tensor("y", 4, 2),
    ]
    operations = [
        writing.matmul("up", "x", "w", "h", 4, 3, 6),
        writing.scaled("act", "h", "g", 3, 4, 6),
        writing.matmul("down", "g", "v", "y", 4, 6, 2),
    ]
    return Program("perceptron", tuple(tensors), tuple(operations), ("y",))


def column_then_row() -> Document:
    """Hidden units cut over three ranks, the second product's reduction folded at the end."""
    program = perceptron()
    up, act, down = (op.extents.values() for op in program.operations)
    shards = {"up": cut([*up], 1, 3), "act": cut([*act], 1, 3), "down": cut([*down], 2, 3)}
    homes = {"w": cut((3, 6), 1, 3), "v": cut((6, 2), 0, 3)}
    return plan_partitions(program, MACHINE, shards, homes=homes).document


def gathered_weights() -> Document:
    """Tokens cut over two ranks, weights cut at home and gathered where they are used."""
    program = perceptron()
    shards = {op.name: cut([*op.extents.values()], 0, 2) for op in program.operations}
    homes = {"w": cut((3, 6), 0, 2), "v": cut((6, 2), 0, 2), "x": cut((4, 3), 0, 2)}
    return plan_partitions(program, MACHINE, shards, homes=homes).document


def two_stencils() -> Document:
    """Two windows of three rows one after another over three ranks: halos between them."""

    def window(name: str, source: str, target: str) -> Operation:
        rows = [Affine.dim("a") + k for k in (-1, 0, 1)]
        reads = [writing.mul(Const(k + 2), Read(source, (row,), (Bound(row, 0, 8),), 1)) for k, row in enumerate(rows)]
        return Operation(
            name, writing.dims(a=8), target, (Affine.dim("a"),), writing.plus(writing.plus(*reads[:2]), reads[2])
        )

    tensors = (writing.tensor("x", 8, role="input"), writing.tensor("y", 8), writing.tensor("z", 8))
    program = Program("stencils", tensors, (window("one", "x", "y"), window("two", "y", "z")), ("z",))
    return plan_partitions(program, MACHINE, {name: cut((8,), 0, 3) for name in ("one", "two")}).document


def causal_squares() -> Document:
    """Causal attention in miniature over a 2 x 2 grid of queries and keys: empty shards, partial shares."""
    program = plans.causal_program(6)
    shards = {"attend": [parse_region(text) for text in ("0:3,0:3", "0:3,3:6", "3:6,0:3", "3:6,3:6")]}
    return plan_partitions(program, MACHINE, shards).document


PLANNED: Mapping[str, Callable[[], Document]] = {
    make.__name__: make for make in (column_then_row, gathered_weights, two_stencils, causal_squares)
}


@pytest.mark.parametrize("name", PLANNED)
def test_altered_plans_are_rejected_rightly_or_harmless(name: str) -> None:
    document = PLANNED[name]()
    found = list(mutants(document, writing.read(document)))
    show(document, random.Random(1).sample(found, min(SAMPLE, len(found))))
