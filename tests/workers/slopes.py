"""Programs that differentiate attention, run by any device to the values of the reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tapestry as tp
from tapestry import Tensor
from tapestry.closeness import assert_close
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine, plan
from tapestry.planner.format import Document
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Operation, Program
from tapestry.reference import evaluate
from tapestry.space import Box, Region
from tapestry.space.cuts import Zigzag

from .shards import along
from .unchecked import run_unchecked


@dataclass(frozen=True)
class Case:
    """Queries, keys, heads of queries and of keys, their width, batches (0: no such axis), and what is seen."""

    dtype: str
    sizes: tuple[int, int, int, int, int]
    batches: int = 0
    seen: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.seen.items() if not callable(value))
        return f"{self.dtype} {'x'.join(map(str, (self.batches, *self.sizes)))} {said}"

    def program(self) -> Program:
        t, s, h, g, e = self.sizes
        lead, named = ((self.batches,), ("b",)) if self.batches else ((), ())

        @tp.program
        def loss() -> Tensor:
            ours, theirs = (*named, "t", "h", "e"), (*named, "s", "g", "e")
            q = tp.param("q", self.dtype, (*lead, t, h, e), axes=ours)
            k, v = (tp.param(name, self.dtype, (*lead, s, g, e), axes=theirs) for name in "kv")
            weights = tp.input("weights", "f32", (*lead, t, h, e), axes=ours)
            return tp.sum(tp.attention(q, k, v, **self.seen).astype("f32") * weights)

        @tp.program
        def step() -> dict[str, Tensor]:
            value, slopes = tp.value_and_grad(loss, wrt=("q", "k", "v"))()
            return {"loss": value, **{f"d_{name}": slope for name, slope in slopes.items()}}

        return step.bind()

    def check(self, ranks: int, device: str = "numpy") -> None:
        """Planned, proved, run, and compared."""
        program = self.program()
        made = plan(program, "cpu-4", mesh=(ranks,), time_limit=10)
        assert made.check().ok
        self.check_run(program, made.document, device)

    def check_zigzag(self, device: str = "numpy") -> None:
        """Over two ranks, of which one has queries from both ends, and so two stretches that fold into all keys."""
        program = self.program()
        shards = {op.name: _ends(op) for op in program.operations}
        self.check_run(program, plan_partitions(program, load_machine("cpu-4"), shards).document, device)

    def check_run(self, program: Program, document: Document, device: str) -> None:
        """Two steps, the second as the device repeats it."""
        given = random_inputs(program, 3)
        found = run_unchecked(document, given, device=device, poison=True, repeat=2)
        assert_close(program, given, found.outputs, evaluate(program, given))


def _ends(op: Operation) -> list[Region]:
    """Of two ranks the first has the first and the last quarter of the queries, the second what is between."""
    if "t" not in [dim.name for dim in op.dims]:
        return [Box.of_shape([dim.extent for dim in op.dims]).region()] * 2
    return along(op, "t", Zigzag(2))


def near(t: Any, s: Any) -> Any:
    return (s <= t) & (t - s < 4)


def early(t: Any, s: Any) -> Any:
    return (s <= t) | (s < 4)


SMALL = [
    Case("f32", (16, 16, 4, 2, 8), seen={"causal": True}),
    Case("f32", (16, 16, 4, 2, 8), seen={"causal": True, "offset": -3}),
    Case("f32", (13, 20, 3, 3, 4), seen={"causal": True, "window": 5}),
    Case("bf16", (24, 24, 4, 2, 16), 2, {"causal": True}),
    Case("f16", (12, 20, 4, 1, 8), seen={"causal": True, "offset": 8}),
    Case("f64", (9, 14, 2, 2, 4), seen={"scale": 0.3}),
    Case("f32", (1, 16, 4, 2, 8)),
    Case("f32", (12, 12, 2, 1, 4), seen={"where": near}),
    Case("f32", (12, 12, 2, 1, 4), seen={"where": early}),
]
# What a library has: many scores, heads of a width that it knows.
LARGE = [
    Case("bf16", (96, 96, 4, 2, 64), seen={"causal": True}),
    Case("bf16", (96, 128, 2, 2, 64), 2),
    Case("f16", (64, 128, 2, 1, 128), seen={"causal": True, "offset": 64}),
    Case("f16", (128, 64, 2, 2, 64), seen={"causal": True}),
    Case("bf16", (96, 96, 2, 2, 64), seen={"causal": True, "offset": -32}),
]
