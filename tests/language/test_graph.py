"""The program as a graph: its edges are reads, cycles are found where there are some, layers have equal marks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

from hypothesis import given

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.expr import Call, Expr, Read
from tapestry.program import Operation, Program
from tapestry.testing import programs


def reads(program: Program) -> set[tuple[str, str]]:
    """Writer and reader of every value, looked up operand by operand."""
    return {(a.name, b.name) for a in program.operations for b in program.operations if a.output in b.operands}


@given(programs(max_ops=8))
def test_an_edge_leads_from_each_writer_to_each_of_its_readers(program: Program) -> None:
    assert set(program.graph.network.edges) == reads(program)
    assert list(program.graph.network) == [op.name for op in program.operations]


@given(programs(max_ops=8))
def test_a_program_that_is_valid_has_no_cycle(program: Program) -> None:
    assert all(program.graph.cycle(op.name) is None for op in program.operations)


@tp.program
def layered(x: f32[Tensor, "n c"], *, layers: int = 3) -> Tensor:
    for _ in range(layers):
        x = tp.tanh(tp.relu(x) * 0.5)
    return x


def test_a_cycle_is_the_shortest_way_back() -> None:
    program = layered.bind(n=4, c=3, layers=2)
    first, *_, last = program.operations
    assert isinstance(first.body, Expr)
    body = Call("add", (first.body, Read(last.output, first.reads[0].index)))
    looped = replace(program, operations=(replace(first, body=body), *program.operations[1:]))
    cycle = looped.graph.cycle(first.name)
    assert cycle is not None
    assert cycle[0] == cycle[-1] == first.name
    assert set(pairwise(cycle)) <= reads(looped)
    assert len(cycle) == len(looped.operations) + 1


def test_layers_have_equal_marks_and_what_differs_in_shape_wiring_or_use_has_not() -> None:
    program = layered.bind(n=4, c=3, layers=4)
    period = len(program.operations) // 4
    marks = program.graph.marks
    assert marks[period : 2 * period] == marks[2 * period : 3 * period]
    assert marks[0] != marks[period]  # it reads an input
    other: Operation = layered.bind(n=4, c=5).operations[0]
    assert program.graph.structure(program.operations[0]) != layered.bind(n=4, c=5).graph.structure(other)
    assert marks[-1] != marks[-1 - period]  # the last result is an output


def test_networkx_is_loaded_by_the_first_question_that_needs_it() -> None:
    code = (
        "import sys, tapestry as tp; from tapestry.program import Program; p = Program('e', (), (), ());"
        "assert p.graph.marks == [] and 'networkx' not in sys.modules;"
        "p.graph.network; assert 'networkx' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
