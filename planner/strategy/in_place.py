"""Which operands an operation's result may take the place of: those it reads only at the element that it writes.

y[i, j] = x[i, j] + b[j]     x: every point reads what lies where it writes
y[i, j] = x[i, j] + x[j, i]  not x: another point needs what this one writes over
"""

from __future__ import annotations

from ...program import Block, Operation


def replaceable(op: Operation) -> tuple[int, ...]:
    """Operands by number. The points of a fold share a result, so that it has none."""
    if op.reduce_dims or op.monoid is not None or isinstance(op.body, Block):
        return ()
    return tuple(
        k for k, name in enumerate(op.operands) if all(r.index == op.write for r in op.reads if r.tensor == name)
    )
