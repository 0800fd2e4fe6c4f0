"""Row kernels to call: the operations of a normalisation in, one callable on GPU arrays out.

    kernel = compile_rows(operations, layouts)          # e.g. the three operations of a softmax
    kernel(x, out=y)
    kernel = compile_rows([add, *norm], layouts, outputs=["sum", "normed"])
    kernel(x, residual, weight, out=(h, y))             # several outputs, in the order asked for

Arrays that are written must not overlap operands, unless the row stays in registers (``plan.held``) and every point
reads that operand only at the element it writes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ..elementwise.kernel import checked, device_arch
from ..elementwise.types import Layout, Primitive
from ..errors import WrongDevice, WrongType
from ..runtime.compiler import Compiled, compile_source
from .plan import RowPlan, make_row_plan
from .program import RowProgram, recognise
from .source import row_source


class RowKernel:
    """A compiled row program. ``operands`` and ``outputs`` are tensors by name, in the order the call takes them."""

    def __init__(self, entry: str, program: RowProgram, plan: RowPlan | None) -> None:
        self.entry, self.program, self.plan = entry, program, plan
        self.operands = tuple(name for name, _ in program.operands)
        self.outputs = tuple(output.stage for output in program.outputs)
        self.source = row_source(plan, entry) if plan else ""
        self._kernels: dict[int, Any] = {}

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written once."""
        return self.program.bytes_moved

    def compiled(self, arch: str = "sm_90") -> Compiled:
        """The machine code and the compiler's report."""
        return compile_source(self.source, name=self.entry, arch=arch)

    def __call__(self, *arrays: Any, out: Any, stream: object = None) -> Any:
        """Compute the outputs, asynchronously on the stream; ``out`` is an array, or a tuple of several. Returned."""
        targets = tuple(out) if isinstance(out, tuple | list) else (out,)
        if len(arrays) != len(self.operands) or len(targets) != len(self.outputs):
            expected = f"{', '.join(self.operands)}; out: {', '.join(self.outputs)}"
            raise WrongType(
                "wrong number of arrays", where="rows", expected=expected, came=f"{len(arrays)}; {len(targets)}"
            )
        wanted = [*self.program.operands, *((o.stage, o.layout) for o in self.program.outputs)]
        given = [
            checked(x, layout, name, "rows") for x, (name, layout) in zip([*arrays, *targets], wanted, strict=True)
        ]
        device = given[-1].device
        if any(x.device != device for x in given):
            raise WrongDevice("arrays on different GPUs", where="rows", came=[x.device for x in given])
        if self.plan is not None:
            self._on(device).launch(self.plan.blocks, self.plan.threads, [x.pointer for x in given], stream=stream)
        return out

    def _on(self, device: int) -> Any:
        if device not in self._kernels:
            from ..runtime.module import load

            self._kernels[device] = load(self.compiled(device_arch(device)), device)
        return self._kernels[device]


def compile_rows(
    operations: Sequence[Primitive],
    layouts: Mapping[str, Layout],
    *,
    outputs: Sequence[str] | None = None,
    lanes: int | None = None,
    rows: int | None = None,
) -> RowKernel:
    """One kernel for operations that fold the last dimensions and map with what was folded.

    ``layouts`` by tensor; of intermediates that are not written only the dtype matters. ``outputs`` are those written:
    by default what no operation reads. `NotRows` (see `recognise`) where the operations are no such program; nothing
    needs a GPU before the kernel is called.
    """
    program = recognise(operations, layouts, outputs)
    if not program.rows or not program.width:
        if program.rows:
            raise WrongType("rows without elements", where="rows", came=program.width)
        return RowKernel("rows_none", program, None)
    plan = make_row_plan(program, lanes=lanes, rows=rows)
    digest = hashlib.sha256(repr(plan).encode()).hexdigest()[:12]
    return RowKernel(f"rows_{digest}", program, plan)
