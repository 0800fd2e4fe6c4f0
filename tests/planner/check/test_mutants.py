"""The checker against every single alteration of the hand-written plans.

A mutant that the checker rejects must be rejected for a reason that fits the alteration. One that it passes must be
harmless: in every order that its lanes and waits allow (all, when there are few; else 200 seeded unfair ones), from
poisoned memory, the toy machine gets the reference's values.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tapestry.planner.check import Code, check
from tapestry.planner.format.model import Document
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.serialize import program_from_json

from . import plans
from .mutations import mutants
from .toy import Broken, Toy, closure, orders, predecessors

VALUES = {Code.MISSING, Code.OVERLAP, Code.UNFOLDED, Code.NOBODY, Code.PARTS, Code.OUTPUT, Code.STATE}
SHAPES = {Code.LAYOUT, Code.OUTSIDE, Code.STORAGE, Code.TASK, Code.REFERENCE, Code.INITIAL, Code.MONOID, Code.DUPLICATE}
COVER = {Code.UNCOVERED, Code.OVERCOVERED}
FITTING: dict[str, set[Code]] = {
    "waits_removed": {Code.RACE},
    "waits_changed": {Code.RACE, Code.DEADLOCK},
    "tasks_removed": {Code.RACE, *COVER, *VALUES},
    "ranks_removed": {Code.RACE, *COVER, *VALUES},
    "ranks_split": {Code.RACE, Code.NOBODY, Code.DEADLOCK, Code.PARTS, Code.MISSING},
    "offsets_changed": {Code.RACE, Code.OVERLAP, Code.STORAGE, Code.CAPACITY},
    "shards_changed": {*COVER, *VALUES, Code.OUTSIDE, Code.LAYOUT, Code.RACE},
    "transfers_changed": {*VALUES, *SHAPES, Code.RACE},
    "buffers_changed": {*VALUES, *SHAPES},
    "tasks_changed": {*VALUES, *SHAPES, Code.RACE, Code.DEADLOCK},
    "order_changed": {Code.RACE, Code.DEADLOCK, Code.MISSING, Code.OVERLAP, Code.UNFOLDED},
    "ends_changed": {Code.OUTPUT, Code.STATE, Code.REFERENCE, Code.OVERLAP},
}


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
    from msgspec.structs import replace

    tasks = tuple(replace(task, waits=(), lane="") for task in document.tasks)
    return repr((tasks, document.buffers, document.layouts, document.outputs, document.states)), closure(
        predecessors(document)
    )


@pytest.mark.parametrize("name", plans.ALL)
def test_every_mutant_is_rejected_rightly_or_harmless(name: str) -> None:
    document = plans.ALL[name]()
    program = program_from_json(document.program)
    inputs = drawn(program)
    expected = evaluate(program, inputs)
    shown = {freedom(document)} if harm(document, program, inputs, expected) is None else set()
    assert shown, "the plan itself is wrong"
    for mutant in mutants(document, program):
        report = check(mutant.document)
        if not report.ok:
            assert report.codes & FITTING[mutant.kind], f"{mutant.kind}: {mutant.what}\n{report}"
        elif (way := freedom(mutant.document)) not in shown:
            wrong = harm(mutant.document, program, inputs, expected)
            assert wrong is None, f"passed, though {mutant.what} ({mutant.kind}) does harm: {wrong}"
            shown.add(way)
