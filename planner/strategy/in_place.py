"""Which operands an operation's result may take the place of: those it reads only at the element that it writes.

y[i, j] = x[i, j] + b[j]     x: every point reads what lies where it writes
y[i, j] = x[i, j] + x[j, i]  not x: another point needs what this one writes over
"""

from __future__ import annotations

from ...program import Operation


def replaceable(op: Operation) -> tuple[int, ...]:
    """Operands by number."""
    return op.read_in_place
