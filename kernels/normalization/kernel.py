"""Row kernels to call: the operations of a normalisation in, one callable on GPU arrays out.

    kernel = compile_rows(operations, layouts)          # e.g. the three operations of a softmax
    kernel(x, out=y)
    kernel = compile_rows([add, *norm], layouts, outputs=["sum", "normed"])
    kernel(x, residual, weight, out=(h, y))             # several outputs, in the order asked for

Arrays that are written must not overlap operands, unless the row is read once (``plan.held``) and every point
reads that operand only at the element it writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from ...program import Operation
from ..elementwise.launch import GeneratedKernel, Launch
from ..elementwise.types import Layout
from ..errors import WrongShape
from .plan import RowPlan, make_row_plan
from .program import RowProgram, recognise
from .source import row_source


class RowKernel(GeneratedKernel):
    """A compiled row program: ``kernel(*operands, out=array or tuple, stream=None)``; see `GeneratedKernel`."""

    def __init__(self, entry: str, program: RowProgram, plan: RowPlan | None) -> None:
        text, grid = (row_source(plan, entry), (plan.blocks, plan.threads)) if plan else ("", (0, 0))
        outputs = tuple((output.stage, output.layout) for output in program.outputs)
        launch = Launch(alone=plan.alone, shared=plan.shared, cluster=plan.cluster) if plan else Launch()
        super().__init__("rows", entry, text, grid, program.operands, outputs, launch)
        self.program, self.plan = program, plan

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written once."""
        return self.program.bytes_moved


def compile_rows(
    operations: Sequence[Operation],
    layouts: Mapping[str, Layout],
    *,
    outputs: Sequence[str] | None = None,
    lanes: int | None = None,
    rows: int | None = None,
    cluster: int | None = None,
) -> RowKernel:
    """One kernel for operations that fold the last dimensions and map with what was folded.

    ``layouts`` by tensor; of intermediates that are not written only the dtype matters. ``outputs`` are those written:
    by default what no operation reads. ``lanes``, ``rows``, ``cluster``: see `make_row_plan`; GPUs before sm_90 have no
    clusters and need ``cluster=1``. `NotRows` (see `recognise`) where the operations are no such program; nothing needs
    a GPU before the kernel is called.
    """
    program = recognise(operations, layouts, outputs)
    if not program.rows or not program.width:
        if program.rows:
            raise WrongShape("rows without elements", where="rows", came=program.width)
        return RowKernel("rows_none", program, None)
    plan = make_row_plan(program, lanes=lanes, rows=rows, cluster=cluster)
    digest = hashlib.sha256(repr(plan).encode()).hexdigest()[:12]
    return RowKernel(f"rows_{digest}", program, plan)
