"""The derivative of a scan by `recurrence`: a scan again, from the last step to the first.

h[t] = sum over s <= t + shift of b[s] a[s+1] ... a[t+shift]
d_b[s] = d_h[s - shift] + a[s+1] d_b[s+1]        d_a[s] = d_b[s] h, the state before step s
"""

from __future__ import annotations

from dataclasses import replace

from ..dsl.guard import shielded
from ..dsl.trace import Trace
from ..errors import UsageError
from ..expr import Affine, Bound, Call, Const, Expr, Inside, Read, substitute
from ..expr.derivatives import call
from ..expr.functions import PAIR
from ..program import Operation


def adjoint(trace: Trace, op: Operation, arrived: Read) -> tuple[Operation, tuple[Expr, Expr]]:
    """The operation as a map over its steps, and what arrives at a and at b of each; ``arrived`` is d_h."""
    scan = op.scan
    if scan is None or scan.backward or op.extents[scan.along] != op.extents[scan.folded]:
        raise UsageError(f"{op.monoid} has a derivative as a scan alone", where=op.source, hint="tp.recurrence(a, b)")
    assert isinstance(op.body, Call)
    step, place = scan.folded, scan.along
    at, last = Affine.dim(step), op.extents[step] - 1
    mirrored = {step: last - at, place: last - at - scan.shift}
    inside = (Bound(mirrored[place], 0, last + 1),)
    new = _where(inside, substitute(arrived, mirrored))
    later = (Bound(at, 1, None),)
    decay = _where(later, substitute(op.body.args[0], {step: last - at + 1}))
    bound = Bound(at - Affine.dim(place), None, 1)
    total = trace.compute(
        "d_steps", op.dims, Call(PAIR, (decay, new)), reduce_dims=op.reduce_dims, monoid=op.monoid, where=[bound],
        dtype=trace.dtypes[op.output], anonymous=True,
    )  # fmt: skip
    kept = [dim for dim in op.dims if dim.name != step]
    mine = Read(total.key, tuple(last - at if dim.name == place else Affine.dim(dim.name) for dim in kept))
    before = {place: at - 1 - scan.shift}
    state = Read(op.output, tuple(row.substitute(before) for row in op.write))
    earlier = (Bound(before[place], 0, None),)
    steps = tuple(replace(dim, cut=True) for dim in op.dims if dim.name != place)
    flat = replace(op, dims=steps, where=(), reduce_dims=(), monoid=None)
    return flat, (call("multiply", mine, _where(earlier, state)), mine)


def _where(held: tuple[Bound, ...], value: Expr) -> Expr:
    """The value where the conditions hold, and 0 elsewhere, where nothing is read."""
    return call("where", Inside(held), shielded(value, held), Const(0.0))
