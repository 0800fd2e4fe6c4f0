"""What has to be shown of a mutant: rejected for a reason that fits, or harmless in every order that it allows."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec.structs import replace

from tapestry.planner.check import Code, Report, check
from tapestry.planner.format.document import Document
from tapestry.program import Program
from tapestry.reference import evaluate

from . import writing
from .mutations import Mutant
from .toy import Broken, Toy, closure, orders, predecessors

VALUES = {Code.MISSING, Code.OVERLAP, Code.UNFOLDED, Code.NOBODY, Code.PARTS, Code.OUTPUT, Code.STATE}
SHAPES = {Code.LAYOUT, Code.OUTSIDE, Code.STORAGE, Code.TASK, Code.REFERENCE, Code.INITIAL, Code.MONOID, Code.DUPLICATE}

COVER = {Code.UNCOVERED, Code.OVERCOVERED}
FITTING: dict[str, set[Code]] = {
    "waits_removed": {Code.RACE},
    "waits_changed": {Code.RACE, Code.DEADLOCK},
    "tasks_removed": {Code.RACE, *COVER, *VALUES},
    "ranks_removed": {Code.RACE, *COVER, *VALUES},
    "ranks_split": {Code.RACE, Code.NOBODY, Code.DEADLOCK, Code.PARTS, Code.MISSING, Code.UNFOLDED},
    "offsets_changed": {Code.RACE, Code.OVERLAP, Code.STORAGE, Code.CAPACITY, Code.IN_PLACE},
    "over_changed": {Code.OVERLAP, Code.IN_PLACE},
    "onto_changed": {*VALUES, Code.RACE, Code.TASK},
    "shards_changed": {*COVER, Code.UNCUTTABLE, *VALUES, Code.OUTSIDE, Code.LAYOUT, Code.RACE},
    "transfers_changed": {*VALUES, *SHAPES, Code.RACE, Code.UNCUTTABLE},
    "buffers_changed": {*VALUES, *SHAPES},
    "tasks_changed": {*VALUES, *SHAPES, Code.RACE, Code.DEADLOCK},
    "order_changed": {Code.RACE, Code.DEADLOCK, Code.MISSING, Code.OVERLAP, Code.UNFOLDED},
    "ends_changed": {Code.OUTPUT, Code.STATE, Code.REFERENCE, Code.OVERLAP},
}


FIGURES = {Code.TRAFFIC, Code.PEAK, Code.KIND, Code.LINKS, Code.PREDICTED, Code.SHARDING, Code.BOUND, Code.GAP}


def judged(mutant: Mutant) -> Report:
    """What the checker says of an alteration; of the figures that it leaves wrong only where nothing else is."""
    report = check(mutant.altered)
    verdicts = tuple(verdict for verdict in report.verdicts if verdict.code not in FIGURES)
    return Report(verdicts) if verdicts else check(mutant.document)


def drawn(program: Program) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    given = program.of_role("input", "param", "state")
    return {t.name: rng.integers(1, 100, t.shape, dtype=np.int64) for t in given}


def harm(
    document: Document, program: Program, inputs: dict[str, Any], expected: dict[str, Any], seeds: int = 200
) -> str | None:
    """What goes wrong in some order that the plan allows, or None."""
    try:
        toy = Toy(document, program)
        for n, order in enumerate(orders(toy.before, seeds)):
            rng = random.Random(n)
            faults = toy.faults(toy.run(order, inputs, rng), expected)
            if faults:
                return f"order {order}: {faults[0]}"
    except Broken as broken:
        return str(broken)
    return None


def freedom(document: Document) -> object:
    """All that decides how a plan can run: two plans with the same tasks and the same order relation are one."""
    tasks = tuple(replace(task, waits=(), lane="") for task in document.tasks)
    return repr((tasks, document.buffers, document.layouts, document.outputs, document.states)), closure(
        predecessors(document)
    )


def show(document: Document, mutants: Iterable[Mutant]) -> list[Document]:
    """Assert it of mutants of a plan that is itself right, and return those that pass the checker.

    What allows no more than was shown is not run again.
    """
    program = writing.read(document)
    inputs = drawn(program)
    expected = evaluate(program, inputs)
    assert check(document).ok, str(check(document))
    assert harm(document, program, inputs, expected) is None
    shown, passed = {freedom(document)}, []
    for mutant in mutants:
        report = judged(mutant)
        if not report.ok:
            assert report.codes & FITTING[mutant.kind], f"{mutant.kind}: {mutant.what}\n{report}"
            continue
        passed.append(mutant.document)
        if (way := freedom(mutant.document)) not in shown:
            wrong = harm(mutant.document, program, inputs, expected)
            assert wrong is None, f"passed, though {mutant.what} ({mutant.kind}) does harm: {wrong}"
            shown.add(way)
    return passed
