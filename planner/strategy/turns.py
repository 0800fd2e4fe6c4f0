"""Turns: the points of a strategy in parts that leave out some of the reduction, folded one after another.

What a turn reads comes while the one before is computed, and its place is free for the next but one. So a rank holds
two blocks of an operand that would else be gathered whole:

    turn 0    reads block 0, which is what the strategy needs       block 1 comes from a neighbour
    turn 1    reads block 1, folds onto what turn 0 left            block 2 comes from the neighbour's block 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .layouts import Layout
    from .strategies import Strategy


@dataclass(frozen=True, eq=False)
class Stages:
    """What of an operand is there, one layout after another, each for ``period`` turns.

    ``passed``: each comes from the one before, so that the first need not stay; else all come from the first.
    """

    period: int
    layouts: tuple[Layout, ...]
    passed: bool

    def source(self, stage: int) -> int:
        """The stage that a later one comes from."""
        return stage - 1 if self.passed else 0


@dataclass(frozen=True, eq=False)
class Turns:
    """``each``: the points of every turn, and what they read exactly. ``stages``: by the number of an operand.

    ``workspace``: bytes of a rank that are taken while it computes, beside operands and result. ``moved``: bytes that
    all ranks receive between turns.
    """

    each: tuple[Strategy, ...]
    stages: Mapping[int, Stages]
    workspace: int
    moved: int
