"""Operations computed in pieces: what each piece waits for, what it sends, and that the result stays the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.errors import UsageError
from tapestry.inputs import random_inputs
from tapestry.planner import Plan, load_machine
from tapestry.planner.format import Compute, Transfer
from tapestry.planner.lowering.decisions import Pieces, Schedule
from tapestry.planner.lowering.pieces import Cutter
from tapestry.planner.search.candidates import lower
from tapestry.planner.search.explicit import decisions_of, plan_partitions
from tapestry.planner.search.report import with_prediction
from tapestry.program import Operation, Program
from tapestry.reference import evaluate
from tapestry.space import Box, Region
from tapestry.testing import assert_close, partitions, programs

MACHINE = load_machine("cpu-4")
RANKS = 4
Cut = Callable[[Cutter], Pieces | None]


def blocks(shape: Sequence[int], axis: int) -> list[Region]:
    """A box cut evenly along an axis."""
    ends = [(shape[axis] * rank // RANKS, shape[axis] * (rank + 1) // RANKS) for rank in range(RANKS)]
    axes = [[(0, n) if k != axis else end for k, n in enumerate(shape)] for end in ends]
    return [Box(*zip(*rows, strict=True)).region() for rows in axes]


def planned(program: Program, axes: dict[str, int], homes: dict[str, int], **cuts: Cut) -> Plan:
    """A checked plan: every operation cut along one axis of its index space, inputs along one of theirs."""
    extents = {op.name: [dim.extent for dim in op.dims] for op in program.operations}
    shards = {name: blocks(extents[name], axis) for name, axis in axes.items()}
    return lowered(program, shards, {n: blocks(program.tensor(n).shape, axis) for n, axis in homes.items()}, cuts)


def lowered(
    program: Program, shards: Mapping[str, Sequence[Region]], homes: Mapping[str, Sequence[Region]],
    cuts: Mapping[str, Cut],
) -> Plan:  # fmt: skip
    question, decisions = decisions_of(program, MACHINE, shards, homes, {})
    found = {name: cut(Cutter(question.table, decisions, program.op_by_name[name])) for name, cut in cuts.items()}
    pieces = {name: cut for name, cut in found.items() if cut is not None}
    candidate = lower(question, replace(decisions, pieces=pieces), Schedule())
    made = Plan(with_prediction(candidate.document, candidate.timeline, question), program)
    assert made.check().ok, str(made.check())
    return made


def same_as_the_reference(made: Plan) -> None:
    values = random_inputs(made.program, 0)
    assert_close(made.program, values, made.run(values).outputs, evaluate(made.program, values))


def computing(made: Plan, op: str) -> list[Compute]:
    return [task for task in made.document.tasks if isinstance(task, Compute) and task.op == op]


def transfers(made: Plan) -> list[Transfer]:
    return [task for task in made.document.tasks if isinstance(task, Transfer)]


@tp.program
def product(a: f32[Tensor, "m k"], b: f32[Tensor, "k n"]) -> Tensor:
    return tp.matmul(a, b)


PRODUCT = product.bind(m=256, k=256, n=256)
BY_ROWS = {"matmul": 0}


def test_a_piece_waits_for_its_own_part_of_an_operand() -> None:
    made = planned(PRODUCT, BY_ROWS, {"a": 0, "b": 0}, matmul=lambda cutter: cutter.equal("n", 4))
    first, *_, last = computing(made, "matmul")
    assert len(computing(made, "matmul")) == len(transfers(made)) == 4
    assert first.waits == (transfers(made)[0].id,)
    assert last.waits == (transfers(made)[3].id,)
    same_as_the_reference(made)


def test_what_is_held_is_computed_first_and_the_rest_asked_of_different_ranks() -> None:
    """Blocks of b go round: no rank sends two at once."""
    made = planned(PRODUCT, BY_ROWS, {"a": 0, "b": 1}, matmul=lambda cutter: cutter.held_first("b", "n", 3))
    first, *others = computing(made, "matmul")
    assert first.waits == ()
    assert [len(task.waits) for task in others] == [1, 1, 1]
    for task in transfers(made):
        senders = [message.src for message in made.resolved.messages(task)]
        assert sorted(senders) == [*range(RANKS)]
    same_as_the_reference(made)


def test_a_gathered_operand_in_pieces_needs_room_for_some_of_them() -> None:
    whole = planned(PRODUCT, BY_ROWS, {"a": 0, "b": 0})
    pieces = planned(PRODUCT, BY_ROWS, {"a": 0, "b": 0}, matmul=lambda cutter: cutter.equal("n", 4))
    room = [sum(b.nbytes for b in made.document.buffers if b.name.startswith("b>")) for made in (whole, pieces)]
    assert room[0] == room[1], "together the pieces are all of it"
    assert all(b.nbytes == room[0] // 4 for b in pieces.document.buffers if b.name.startswith("b>"))


def test_each_piece_of_a_partial_result_is_folded_while_the_next_is_computed() -> None:
    made = planned(PRODUCT, {"matmul": 2}, {"a": 1, "b": 0}, matmul=lambda cutter: cutter.equal("n", 4))
    assert [task.kind for task in transfers(made)] == ["reduce_scatter"] * 4
    assert [task.waits for task in transfers(made)] == [(task.id,) for task in computing(made, "matmul")]
    whole = planned(PRODUCT, {"matmul": 2}, {"a": 1, "b": 0})
    assert made.document.traffic == whole.document.traffic
    same_as_the_reference(made)


@tp.program
def two(a: f32[Tensor, "m k"], b: f32[Tensor, "k n"], c: f32[Tensor, "n p"]) -> Tensor:
    with tp.name("first"):
        h = tp.matmul(a, b)
    with tp.name("second"):
        return tp.matmul(h, c)


def test_pieces_of_one_operation_feed_those_of_the_next() -> None:
    """Rows of the first product are gathered by columns of it; the second takes rows, piece for piece."""
    program = two.bind(m=64, k=64, n=64, p=64)
    first, second = (op.name for op in program.operations)
    cuts = {name: (lambda cutter: cutter.equal("m", 4)) for name in (first, second)}
    made = planned(program, {first: 1, second: 1}, {"a": 0, "b": 1, "c": 1}, **cuts)
    gathers = [task for task in transfers(made) if task.tensor == program.op_by_name[first].output]
    assert [task.waits for task in gathers] == [(task.id,) for task in computing(made, first)]
    assert [task.waits for task in computing(made, second)[1:]] == [(task.id,) for task in gathers[1:]]
    same_as_the_reference(made)


@tp.program
def stencil(x: f32[Tensor, "1 c h w"], f: f32[Tensor, "e c 3 3"]) -> Tensor:
    return tp.conv2d(tp.exp(x), f, padding=1)


def test_inside_a_halo_is_computed_before_the_border() -> None:
    program = stencil.bind(h=32, w=8, c=2, e=2)
    exp, conv = program.operations
    rows = [dim.name for dim in conv.dims]
    at = next(k for k, dim in enumerate(conv.dims) if dim.extent == 32)
    cuts: dict[str, Cut] = {conv.name: lambda cutter: cutter.held_first(exp.output, rows[at], 1)}
    made = planned(program, {exp.name: 2, conv.name: at}, {"x": 2}, **cuts)
    halo = next(task for task in transfers(made) if task.source == task.target)
    inside, border, other = computing(made, conv.name)
    assert halo.kind == "shift"
    assert halo.id not in inside.waits
    assert halo.id in border.waits
    rows_of = [[region.size for region in made.resolved.regions(task.shards)] for task in (inside, border, other)]
    row = rows_of[1][0]
    assert rows_of == [[7 * row, 6 * row, 6 * row, 7 * row], [row] * 4, [0, row, row, 0]], "the ends have one border"
    same_as_the_reference(made)


@tp.program
def halved(x: f32[Tensor, "1 c h w"], f: f32[Tensor, "e c 3 3"]) -> Tensor:
    return tp.max_pool2d(tp.conv2d(tp.exp(x), f, stride=2, padding=1), 3, stride=2)


def test_strided_and_pooled_layers_have_an_inside() -> None:
    program = halved.bind(c=2, e=2, h=64, w=12)
    exp, conv, pool = program.operations
    cuts: dict[str, Cut] = {
        op.name: lambda cutter, read=read: cutter.held_first(read.output, rows(cutter), 1)  # type: ignore[misc]
        for op, read in ((conv, exp), (pool, conv))
    }
    made = planned(program, {exp.name: 2, conv.name: 2, pool.name: 2}, {"x": 2}, **cuts)
    assert [len(computing(made, op.name)) for op in (conv, pool)] == [2, 2], "a window reaches over one end only"
    same_as_the_reference(made)


def rows(cutter: Cutter) -> str:
    return cutter.op.dims[2].name


def test_what_others_wait_for_is_computed_first() -> None:
    """Two borders, and the inside while they are sent."""
    program = stencil.bind(h=32, w=8, c=2, e=2)
    exp, conv = program.operations
    cuts: dict[str, Cut] = {exp.name: lambda cutter: cutter.sent_first(rows(cutter))}
    made = planned(program, {exp.name: 2, conv.name: 2}, {"x": 2}, **cuts)
    _, other, inside = computing(made, exp.name)
    (halo,) = (task for task in transfers(made) if task.tensor == exp.output)
    assert max(halo.waits) == other.id < inside.id
    same_as_the_reference(made)


@tp.program
def behind(x: f32[Tensor, "1 c h w"], f: f32[Tensor, "e c 3 3"]) -> Tensor:
    with tp.name("first"):
        h = tp.exp(x)
    with tp.name("second"):
        h = h * 2 + tp.mean(h, axis=1, keepdims=True)
    return tp.conv2d(h, f, padding=1)


def test_what_is_sent_first_is_made_first_by_all_before_it() -> None:
    """Borders through two operations, and their insides while they are sent."""
    program = behind.bind(h=32, w=8, c=2, e=2)
    before = program.operations[:-1]
    shards = {op.name: blocks([dim.extent for dim in op.dims], _rows(op)) for op in program.operations}
    question, decisions = decisions_of(program, MACHINE, shards, {"x": blocks((1, 2, 32, 8), 2)}, {})
    cut: dict[str, Pieces] = {}
    for op in reversed(before):
        cutter, readers = Cutter(question.table, decisions, op), [r for r in before if op.output in r.operands]
        needs = [task.needs[r.operands.index(op.output)] for r in readers for task in cut[r.name][0]]
        found = (
            cutter.read_first(needs, op.dims[_rows(op)].name) if needs else cutter.sent_first(op.dims[_rows(op)].name)
        )
        assert found is not None
        cut[op.name] = found
    assert {tuple(len(piece) for piece in pieces) for pieces in cut.values()} == {(2, 1)}, "two borders and an inside"
    candidate = lower(question, replace(decisions, pieces=cut), Schedule(listed=True))
    made = Plan(with_prediction(candidate.document, candidate.timeline, question), program)
    assert made.check().ok, str(made.check())
    (halo,) = (task for task in transfers(made) if task.tensor == before[-1].output)
    insides = [computing(made, op.name)[-1].id for op in before]
    assert max(halo.waits) < min(insides)
    same_as_the_reference(made)


@tp.program
def ahead(x: f32[Tensor, "1 c h w"], f: f32[Tensor, "e c 3 3"]) -> Tensor:
    h = tp.conv2d(x, f, padding=1)
    with tp.name("mean"):
        mean = tp.mean(h, axis=1, keepdims=True)
    with tp.name("scale"):
        return tp.exp(h - mean)


def test_what_waits_for_no_border_goes_on_through_all_behind_it() -> None:
    """Insides through all operations before the first border."""
    program = ahead.bind(h=32, w=8, c=2, e=2)
    first, *behind_it = program.operations
    shards = {op.name: blocks([dim.extent for dim in op.dims], _rows(op)) for op in program.operations}
    question, decisions = decisions_of(program, MACHINE, shards, {"x": blocks((1, 2, 32, 8), 2)}, {})
    cutter = Cutter(question.table, decisions, first)
    found = cutter.held_first("x", first.dims[_rows(first)].name, 1)
    assert found is not None
    cut, before = {first.name: found}, first
    for op in behind_it:
        cutter, row = Cutter(question.table, decisions, op), op.dims[_rows(op)].name
        (made,) = (task.writes for task in cut[before.name][0])
        found = cutter.made_first(before.output, [made], row)
        assert found is not None
        assert cutter.made_first(before.output, [decisions.strategies[before.name].writes], row) is None, "all is"
        cut[op.name], before = found, op
    assert {tuple(len(piece) for piece in pieces) for pieces in cut.values()} == {(1, 2)}, "an inside and two borders"
    candidate = lower(question, replace(decisions, pieces=cut), Schedule(listed=True))
    plan = Plan(with_prediction(candidate.document, candidate.timeline, question), program)
    assert plan.check().ok, str(plan.check())
    insides = [computing(plan, op.name)[0].id for op in program.operations]
    borders = [task.id for op in program.operations for task in computing(plan, op.name)[1:]]
    assert max(insides) < min(borders)
    same_as_the_reference(plan)


def test_nothing_is_read_first_where_all_is_or_nothing() -> None:
    program = behind.bind(h=32, w=8, c=2, e=2)
    first = program.operations[0]
    shards = {op.name: blocks([dim.extent for dim in op.dims], _rows(op)) for op in program.operations}
    question, decisions = decisions_of(program, MACHINE, shards, {"x": blocks((1, 2, 32, 8), 2)}, {})
    cutter, row = Cutter(question.table, decisions, first), first.dims[_rows(first)].name
    assert cutter.read_first([decisions.strategies[first.name].writes], row) is None
    assert cutter.read_first([], row) is None


def _rows(op: Operation) -> int:
    """The axis of the image's rows."""
    return next(k for k, dim in enumerate(op.dims) if dim.extent == 32)


