"""The checker: each verdict provoked, and agreement with the definition on random offsets."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner.solvers.pack import Buffer
from tapestry.planner.solvers.pack.check import Fault, check_packing

from .problems import compatible, problems

TWO = [Buffer("a", 0, 2, 8, alignment=4), Buffer("b", 1, 3, 8, offset=8)]


@pytest.mark.parametrize(
    ("offsets", "faults"),
    [
        ({"a": 0, "b": 8}, []),
        ({"a": 0}, [Fault.MISSING]),
        ({"a": 0, "b": 8, "c": 0}, [Fault.UNKNOWN]),
        ({"a": -4, "b": 8}, [Fault.NEGATIVE]),
        ({"a": 20, "b": 8}, [Fault.CAPACITY]),
        ({"a": 17, "b": 8}, [Fault.ALIGNMENT]),
        ({"a": 0, "b": 9}, [Fault.PIN]),
        ({"a": 4, "b": 8}, [Fault.OVERLAP]),
    ],
)
def test_every_fault_is_found(offsets: dict[str, int], faults: list[Fault]) -> None:
    assert [finding.fault for finding in check_packing(TWO, offsets, 25)] == faults


def test_an_overlap_says_who_when_and_where() -> None:
    (finding,) = check_packing(TWO, {"a": 4, "b": 8}, 25)
    assert (finding.buffer, finding.other, finding.instant) == ("b", "a", 1)
    assert (
        str(finding)
        == "buffer 'b' overlaps another buffer alive with it: at 1, 'b' holds [8, 16) and 'a' holds [4, 12)"
    )


@pytest.mark.parametrize(
    ("output", "at", "legal"),
    [
        (Buffer("out", 1, 3, 8, reuses="in"), 0, True),
        (Buffer("out", 1, 3, 4, reuses="in"), 0, True),
        (Buffer("out", 1, 3, 4, reuses="in"), 4, False),  # not the very offset
        (Buffer("out", 1, 3, 8), 0, False),  # not declared
        (Buffer("out", 1, 3, 9, reuses="in"), 0, False),  # larger than the input
        (Buffer("out", 0, 1, 8, reuses="in"), 0, False),  # the input lives on
    ],
)
def test_reuse_is_legal_only_as_declared(output: Buffer, at: int, legal: bool) -> None:
    findings = check_packing([Buffer("in", 0, 2, 8), output], {"in": 0, "out": at}, 100)
    assert [f.fault for f in findings] == ([] if legal else [Fault.OVERLAP])


@settings(max_examples=300, deadline=None)
@given(problems(), st.data())
def test_agrees_with_the_definition(buffers: list[Buffer], data: st.DataObject) -> None:
    offsets = {b.name: b.alignment * data.draw(st.integers(0, 4)) if b.offset is None else b.offset for b in buffers}
    clashes = {
        frozenset({a.name, b.name})
        for a, b in combinations(buffers, 2)
        if not compatible(a, offsets[a.name], b, offsets[b.name])
    }
    findings = check_packing(buffers, offsets, 1000)
    assert {frozenset({f.buffer, f.other}) for f in findings} == clashes
    assert all(f.fault is Fault.OVERLAP for f in findings)
