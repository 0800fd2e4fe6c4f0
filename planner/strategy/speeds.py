"""In what proportion devices that differ are to share the work of a program."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

from ...program import Program
from ...space import Box
from ..machine import Machine
from .work import Works

FINEST = 100  # of the denominators by which speeds are told apart


def weights(program: Program, machine: Machine, ranks: int) -> tuple[int, ...]:
    """Per rank a whole number, in proportion to how fast its device runs the whole program; empty where all are alike.

    >>> from tapestry.planner import load_machine
    >>> import tapestry as tp
    >>> @tp.program
    ... def net(x: tp.f32[tp.Tensor, "n"]) -> tp.Tensor:
    ...     return tp.exp(x)
    >>> weights(net.bind(n=8), load_machine("cpu-4"), 4)
    ()
    """
    works = Works(machine, ranks)
    if len(set(works.kinds)) <= 1:
        return ()
    seconds = {kind: _alone(program, works, kind) for kind in sorted(set(works.kinds))}
    quickest = min(seconds.values())
    if not quickest:
        return ()
    least = Fraction(1, FINEST)
    shares = {kind: max(least, Fraction(quickest / took).limit_denominator(FINEST)) for kind, took in seconds.items()}
    common = lcm(*(share.denominator for share in shares.values()))
    found = tuple(int(shares[kind] * common) for kind in works.kinds)
    return found if len(set(found)) > 1 else ()


def _alone(program: Program, works: Works, kind: int) -> float:
    """Seconds of all operations on one device."""
    total = 0.0
    for op in program.operations:
        whole = Box.of_shape(tuple(op.extents.values())).region()
        total += works.of(op, program, whole, partial=False, kind=kind).seconds
    return total
