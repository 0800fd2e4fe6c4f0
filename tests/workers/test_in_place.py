"""Results in the place of an operand: every scalar function over each of its arguments, as the reference has it."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry.errors import ProgramError
from tapestry.expr import FUNCTIONS
from tapestry.inputs import random_inputs
from tapestry.planner.format import Compute, Document
from tapestry.program import Dim, Operation, Program, Tensor
from tapestry.reference import evaluate
from tapestry.testing import assert_close
from tapestry.verify import verify

from .sheets import Sheet, call, dim, read
from .unchecked import run_unchecked

SHAPE = (2, 40_000)  # more than a slab
WHOLE = "0:2,0:40000"


def called(function: str, dtype: str) -> Program | None:
    """The function of as many operands as it takes, its result of their dtype; None where it takes no such operands."""
    names = "xyz"[: FUNCTIONS[function].arity]
    body = call(function, *(read(name, "a", "b") for name in names))
    op = Operation("f", tuple(map(Dim, "ab", SHAPE)), "out", (dim("a"), dim("b")), body)
    dtypes = ["bool" if FUNCTIONS[function].result == "branch" else dtype, dtype, dtype]
    given = [Tensor(name, each, SHAPE, "input") for name, each in zip(names, dtypes, strict=False)]
    tensors = (*given, Tensor("out", dtype, SHAPE))
    program = Program("called", tensors, (op,), ("out",))
    try:
        verify(program)
    except ProgramError:
        return None
    return program


def over(program: Program, place: int) -> Document:
    """One task, its result in the place of an operand."""
    sheet = Sheet(program, 1)
    given = [sheet.buffer(tensor.name, WHOLE, initial=True) for tensor in program.of_role("input")]
    out = sheet.buffer("out", WHOLE)
    sheet.compute("f", WHOLE, given, out)
    document = sheet.document({"out": out})
    offset = document.buffers[place].offset
    buffers = tuple(replace(b, offset=offset) if b.name == out else b for b in document.buffers)
    (task,) = document.tasks
    assert isinstance(task, Compute)
    return replace(document, buffers=buffers, tasks=(replace(task, over=given[place]),))


CASES = [
    (function, dtype, place)
    for function, entry in FUNCTIONS.items()
    if function != "within"  # its second argument is the extent of an axis, a number
    for dtype in ("f32", "bf16", "bool")
    if (program := called(function, dtype)) is not None
    for place in range(entry.arity)
    if program.tensors[place].dtype == dtype
]


def test_choices_over_each_of_their_branches_are_among_them() -> None:
    assert {("where", "f32", 1), ("where", "f32", 2), ("where", "bool", 0), ("rsqrt", "bf16", 0)} <= {*CASES}


@pytest.mark.parametrize(("function", "dtype", "place"), CASES)
def test_a_function_over_one_of_its_arguments(function: str, dtype: str, place: int) -> None:
    program = called(function, dtype)
    assert program is not None
    inputs = random_inputs(program, 3)
    with np.errstate(all="ignore"):
        expected = evaluate(program, inputs)
    found = run_unchecked(over(program, place), inputs)
    assert_close(program, inputs, found.outputs, expected)
