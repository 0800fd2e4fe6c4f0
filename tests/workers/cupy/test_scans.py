"""Scans on the CuPy device, its kernels run on the host, against the reference."""

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.reference import evaluate
from tapestry.space import Box
from tapestry.testing import assert_close

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked

pytestmark = needs_compiler


@tp.program
def scans(a: f32[Tensor, "t n"], b: f32[Tensor, "t n"], *, blocks: int) -> tuple[Tensor, Tensor]:
    return tp.scan("recurrence", [a, b], blocks=blocks), tp.scan("max", a, blocks=blocks, reverse=True)


@pytest.mark.parametrize("blocks", [1, 3])
def test_pairs_and_values_are_scanned_in_their_order(on_host: str, blocks: int) -> None:
    program = scans.bind(t=7, n=2, blocks=blocks)
    rng = np.random.default_rng(0)
    inputs = {name: rng.normal(size=(7, 2)).astype(np.float32) for name in "ab"}
    whole = {op.name: [Box.of_shape([dim.extent for dim in op.dims]).region()] for op in program.operations}
    document = plan_partitions(program, load_machine("h200x8"), whole).document
    found = run_unchecked(Resolved(document, program), inputs, device=on_host, poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
