"""What the tests of this folder share: whether there is a GPU, and programs run on it against the reference."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tapestry.planner import load_machine
from tapestry.planner.format import Document, Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Operation, Program
from tapestry.reference import evaluate
from tapestry.space import Box, Region
from tapestry.space.cuts import Block
from tapestry.testing import assert_close, partitions
from tapestry.workers.engines.engine import Settings
from tapestry.workers.engines.launch import launch
from tapestry.workers.result import RunResult

from ....gpus import gpus
from ...shards import along
from ...unchecked import run_unchecked

MACHINE = load_machine("h200x8")
# Generated programs in all; a short run asks for fewer.
EXAMPLES = int(os.environ.get("TAPESTRY_GPU_PROGRAMS", 0)) or 1000

Shards = Mapping[str, Sequence[Region]]
Job = tuple[Program, Document, Mapping[str, Any]]


needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(gpus() == 0, reason="no GPU")]
SEVERAL = (2,) if gpus() <= 2 else (2, gpus())  # ranks, a process and a GPU each
needs_two = [pytest.mark.gpu, pytest.mark.skipif(gpus() < 2, reason="fewer than two GPUs")]


def executed(program: Program, shards: Shards, inputs: Mapping[str, Any], order: int | None = None) -> RunResult:
    """A program as planned over shards agrees with the reference, and moves what is planned."""
    document = plan_partitions(program, MACHINE, shards).document
    found = run_unchecked(Resolved(document, program), inputs, device="cupy", poison=True, order=order)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert found.bytes_moved == document.traffic.bytes_total
    return found


def whole(program: Program, ranks: int = 1) -> dict[str, list[Region]]:
    """Every rank computes everything."""
    return {op.name: [Box.of_shape([dim.extent for dim in op.dims]).region()] * ranks for op in program.operations}


def cut(op: Operation, name: str, parts: int) -> list[Region]:
    """An operation's points cut along one dimension."""
    return along(op, name, Block(parts))


def cut_along(program: Program, ranks: int, *, last: bool) -> dict[str, list[Region]]:
    """Every operation cut along its first dimension, or along its last, which may be one that is folded."""
    shards = {}
    for op in program.operations:
        able = [dim.name for dim in op.dims if dim.cut]
        shards[op.name] = cut(op, able[-1 if last else 0], ranks) if able else whole(program, ranks)[op.name]
    return shards


def executed_cut(program: Program, inputs: Mapping[str, Any], draws: int, number: int) -> None:
    """A program under some random partitions over two to four ranks."""

    @settings(max_examples=draws, phases=[Phase.generate], suppress_health_check=list(HealthCheck), database=None)
    @seed(number)
    @given(st.data())
    def execute(data: st.DataObject) -> None:
        shards = data.draw(partitions(program, data.draw(st.integers(2, 4))))
        executed(program, shards, inputs, data.draw(st.none() | st.integers(0, 1 << 20)))

    execute()


# -- several plans, two processes --------------------------------------------------------------------------------------


def launched(jobs: list[Job], device: str, repeat: int = 1) -> list[RunResult]:
    return launch([(document, inputs) for _, document, inputs in jobs], Settings(device, poison=True, repeat=repeat))


def wrong(job: Job, found: RunResult, steps: int = 1) -> str:
    """What is wrong with a result after so many steps."""
    program, document, inputs = job
    try:
        for _ in range(steps - 1):
            before = evaluate(program, inputs)
            inputs = {**inputs, **{name: before[name] for name, _ in program.states}}
        assert_close(program, inputs, found.outputs, evaluate(program, inputs))
        assert found.bytes_moved == document.traffic.bytes_total
    except AssertionError as error:
        return f"{error}\n{program}"
    return ""
