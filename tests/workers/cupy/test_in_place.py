"""Results in the place of an operand on the CuPy device: the ways in which a generated kernel reads, beside
the operand that is written over. Kernels run on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f32, kernels
from tapestry.inputs import random_inputs
from tapestry.planner import load_machine
from tapestry.planner.format import Compute, Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.space import Region, parse_region
from tapestry.testing import assert_close

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked
from .host_machine import HostMachine

MACHINE = load_machine("h200x8")


@tp.program
def added(x: f32[Tensor, "i j"], y: f32[Tensor, "i j"]) -> Tensor:
    return x + 0.5 * y


@tp.program
def turned(x: f32[Tensor, "i j"], y: f32[Tensor, "j i"]) -> Tensor:
    return x + tp.transpose(y)


@tp.program
def spread(x: bf16[Tensor, "i j"], row: bf16[Tensor, "j"], column: bf16[Tensor, "i"]) -> Tensor:
    return tp.where(x > row, x * column[:, None], row)


@tp.op
def _edges(x: f32[Tensor, "i j"], y: f32[Tensor, "i j"]) -> f32[Tensor, "i j"]:
    i, j = tp.indices("i j")
    return x[i, j] - y.get(i, j - 1, fill=0.0) + y.get(i - 1, j, fill=2.0)


@tp.program
def near(x: f32[Tensor, "i j"], y: f32[Tensor, "i j"]) -> Tensor:
    return _edges(x, y)


CASES: dict[str, Callable[[], tuple[Program, str]]] = {
    "vectors": lambda: (added.bind(i=24, j=64), "load"),
    "ragged rows": lambda: (added.bind(i=7, j=33), "load"),
    "a tile turned in shared memory": lambda: (turned.bind(i=64, j=64), "turn_tile"),
    "one value for a row and one for a column": lambda: (spread.bind(i=24, j=40), "load"),
    "reads beyond the edges": lambda: (near.bind(i=24, j=40), "load"),
}


def whole(program: Program) -> dict[str, list[Region]]:
    return {op.name: [parse_region(",".join(f"0:{dim.extent}" for dim in op.dims))] for op in program.operations}


def stretches(program: Program) -> dict[str, list[Region]]:
    """Two ranks, the first rows and the last on one, so that storage is in two stretches."""
    found = {}
    for op in program.operations:
        first, *others = (dim.extent for dim in op.dims)
        rest = "".join(f",0:{n}" for n in others)
        a, b = first // 4, first - first // 4
        found[op.name] = [parse_region(f"0:{a}|{b}:{first}{rest}"), parse_region(f"{a}:{b}{rest}")]
    return found


def written_over(name: str, cut: Callable[[Program], dict[str, list[Region]]], device: str) -> None:
    """A case, cut, gives what the reference gives although its result lies over what it reads."""
    program, _ = CASES[name]()
    shards = cut(program)
    homes = {tensor.name: shards[program.operations[-1].name] for tensor in program.of_role("input")[:1]}
    document = plan_partitions(program, MACHINE, shards, homes=homes).document
    assert [task.over for task in document.tasks if isinstance(task, Compute)][-1] is not None
    inputs = random_inputs(program, 5)
    found = run_unchecked(Resolved(document, program), inputs, device=device, poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))


@needs_compiler
@pytest.mark.parametrize("cut", [whole, stretches])
@pytest.mark.parametrize("name", CASES)
def test_what_is_written_over_is_read_first(
    machine: HostMachine, name: str, cut: Callable[[Program], dict[str, list[Region]]]
) -> None:
    written_over(name, cut, "on_host")
    _, way = CASES[name]()
    assert any(way in unit.source for unit in machine.units.values())
    assert not any("__restrict__" in unit.source for unit in machine.units.values())


def test_no_load_goes_by_the_read_only_cache() -> None:
    """It may not see what the same kernel writes, and is only asked for where pointers are promised to be apart."""
    headers = Path(str(kernels.__path__[0])) / "include" / "tapestry"
    texts = {path.name: path.read_text(encoding="utf-8") for path in headers.glob("*.cuh")}
    assert {"elements.cuh", "functions.cuh"} <= {*texts}
    assert not any(word in text for text in texts.values() for word in ("__ldg", "global.nc", "__restrict__"))
