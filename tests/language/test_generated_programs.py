"""Generated programs: what they cover, and that partitioned evaluation agrees with whole evaluation."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tapestry.dtypes import DTYPES
from tapestry.expr import Affine, Call, Floor, Inside, walk
from tapestry.program import Block, Operation, Program
from tapestry.reference import evaluate
from tapestry.serialize import program_from_json, program_to_json
from tapestry.space import Region
from tapestry.testing import assert_close, inputs_for, partitions, programs
from tapestry.text import format_program
from tapestry.verify import verify

pytestmark = pytest.mark.long

FUZZ = int(os.environ.get("TAPESTRY_FUZZ", 0))


@settings(max_examples=FUZZ or 600, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_fuzz_partitioned_is_whole(data: st.DataObject) -> None:
    program = data.draw(programs())
    inputs = data.draw(inputs_for(program))
    cuts = data.draw(partitions(program, data.draw(st.integers(1, 5))))
    assert_close(program, inputs, evaluate(program, inputs, partition=cuts), evaluate(program, inputs))


def features(program: Program) -> Iterator[str]:
    """What a program exercises, by name."""
    for tensor in program.tensors:
        yield f"{tensor.dtype} {tensor.role}" if tensor.role != "value" else tensor.dtype
        readers = program.consumers[tensor.name]
        if len(readers) > 1:
            yield "several readers"
    yield "outputs: " + ("one" if len(program.outputs) == 1 else "several")
    yield from ("scalar" for tensor in program.tensors if not tensor.shape)
    for op in program.operations:
        yield from _operation_features(op)


def _operation_features(op: Operation) -> Iterator[str]:
    yield f"monoid {op.monoid}"
    if op.where:
        yield "where"
    if any(c < 0 for row in op.write for _, c in row.terms):
        yield "written backwards"
    if any(len(row.terms) > 1 for row in op.write):
        yield "two dimensions along one axis"
    for read in op.reads:
        yield from ("guard" for _ in read.guard)
        yield from (_row_feature(row) for row in read.index)
    if isinstance(op.body, Block):
        yield op.body.kernel + (" causal" if op.where else "")
    else:
        yield from (node.function for node in walk(op.body) if isinstance(node, Call))
        yield from ("concat" for node in walk(op.body) if isinstance(node, Inside))
    if len([read for read in op.reads if read.tensor == op.reads[0].tensor]) > 1:
        yield "several reads of one tensor"


def _row_feature(row: Affine) -> str:
    if any(isinstance(atom, Floor) for atom, _ in row.terms):
        return "floor"
    coefficients = [c for _, c in row.terms]
    if len(row.terms) > 1:
        return "window" + (" stride" if max(coefficients) > 1 else "")
    return (
        "constant"
        if not coefficients
        else "reverse"
        if coefficients[0] < 0
        else "slice"
        if coefficients[0] > 1
        else "dim"
    )


# The other dtypes have tests of their own, tests/operations/test_dtypes.py.
DRAWN = [dtype for dtype in DTYPES if dtype not in ("uint8", "uint16", "uint32", "int16", "f8e4m3", "f8e5m2")]
WANTED = [
    *(f"{dtype}{role}" for dtype in DRAWN for role in ("", " input")),
    "several readers", "outputs: several", "scalar", "f32 state", "f32 const", "int32 param", "where", "guard",
    "attention", "attention causal", "concat", "several reads of one tensor", "floor", "window", "window stride",
    "written backwards", "two dimensions along one axis",
    "constant", "reverse", "slice", "less", "where", "exp", "erf", "divide", "floor_divide", "remainder", "logical_and",
    *(f"monoid {name}" for name in ("None", "sum", "prod", "max", "min", "any", "all", "online_softmax")),
]  # fmt: skip


def test_every_feature_is_generated() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=1200, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(programs())
    def collect(program: Program) -> None:
        seen.update(set(features(program)))

    collect()
    assert [feature for feature in WANTED if not seen[feature]] == []


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(programs())
def test_generated_programs_are_valid(program: Program) -> None:
    """Every generated program passes `verify`, survives JSON, and prints."""
    verify(program)
    assert program_from_json(program_to_json(program)) == program
    assert all(op.name in format_program(program) for op in program.operations)


@settings(max_examples=200)
@given(st.data())
def test_partitions_tile_every_index_space(data: st.DataObject) -> None:
    program = data.draw(programs())
    ranks = data.draw(st.integers(1, 6))
    for name, regions in data.draw(partitions(program, ranks)).items():
        op = program.op_by_name[name]
        assert len(regions) == ranks
        distinct = set(regions)
        union = Region.of(*(grid for region in distinct for grid in region.grids))
        assert union.size == sum(region.size for region in distinct) == np.prod([dim.extent for dim in op.dims])
        for k, dim in enumerate(op.dims):
            assert dim.cut or all(grid.axes[k].size == dim.extent for region in distinct for grid in region.grids)


def first_program(wanted: str) -> tuple[Program, dict[str, Any]]:
    """A generated program whose first output has that dtype and several elements, and its inputs."""
    from hypothesis import find

    def good(drawn: tuple[Program, dict[str, Any]]) -> bool:
        tensor = drawn[0].tensor(drawn[0].outputs[0])
        return tensor.dtype == wanted and tensor.size > 1

    both = programs().flatmap(lambda program: st.tuples(st.just(program), inputs_for(program)))
    first = settings(database=None, derandomize=True, max_examples=2000, phases=[Phase.generate])  # as it is drawn
    return find(both, good, settings=first)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "int8", "bool"])
def test_assert_close_sees_one_wrong_element(dtype: str) -> None:
    program, inputs = first_program(dtype)
    want = evaluate(program, inputs)
    name = program.outputs[0]
    got = {name: value.copy() for name, value in want.items()}
    assert_close(program, inputs, got, want)
    largest = np.abs(want[name].astype(np.float64)).max()
    got[name].flat[-1] = not want[name].flat[-1] if dtype == "bool" else want[name].flat[-1] + max(1, largest)
    with pytest.raises(AssertionError, match=rf"{name}: element"):
        assert_close(program, inputs, got, want)
    with pytest.raises(AssertionError, match="tensors"):
        assert_close(program, inputs, {}, want)


def test_infinities_and_nan_agree_only_with_themselves() -> None:
    program, inputs = first_program("f32")
    want = evaluate(program, inputs)
    name = program.outputs[0]
    want[name] = np.full_like(want[name], np.nan)
    want[name].flat[0] = np.inf
    assert_close(program, inputs, {key: value.copy() for key, value in want.items()}, want)
    for wrong in (np.nan, -np.inf, 0):
        got = {key: value.copy() for key, value in want.items()}
        got[name].flat[0] = wrong
        with pytest.raises(AssertionError, match="element"):
            assert_close(program, inputs, got, want)
