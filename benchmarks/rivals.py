"""Predicted makespans of the plan and of every hand-made sharding that the program admits, by the same simulator.

    python benchmarks/rivals.py

Prints one list of JSON objects, one for each example. A rival that does not fit in memory has no makespan.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from tapestry.errors import Infeasible
from tapestry.planner import plan
from tapestry.planner.search.rivals import rivals
from tapestry.program import Program


@dataclass(frozen=True)
class Case:
    """One example on one machine."""

    title: str
    example: str
    program: str
    machine: str
    ranks: int
    extents: dict[str, int] = field(default_factory=dict)
    memory: dict[str, str] | None = None

    def bound(self) -> Program:
        bound: Program = getattr(import_module(self.example), self.program).bind(**self.extents)
        return bound


CASES = (
    Case("Llama, 8 layers, 8,192 tokens", "llama", "forward", "h200x8", 8, {"layers": 8}),
    Case("Llama, 4 layers, 1,200 MiB a device", "llama", "forward", "h200x8", 8, {"layers": 4}, {"hbm": "1200MiB"}),
    Case("Llama, 4 layers, 32,768 tokens", "llama", "forward", "h200x8", 4, {"layers": 4, "tokens": 32768}),
    Case("ConvNeXt-like, 16 images", "convnet", "forward", "h200x8", 8, {"n": 16}),
    Case("ConvNeXt-like, 1 image", "convnet", "forward", "cpu-4", 4, {"n": 1}),
    Case("perceptron, 8 rows, 4,096 hidden", "mlp", "forward", "cpu-4", 4, {"n": 8, "hidden": 4096}),
)


def compared(case: Case) -> dict[str, Any]:
    """Makespans in seconds: the plan's, and each rival's or None."""
    program = case.bound()
    found: dict[str, float | None] = {}
    for rival in rivals(program):
        try:
            theirs = plan(program, case.machine, mesh=(case.ranks,), memory=case.memory, pins=rival.pins)
        except Infeasible:
            found[rival.name] = None
        else:
            found[rival.name] = theirs.document.predicted.makespan_s
    mine = plan(program, case.machine, mesh=(case.ranks,), memory=case.memory).document
    where = f"{case.machine}, {case.ranks} devices"
    return {
        "case": case.title,
        "where": where,
        "plan_s": mine.predicted.makespan_s,
        "bound_s": None if mine.bound is None else mine.bound.bound_s,
        "rivals": found,
    }


def main() -> None:
    """Print one list of JSON."""
    print(json.dumps([compared(case) for case in CASES]))


if __name__ == "__main__":
    main()
