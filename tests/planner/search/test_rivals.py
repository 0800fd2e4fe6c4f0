"""On the examples, no hand-made sharding has a shorter simulated makespan than the plan."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tapestry.errors import Infeasible, TimeLimit
from tapestry.planner import Plan, plan
from tapestry.planner.search.rivals import rivals
from tapestry.program import Program

from ... import files

pytestmark = pytest.mark.long


def bound(example: str, name: str, **extents: Any) -> Program:
    program: Program = getattr(files.example(example), name).bind(**extents)
    return program


@cache
def planned(example: str, name: str, machine: str, ranks: int, memory: str | None, **extents: Any) -> Plan:
    """Several tests look at the same plan. memory: the budget of hbm."""
    return plan(
        bound(example, name, **extents), machine, mesh=(ranks,), memory=memory and {"hbm": memory}, time_limit=600
    )


CASES = [
    ("llama", "forward", {"layers": 4}, "h200x8", 8, None),
    ("llama", "forward", {"layers": 4, "tokens": 32768}, "h200x8", 4, None),
    ("llama", "forward", {"layers": 4}, "h200x8", 8, "1200MiB"),
    ("llama", "forward", {"layers": 3, "tokens": 512}, "h200x8-2node", 16, None),
    ("convnet", "forward", {}, "cpu-4", 4, None),
    ("convnet", "forward", {"n": 1}, "cpu-4", 4, None),
    ("convnet", "forward", {"n": 16}, "h200x8", 8, None),
    ("mlp", "forward", {}, "cpu-4", 4, None),
    ("mlp", "forward", {"n": 8, "hidden": 4096}, "cpu-4", 4, None),
    ("corners", "corners", {"y": 427, "x": 640}, "cpu-4", 4, None),
]


@pytest.mark.parametrize(("example", "name", "extents", "machine", "ranks", "memory"), CASES)
def test_no_rival_is_faster(
    example: str, name: str, extents: dict[str, Any], machine: str, ranks: int, memory: str | None
) -> None:
    program = bound(example, name, **extents)
    mine = planned(example, name, machine, ranks, memory, **extents)
    assert mine.check().ok
    compared, budget = 0, memory and {"hbm": memory}
    for rival in rivals(program):
        try:
            # Pins leave little to decide: what is decided late in a search is not waited for.
            theirs = plan(program, machine, mesh=(ranks,), memory=budget, pins=rival.pins, time_limit=20)
        except (Infeasible, TimeLimit):
            continue
        compared += 1
        assert mine.document.predicted.makespan_s <= theirs.document.predicted.makespan_s * (1 + 1e-9), rival.name
    assert compared >= 1


def test_llama_with_plenty_of_memory_replicates_weights_and_cuts_tokens() -> None:
    made = planned("llama", "forward", "h200x8", 8, None, layers=4)
    cuts = {tuple(s.partition.items()) for s in made.document.shardings.values()}
    assert cuts == {(("t", "mesh0"),)}
    resident = {b.tensor: set(made.document.layouts[b.initial].regions) for b in made.document.buffers if b.initial}
    assert all(len(regions) == 1 for name, regions in resident.items() if name.endswith((".wq", ".w_up", ".w_down")))


def test_llama_with_little_memory_cuts_weights() -> None:
    made = planned("llama", "forward", "h200x8", 8, "1200MiB", layers=4)
    resident = {b.tensor: set(made.document.layouts[b.initial].regions) for b in made.document.buffers if b.initial}
    assert any(len(regions) == 8 for name, regions in resident.items() if ".w" in name)
    assert made.document.peak_bytes["0"]["hbm"] <= 1200 * 2**20


def test_llama_without_memory_says_what_binds() -> None:
    with pytest.raises(Infeasible) as found:
        plan(bound("llama", "forward"), "h200x8", mesh=(8,), memory={"hbm": "1GiB", "host": 0})
    text = str(found.value)
    assert "1 GiB" in text
    assert "needs" in text
    assert "layers." in text
    assert "--memory hbm=" in text
