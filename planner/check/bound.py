"""Seventh proof: no plan of this program on this machine takes less than the plan says none does.

For every operation, what all of its tasks together take at least, from the embedded program and machine alone: each
point evaluated once at the sustained rate, or each element that it reads and writes moved once, whichever is longer,
and one start. A rank computes one task at a time, so the makespan is at least the sum over the number of ranks.
"""

from __future__ import annotations

from ...program import Operation
from ...space.projection import operand_images
from ..format.document import LowerBound
from .case import Case
from .rates import Rates
from .report import Code, Findings

TOLERANCE = 1e-9  # of floating-point sums


def prove(case: Case, rates: Rates, findings: Findings) -> None:
    """Findings BOUND and GAP, where the plan states them."""
    if case.document.bound is None:
        return
    stated = case.document.bound.bound_s
    known: dict[object, float] = {}
    total = 0.0
    for op in case.program.operations:
        dtypes = tuple(case.program.tensor(name).dtype for name in (*op.operands, op.output))
        key = (case.shape(op).number, dtypes, op.body, op.monoid, op.reduce_dims)
        if key not in known:
            known[key] = least_seconds(case, op, rates)
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
        findings.add(Code.GAP, f"gap is {bound.gap!r}; {between}", witness=())


def least_seconds(case: Case, op: Operation, rates: Rates) -> float:
    """What all tasks of an operation take together at least."""
    shape = case.shape(op)
    return rates.work(op, case.program, shape.count(shape.domain), _moved(case, op))


def _moved(case: Case, op: Operation) -> int:
    """Bytes of the elements that it reads and writes, each once; hulls do not count."""
    shape, program, size = case.shape(op), case.program, case.algebra.size
    images = operand_images(
        op, {name: program.tensor(name).shape for name in op.operands}, case.algebra.region(shape.domain)
    )
    reads = zip(op.operands, shape.reads(shape.domain), strict=True)
    total = sum(size(region) * case.item_bytes(name) for name, region in reads if images[name].exact)
    written = shape.image(shape.domain)
    if shape.domain not in shape.hulls and not op.where:
        total += size(written) * case.item_bytes(op.output)
    return total
