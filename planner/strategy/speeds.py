"""In what proportion devices that differ are to share the work of a program."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

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


def limited(speeds: Sequence[int], budgets: Sequence[int], nbytes: int) -> tuple[int, ...]:
    """Weights of ranks as near to given ones as memory allows: no rank has a greater share of so many bytes, all cut,
    than its budget; the others share the rest as they would. Where all budgets are too little, in proportion to them.

    >>> limited((3, 3, 1, 1), (100, 100, 100, 100), 200)
    (3, 3, 1, 1)
    >>> limited((3, 3, 1, 1), (25, 25, 100, 100), 100)
    (1, 1, 1, 1)
    """
    if not nbytes or not any(budgets):
        return tuple(speeds)
    shares, over = [Fraction(budget) for budget in budgets], sum(budgets) > nbytes
    full: set[int] = set()
    while over:
        left = nbytes - sum(budgets[rank] for rank in full)
        free = sum(speed for rank, speed in enumerate(speeds) if rank not in full)
        shares = [Fraction(budgets[r]) if r in full else Fraction(left * s, free) for r, s in enumerate(speeds)]
        more = {rank for rank, share in enumerate(shares) if share > budgets[rank]}
        full, over = full | more, bool(more)
    least = Fraction(1, FINEST)
    ratios = [max(least, Fraction(share / max(shares)).limit_denominator(FINEST)) for share in shares]
    common = lcm(*(ratio.denominator for ratio in ratios))
    found = [int(ratio * common) for ratio in ratios]
    return tuple(weight // gcd(*found) for weight in found)
