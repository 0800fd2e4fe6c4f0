"""Steps on four and eight H200, predicted beside what is wanted of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from .files import benchmarks


@pytest.fixture(scope="module")
def goals() -> Iterator[Any]:
    with benchmarks("goals") as modules:
        yield modules["goals"]


def test_a_line_says_what_was_reached(goals: Any) -> None:
    """The same step with a goal on either side of it."""
    (goal,) = (each for each in goals.GOALS if each.example == "convnet")
    cells = [each.strip() for each in goals.line(goal).split("|")[1:-1]]
    took, bound = (float(cell.removesuffix(" ms")) for cell in cells[2:4])
    assert 0 < bound < took
    ratio = float(cells[5].removesuffix(" times"))
    assert cells[4].startswith("one GPU ")
    for times, said in ((0.9 * ratio, "yes"), (1.1 * ratio, "no")):
        assert goals.line(replace(goal, times=times)).endswith(f"| {said} |")


def test_sequences_that_are_apart_are_data_parallel(goals: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one layer: nothing is moved but gradients, and weights where they are cut."""
    monkeypatch.setattr(goals, "LAYERS", 1)
    program = goals.train_sequences.bind(b=8)
    whole, cut = (
        goals.plan(program, "h200x8", mesh=(8,), pins=goals.sequences_apart(program, states_cut=states_cut))
        for states_cut in (False, True)
    )
    weights = sum(tensor.nbytes for tensor in program.of_role("state") if tensor.dtype == "bf16")
    moved, loss = whole.document.traffic, 7 * 4
    assert moved.bytes_by_kind["all_reduce"] == 2 * 7 * weights
    assert moved.bytes_total == 2 * 7 * weights + loss
    assert cut.document.traffic.bytes_by_kind["reduce_scatter"] == pytest.approx(7 * weights, rel=1e-3)
    most = [max(max(tiers.values()) for tiers in made.document.peak_bytes.values()) for made in (whole, cut)]
    assert most[1] < most[0]
