"""A relaxation of problems too wide for elimination: every reader pays its share of what all of them ask for.

Where many nodes read one supply, what it brings depends on all of them together, and elimination has to carry them all
along. With n readers, each of which pays an n-th of the cheapest item that serves it, whatever the others ask for, the
supply is n supplies of one reader each, and nodes meet in pairs.

    all that is supplied  ≥  Σ over readers of  1/n · min over items k that have the reader's item within  of cost[k]

because every reader's item lies within one that is supplied, and n shares of that one make it whole at the most. Where
all ask for the same, which is what sharing is for, nothing is lost. Costs and what is held are parted alike, and round
down.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .problem import FORBIDDEN, AssignmentProblem, Ints
from .supply import Supply


def parted(problem: AssignmentProblem, those: Collection[int]) -> AssignmentProblem:
    """The same nodes and strategies, no choice dearer or holding more than in the problem itself. `those`: the numbers
    of the supplies that are parted.
    """
    parts = [_parts(supply) if k in those else [supply] for k, supply in enumerate(problem.supplies)]
    return replace(problem, supplies=tuple(part for some in parts for part in some))


def _parts(supply: Supply) -> list[Supply]:
    count = len(supply.readers)
    if count < 2:
        return [supply]
    costs = _shares(supply.costs, supply.within, count)
    uses = tuple(replace(use, amounts=_shares(use.amounts, supply.within, count)) for use in supply.uses)
    apart = np.zeros_like(supply.within)
    return [
        Supply(supply.source, (reader,), (asks,), apart, costs, uses)
        for reader, asks in zip(supply.readers, supply.asks, strict=True)
    ]


def _shares(amounts: Ints, within: NDArray[np.bool_], count: int) -> Ints:
    """[strategy, item] an equal share of the least that serves who asks for the item; what is forbidden stays so."""
    serves = within | np.eye(len(within), dtype=bool)
    least = np.stack([amounts[:, items].min(axis=1) for items in serves], axis=1) if len(within) else amounts
    return np.where(least >= FORBIDDEN // 2, least, least // count)
