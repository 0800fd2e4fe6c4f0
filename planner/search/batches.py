"""What a batch is in a program: the dimensions of operations along which it can be gone through in pieces."""

from __future__ import annotations

from collections.abc import Mapping

from ...program import Program
from ..lowering.decisions import Decisions
from ..sharding.stages import carried, independent
from ..strategy.carried import Carried
from ..strategy.carried import carried as carried_together


def batch_of(program: Program, decisions: Decisions) -> dict[str, str]:
    """By operation the dimension along which a batch can be cut in pieces: those that an axis of an input is carried to
    that takes part in most of the work.
    """
    ways = [
        carried(program, tensor.name, axis)
        for tensor in program.of_role("input")
        for axis, extent in enumerate(tensor.shape)
        if extent > 1
    ]
    return max(ways, key=lambda dims: sum(decisions.strategies[name].slowest for name in dims), default={})


def along_of(program: Program, dims: Mapping[str, str]) -> Carried:
    """All dimensions that are of that batch, those that are folded too; none where pieces have nothing to do with one
    another.
    """
    if not dims or independent(program, dims):
        return frozenset()
    return next(together for together in carried_together(program) if together & dims.items())
