"""Seventh proof: no plan of this program on this machine takes less than the plan says none does.

For every operation, what all of its tasks together take at least, from the embedded program and machine alone: each
point evaluated once at the sustained rate, or each element that it reads and writes moved once, whichever is longer,
and one start. A rank computes one task at a time, so the makespan is at least the sum over the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...blocks import BLOCKS
from ...expr import FUNCTIONS, Call, Read, walk
from ...program import Block, Operation, Program
from ...space.projection import operand_images, write_image
from ..format.document import LowerBound
from .case import Case
from .report import Code, Findings

TOLERANCE = 1e-9  # of floating-point sums
# Which rate stands in where a kernel class has none of a type: its wider types, then the class it is nearest to.
WIDER = {"bool": "int8", "int8": "int32", "int32": "int64", "int64": "f64", "bf16": "f16", "f16": "f32", "f32": "f64"}
NEAREST = {"conv": "matmul", "attention": "matmul"}
BY_WIDTH = ("bool", "int8", "int32", "int64", "bf16", "f16", "f32", "f64")


def prove(case: Case, findings: Findings) -> None:
    """Finding BOUND, where the plan states one."""
    if case.document.bound is None:
        return
    stated = case.document.bound.bound_s
    known: dict[object, float] = {}
    total = 0.0
    for op in case.program.operations:
        dtypes = tuple(case.program.tensor(name).dtype for name in (*op.operands, op.output))
        key = (case.shape(op).number, dtypes, op.body, op.monoid, op.reduce_dims)
        if key not in known:
            known[key] = least_seconds(case, op)
        total += known[key]
    proved = total / case.ranks
    if not stated <= proved * (1 + TOLERANCE):
        findings.add(Code.BOUND, f"bound_s is {stated!r}; what can be proved is {proved!r}", witness=())
        return
    _gap(case.document.bound, case.document.predicted.makespan_s, findings)


def _gap(bound: LowerBound, makespan: float, findings: Findings) -> None:
    expected = (makespan - bound.bound_s) / makespan if makespan else 0.0
    if not abs(bound.gap - expected) <= TOLERANCE:
        between = f"between {bound.bound_s!r} and {makespan!r} it is {expected!r}"
        findings.add(Code.BOUND, f"gap is {bound.gap!r}; {between}", witness=())


def least_seconds(case: Case, op: Operation) -> float:
    """What all tasks of an operation take together at least."""
    device: Mapping[str, Any] = case.document.machine["device"]
    shape = case.shape(op)
    points = shape.count(shape.domain)
    if not points:
        return 0.0
    flops, rates = _flops(op), _rates(device)
    dtype, kernel = _dtype(op, case.program), _class(op)
    bandwidth = float(device["tiers"][0]["read_gb_per_s"]) * 1e9
    arithmetic = points * flops / _rate(rates, kernel, dtype)
    moved = _moved(case, op) / bandwidth
    return max(arithmetic, moved) + float(device["launch_overhead_s"])


def _moved(case: Case, op: Operation) -> int:
    """Bytes of the elements that it reads and writes, each once; hulls do not count."""
    program, domain = case.program, case.algebra.region(case.shape(op).domain)
    images = operand_images(op, {name: program.tensor(name).shape for name in op.operands}, domain)
    total = sum(image.region.size * program.tensor(name).itemsize for name, image in images.items() if image.exact)
    written = write_image(op, domain)
    if written.exact and not op.where:
        total += written.region.size * program.tensor(op.output).itemsize
    return total


def _rates(device: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    return {(peak["kernel"], peak["dtype"]): float(peak["tflops"]) * 1e12 for peak in device["peak"]}


def _rate(rates: Mapping[tuple[str, str], float], kernel: str, dtype: str) -> float:
    classes = [kernel]
    while classes[-1] != "elementwise":
        classes.append(NEAREST.get(classes[-1], "elementwise"))
    for name in classes:
        width: str | None = dtype
        while width is not None:
            if (name, width) in rates:
                return rates[name, width]
            width = WIDER.get(width)
    return float("inf")


def _dtype(op: Operation, program: Program) -> str:
    """A block computes in the type of its first operand, all else in the widest of its operands."""
    dtypes = [program.tensor(name).dtype for name in op.operands] or [program.tensor(op.output).dtype]
    return dtypes[0] if isinstance(op.body, Block) else max(dtypes, key=BY_WIDTH.index)


def _flops(op: Operation) -> int:
    if isinstance(op.body, Block):
        return BLOCKS[op.body.kernel].flops
    calls = sum(FUNCTIONS[node.function].flops for node in walk(op.body) if isinstance(node, Call))
    return max(1, calls + bool(op.reduce_dims))


def _class(op: Operation) -> str:
    """Of rates: a block's own; a fold of products whose factors share the folded dimensions is a product of matrices,
    with windows a convolution."""
    if isinstance(op.body, Block):
        return BLOCKS[op.body.kernel].rate
    if not op.reduce_dims:
        return "elementwise"
    body = op.body
    product = isinstance(body, Call) and body.function == "multiply" and all(isinstance(a, Read) for a in body.args)
    folded = set(op.reduce_dims)
    dims_of = [[row.dims for row in read.index] for read in op.reads]
    if op.monoid != "sum" or not product or not all(any(folded & dims for dims in rows) for rows in dims_of):
        return "reduce"
    return "conv" if any(len(dims) > 1 for rows in dims_of for dims in rows) else "matmul"
