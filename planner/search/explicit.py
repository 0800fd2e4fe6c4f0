"""Plans from partitions that are given, not solved for: what tests and hand-made studies start from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...errors import UsageError
from ...program import Operation, Program
from ...records import free_axes
from ...space import Region
from ..interface import Plan
from ..lowering.decisions import Decisions, Pieces, Schedule
from ..machine import Machine
from ..strategy.layouts import Layout
from ..strategy.mesh import SINGLE, Cut, Mesh
from ..strategy.strategies import Strategy
from .candidates import lower
from .question import Question
from .report import with_prediction

Regions = Sequence[Region]


def plan_partitions(
    program: Program,
    machine: Machine,
    partitions: Mapping[str, Regions],
    *,
    homes: Mapping[str, Regions] | None = None,
    ends: Mapping[str, Regions] | None = None,
    pieces: Mapping[str, Sequence[Regions]] | None = None,
    schedule: Schedule | None = None,
) -> Plan:
    """Lower a program whose every operation has an explicit partition: one region of its index space per rank.

    The regions of an operation cover its domain; ranks may repeat a region (redundant computation). homes: where
    inputs, params, states start, per rank (default: inputs cut along their longest axis, all else on every rank). ends:
    where partial outputs are folded to (default: cut along the longest axis). pieces: of operations that are computed
    one part after another, what every rank computes of each; together they are the partition, and none leaves out part
    of a reduction. UsageError if an operation has no partition or the numbers of ranks differ.
    """
    question, decisions = decisions_of(program, machine, partitions, homes or {}, ends or {})
    ops = ((program.op_by_name[name], given) for name, given in (pieces or {}).items())
    cut = {op.name: _pieces(question, op, decisions.strategies[op.name], given) for op, given in ops}
    decisions = replace(decisions, pieces=cut)
    candidate = lower(question, decisions, schedule or Schedule())
    return Plan(with_prediction(candidate.document, candidate.timeline, question), program)


def _pieces(question: Question, op: Operation, strategy: Strategy, given: Sequence[Regions]) -> Pieces:
    columns = zip(*given, strict=True)
    if not all(Region.union(parts).same(shard) for parts, shard in zip(columns, strategy.shards, strict=True)):
        raise UsageError("the pieces of an operation make up its partition", where=f"operation {op.name}")
    shape = strategy.domain.shape
    return tuple((question.table.piece(op, strategy, Layout(shape, tuple(regions))),) for regions in given)


def decisions_of(
    program: Program,
    machine: Machine,
    partitions: Mapping[str, Regions],
    homes: Mapping[str, Regions],
    ends: Mapping[str, Regions],
) -> tuple[Question, Decisions]:
    """What a solver would have been asked, and its answer if it were the given one."""
    counts = {len(regions) for regions in partitions.values()}
    missing = [op.name for op in program.operations if op.name not in partitions]
    if missing or len(counts) != 1:
        raise UsageError(
            "every operation needs one region per rank",
            where="partitions",
            sides={"without": ", ".join(missing) or "none", "numbers of ranks": str(sorted(counts))},
        )
    mesh = Mesh.of((counts.pop(),), machine.device_count)
    question = Question.of(program, machine, mesh)
    strategies = {op.name: question.table.explicit(op, partitions[op.name]) for op in program.operations}
    sources = program.of_role("input", "param", "state", "const")
    outputs = {*program.outputs, *(value for _, value in program.states)} & set(program.producer)
    decisions = Decisions(
        {t.name: _layout(question, t.shape, homes.get(t.name), t.role != "input") for t in sources},
        strategies,
        {name: _end(question, name, ends.get(name)) for name in sorted(outputs)},
    )
    return question, decisions


def _layout(question: Question, shape: tuple[int, ...], given: Regions | None, replicate: bool) -> Layout:
    if given is not None:
        return question.layouts.of(shape, given)
    if replicate:
        return question.layouts.replicated(shape)
    return _along_longest(question, shape, len(shape))


def _end(question: Question, name: str, given: Regions | None) -> Layout:
    shape = question.program.tensor(name).shape
    if given is not None:
        return question.layouts.of(shape, given)
    return _along_longest(question, shape, free_axes(question.program, name))


def _along_longest(question: Question, shape: tuple[int, ...], able: int) -> Layout:
    """Cut along the longest of the first axes; on one rank where there are none."""
    if not able:
        return question.layouts.cut(shape, (Cut(SINGLE),))
    return question.layouts.cut(shape, (Cut(str(max(range(able), key=lambda k: shape[k]))),))
