"""Folds of several results on the CuPy device, its kernels run on the host, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.reference import evaluate
from tapestry.space import Box, Grid, IntSet, Region
from tapestry.testing import assert_close, program_of

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked

pytestmark = needs_compiler
X = np.random.default_rng(0).normal(size=(2, 600)).astype(np.float32)


@pytest.mark.parametrize(
    ("ranks", "call"),
    [
        (2, lambda x: tp.topk(x, 5)),
        (1, lambda x: tp.components("top20", x, 1)[::6]),
        (2, lambda x: tp.var_mean(x, 1)),
        (2, lambda x: tp.aminmax(x, 0)),
    ],
    ids=["topk", "more than shared memory holds at once", "moments", "minmax"],
)
def test_records_are_folded_by_threads_and_by_ranks(on_host: str, ranks: int, call: Any) -> None:
    """The folded axis of the first operation cut over the ranks, all others whole on each."""
    program = program_of(call, x=X)
    whole = {op.name: [Box.of_shape([dim.extent for dim in op.dims]).region()] * ranks for op in program.operations}
    first = program.operations[0]
    for rank in range(ranks if ranks > 1 else 0):
        axes = [IntSet.interval(0, dim.extent) for dim in first.dims]
        axes[-1] = IntSet.interval(rank * first.dims[-1].extent // 2, (rank + 1) * first.dims[-1].extent // 2)
        whole[first.name][rank] = Region.of(Grid(tuple(axes)))
    document = plan_partitions(program, load_machine("h200x8"), whole).document
    found = run_unchecked(Resolved(document, program), {"x": X}, device=on_host, poison=True)
    assert_close(program, {"x": X}, found.outputs, evaluate(program, {"x": X}))
