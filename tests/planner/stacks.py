"""Perceptrons on any number of ranks; work counted in calls of functions has one value everywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tapestry.planner import Plan, load_machine
from tapestry.planner.machine import Machine
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Operation, Program, Tensor
from tapestry.space import Box, Region

from .check import writing

ROWS, GROUP = 4, 4
Given = tuple[
    Program, Machine, Mapping[str, Sequence[Region]], Mapping[str, Sequence[Region]], Mapping[str, Sequence[Region]]
]


def stack(layers: int, ranks: int, per_host: int | None = None) -> Given:
    """Perceptrons one after another: rows cut over groups of ranks, hidden units within them, whose sums are folded.

    Program, machine, partitions, homes and ends, as `decisions_of` takes them. ``per_host``: ranks of one host, all by
    default.
    """
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

    up, down = cut(together, hidden, whole), cut(together, whole, hidden)
    shards = {f"up{k}": up for k in range(layers)} | {f"down{k}": down for k in range(layers)}
    apart = cut(lambda g, m: (g * ROWS + m, g * ROWS + m + 1), whole)
    one_host = replace(load_machine("cpu-4"), devices_per_host=ranks)
    hosts = replace(
        load_machine("h200x8-2node"), hosts=ranks // (per_host or ranks), devices_per_host=per_host or ranks
    )
    machine = one_host if per_host is None else hosts
    return program, machine, shards, {"x0": apart}, {f"x{layers}": apart}


def planned(layers: int, ranks: int, per_host: int | None = None) -> Plan:
    """The plan of a stack."""
    program, machine, shards, homes, ends = stack(layers, ranks, per_host)
    return plan_partitions(program, machine, shards, homes=homes, ends=ends)


def calls(function: Callable[[], Any]) -> int:
    """Functions of Python called by one."""
    count = 0

    def counted(_: Any, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
