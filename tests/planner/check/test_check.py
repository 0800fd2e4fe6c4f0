"""The checker accepts hand-written plans, and every verdict is provoked by an alteration that deserves it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tapestry.planner.check import Code, Report, check
from tapestry.planner.format.document import Document
from tapestry.program import Pin
from tapestry.serialize import program_from_json, program_to_json

from . import plans
from .alterations import PROVOKED, buffer, crossed, softmax_state, task, twice


@pytest.mark.parametrize("name", plans.ALL)
def test_hand_written_plans_pass(name: str) -> None:
    report = check(plans.ALL[name]())
    assert report.ok, str(report)


@pytest.mark.parametrize(("why", "code", "make"), PROVOKED, ids=[why for why, _, _ in PROVOKED])
def test_an_alteration_gets_its_verdict(why: str, code: Code, make: Callable[[], Document]) -> None:
    report = check(make())
    assert code in report.codes, str(report)


def test_every_code_is_provoked() -> None:
    faults_of_ours = {Code.DISAGREEMENT}  # no plan provokes it: see test_planted
    assert {code for _, code, _ in PROVOKED} == set(Code) - faults_of_ours
    assert all(code.meaning for code in Code)


def test_a_softmax_state_folded_whole_passes() -> None:
    report = check(softmax_state())
    assert report.ok, str(report)


def test_a_verdict_names_place_and_witness() -> None:
    report = check(task(plans.halo(), 1, need="L0"))
    first = report.verdicts[0]
    assert (first.code, first.task, first.rank, first.tensor, first.witness) == (Code.MISSING, 2, 0, "y", (3,))
    assert str(report).splitlines()[0] == (
        "missing: task 2, rank 0, tensor y: stencil reads buffer y where nothing was written      witness: (3,)"
    )
    assert json.loads(json.dumps(report.to_json()))["verdicts"][0]["witness"] == [3]


def test_a_deadlock_names_its_cycle() -> None:
    (verdict,) = check(crossed()).verdicts
    assert verdict.message == "each waits for the one before it: 0 -> 1 -> 0"


def test_a_good_report_states_what_was_proved() -> None:
    report = check(plans.halo())
    assert report.facts == {"ranks": 3, "operations": 2, "points": 18, "bytes_total": 32, "tasks": 3, "events": 7}
    assert str(report).startswith("ok: 3 ranks, 2 operations")


def test_many_verdicts_of_a_kind_are_counted_rather_than_listed() -> None:
    document = plans.elementwise()
    report = check(replace(document, tasks=tuple(replace(document.tasks[0], id=k, lane="no") for k in range(80))))
    assert len(report.verdicts) == 50
    assert report.left_out == 30
    assert str(report).endswith("and 30 more")


def test_a_pinned_input_may_start_in_copies() -> None:
    document = twice()
    assert Code.INITIAL in check(document).codes
    program = program_from_json(document.program)
    pinned = program.with_pins(Pin("tensor", "x", (("mesh0", None),)))
    assert Code.INITIAL not in check(replace(document, program=program_to_json(pinned))).codes


def test_no_change_of_one_field_makes_the_checker_stumble() -> None:
    """Whatever a hand puts in the place of a name, number or region, there is a report."""
    for name in ("halo", "prefetch", "causal_keys_split", "state"):
        document = plans.ALL[name]()
        for changed in _nonsense(document):
            assert isinstance(check(changed), Report)


def _nonsense(document: Document) -> Iterator[Document]:
    for field in ("mesh", "devices"):
        for value in ((), (0,), (-1,), (2, 2), (10**20,)):
            yield replace(document, **{field: value})
    for name, layout in document.layouts.items():
        for text in ("empty", "()", "0:1", "0:1,0:1,0:1", "-3:2", "0:99999999999", "x", ""):
            other = replace(layout, regions=(text,) * len(layout.regions))
            yield replace(document, layouts={**document.layouts, name: other})
    for k in range(len(document.tasks)):
        for field in document.tasks[k].__struct_fields__:
            for value in (
                [(), (0,), (-1,), (0, 0)] if field == "ranks" else _values(getattr(document.tasks[k], field), document)
            ):
                yield task(document, k, **{field: value})
    for b in document.buffers:
        for field in b.__struct_fields__:
            for value in _values(getattr(b, field), document):
                yield buffer(document, b.name, **{field: value})


def _values(value: object, document: Document) -> list[Any]:
    """Other values of the same type."""
    names = [*document.layouts, *(b.name for b in document.buffers), "", "nothing"]
    if isinstance(value, tuple):
        return [
            (),
            value[::-1],
            value + value,
            *([("nothing",)] if value and isinstance(value[0], str) else [(-5,), (10**30,)]),
        ]
    if isinstance(value, int):
        return [-1, 0, 7, 10**30]
    return [*names, None] if value is None else names
