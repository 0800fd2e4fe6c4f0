"""Work of the checker by ranks and layers, counted in calls of functions: it has the same value on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tapestry.planner import load_machine
from tapestry.planner.check import check
from tapestry.planner.format.document import Document
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Operation, Program, Tensor
from tapestry.space import Box, Region

from . import writing

ROWS, GROUP = 4, 4


def stack(layers: int, ranks: int) -> Document:
    """Perceptrons one after another: rows cut over groups of ranks, hidden units within them, whose sums are folded."""
    n, d, h = ROWS * ranks // GROUP, 2, GROUP
    tensors: list[Tensor] = [writing.tensor("x0", n, d, role="input")]
    operations: list[Operation] = []
    for k in range(layers):
        tensors += [writing.tensor(f"w{k}", d, h, role="param"), writing.tensor(f"v{k}", h, d, role="param")]
        tensors += [writing.tensor(f"h{k}", n, h), writing.tensor(f"x{k + 1}", n, d)]
        operations.append(writing.matmul(f"up{k}", f"x{k}", f"w{k}", f"h{k}", n, d, h))
        operations.append(writing.matmul(f"down{k}", f"h{k}", f"v{k}", f"x{k + 1}", n, h, d))
    program = Program("stack", tuple(tensors), tuple(operations), (f"x{layers}",))
    place = [divmod(rank, GROUP) for rank in range(ranks)]

    def cut(rows: Callable[[int, int], tuple[int, int]], *others: Callable[[int], tuple[int, int]]) -> list[Region]:
        ends = [(rows(g, m), *(axis(m) for axis in others)) for g, m in place]
        return [Box(*zip(*axes, strict=True)).region() for axes in ends]

    def together(g: int, _: int) -> tuple[int, int]:
        return g * ROWS, (g + 1) * ROWS

    def hidden(m: int) -> tuple[int, int]:
        return m, m + 1

    def whole(_: int) -> tuple[int, int]:
        return 0, d

    shards = {f"up{k}": cut(together, hidden, whole) for k in range(layers)}
    shards |= {f"down{k}": cut(together, whole, hidden) for k in range(layers)}
    apart = cut(lambda g, m: (g * ROWS + m, g * ROWS + m + 1), whole)
    machine = replace(load_machine("cpu-4"), devices_per_host=ranks)
    last = f"x{layers}"
    return plan_partitions(program, machine, shards, homes={"x0": apart}, ends={last: apart}).document


def calls(document: Document) -> int:
    """Functions of Python called by a check that finds nothing wrong."""
    check(document)  # what modules remember is remembered
    count = 0

    def counted(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        report = check(document)
    finally:
        sys.setprofile(before)
    assert report.ok, str(report)
    return count


def test_work_grows_with_the_ranks_not_with_their_pairs() -> None:
    few, many = calls(stack(1, 16)), calls(stack(1, 128))
    assert many < 12 * few, (few, many)


def test_another_layer_is_work_for_its_tasks_not_for_its_ranks() -> None:
    """All layers ask the same questions: one more costs as much on many ranks as on few."""
    few = calls(stack(6, 16)) - calls(stack(3, 16))
    many = calls(stack(6, 128)) - calls(stack(3, 128))
    assert many < 2 * few, (few, many)