def test_pieces_of_an_operand_make_room_for_one_another() -> None:
    """Where memory is scarce, the gathered operand is never there as a whole."""
    a, b = blocks((256, 256), 0), blocks((256, 256), 0)
    shards = {"matmul": blocks([dim.extent for dim in PRODUCT.operations[0].dims], 0)}
    block = 256 * 256 * 4 // RANKS
    tight = MACHINE.with_memory({MACHINE.device.compute_tier.name: 5 * block})
    question, decisions = decisions_of(PRODUCT, tight, shards, {"a": a, "b": b}, {})
    cut = Cutter(question.table, decisions, PRODUCT.operations[0]).equal("n", 4)
    assert cut is not None
    peaks = [lower(question, replace(decisions, pieces=pieces), Schedule(1)).peak for pieces in ({}, {"matmul": cut})]
    assert peaks[0] == 6 * block, "a, b and all four blocks of b; the result takes the place of b"
    assert peaks[1] == 5 * block, "a, b, two pieces of b and the result"


def test_pieces_that_are_not_the_whole_are_refused() -> None:
    extents = [dim.extent for dim in PRODUCT.operations[0].dims]
    shards = blocks(extents, 0)
    with pytest.raises(UsageError, match="make up its partition"):
        plan_partitions(PRODUCT, MACHINE, {"matmul": shards}, pieces={"matmul": [shards, blocks(extents, 1)]})


def drawn(data: Any, program: Program) -> dict[str, Cut]:
    """For some operations a way to cut them that may not be one."""
    found: dict[str, Cut] = {}
    for op in program.operations:
        dims = [dim.name for dim in op.dims if dim.cut and dim.name in op.parallel_dims]
        dim, count = data.draw(st.sampled_from([*dims, None])), data.draw(st.integers(1, 3))
        if dim is not None:
            first = data.draw(st.sampled_from([*op.operands, None]))
            found[op.name] = lambda c, d=dim, n=count, f=first: c.held_first(f, d, n) if f else c.equal(d, n)  # type: ignore[misc]
    return found


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_pieces_of_any_plan_compute_what_the_program_means(data: Any) -> None:
    program = data.draw(programs(wide=True))
    made = lowered(program, data.draw(partitions(program, RANKS)), {}, drawn(data, program))
    same_as_the_reference(made)
