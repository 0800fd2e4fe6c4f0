"""What reads and writes at places that the data say take, beside NumPy's own calls and products with one-hot rows.

    python benchmarks/lookup.py

Prints a table: microseconds of a step of a compiled plan on one CPU rank (inputs in, outputs out), of NumPy's call on
the same arrays, of the step that says the same as a product, and the ratio of the first two. The rounds alternate.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import tapestry as tp
from tapestry import Tensor, f32, int32, param
from tapestry.planner import plan

ROWS, WIDTH, ROUNDS = 8192, 512, 41
Step = Callable[[], Any]


@tp.program
def lookup(table: param[f32[Tensor, "v d"]], ids: int32[Tensor, "t"]) -> Tensor:
    return tp.embedding(ids, table)


@tp.program
def lookup_as_product(table: param[f32[Tensor, "v d"]], ids: int32[Tensor, "t"]) -> Tensor:
    return tp.one_hot(ids, table.shape[0]) @ table


@tp.program
def add_up(x: param[f32[Tensor, "t d"]], ids: int32[Tensor, "t"], *, v: int = ROWS) -> Tensor:
    return tp.segment_sum(x, ids, v)


@tp.program
def add_up_as_product(x: param[f32[Tensor, "t d"]], ids: int32[Tensor, "t"], *, v: int = ROWS) -> Tensor:
    return tp.one_hot(ids, v).T @ x


def step_of(program: Any, name: str, held: np.ndarray, ids: np.ndarray, **extents: int) -> Step:
    """A compiled step on one rank."""
    made = plan(program.bind(t=len(ids), d=WIDTH, **extents), "cpu-4", mesh=(1,))
    step = made.compile({name: held}, device="numpy")
    return lambda: next(iter(step({"ids": ids}).values()))


def added(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    total = np.zeros((ROWS, WIDTH), np.float32)
    np.add.at(total, ids, x)
    return total


def medians(calls: list[Step], rounds: int) -> list[float]:
    """Microseconds of each call, one after another in every round."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, taken, strict=True):
            start = perf_counter()
            call()
            times.append((perf_counter() - start) * 1e6)
    return [statistics.median(times) for times in taken]


def row(name: str, ours: Step, theirs: Step, product: Step) -> str:
    np.testing.assert_allclose(ours(), theirs(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(product(), theirs(), rtol=1e-4, atol=1e-4)
    mine, numpys = medians([ours, theirs], ROUNDS)
    [long] = medians([product], 3)
    return f"| {name} | {numpys:,.0f} µs | {mine:,.0f} µs | {mine / numpys:.1f} | {long:,.0f} µs |"


def main() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(ROWS, WIDTH)).astype(np.float32)
    print("| f32, 8,192 rows of 512 | NumPy | a step | ratio | as a product |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for count in (256, 4096):
        ids = rng.integers(0, ROWS, count).astype(np.int32)
        x = rng.normal(size=(count, WIDTH)).astype(np.float32)
        ours = step_of(lookup, "table", table, ids, v=ROWS)
        product = step_of(lookup_as_product, "table", table, ids, v=ROWS)
        print(row(f"{count:,} rows read (`take`)", ours, lambda ids=ids: table.take(ids, 0), product))
        ours = step_of(add_up, "x", x, ids)
        product = step_of(add_up_as_product, "x", x, ids)
        print(row(f"{count:,} rows added (`add.at`)", ours, lambda x=x, ids=ids: added(x, ids), product))


if __name__ == "__main__":
    main()
