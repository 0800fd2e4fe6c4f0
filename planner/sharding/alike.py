"""Decisions on operations of one library call, which are taken alike where they can be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..strategy.calls import Call
from .nodes import Node, OperationNode

Pair = tuple[int, int, NDArray[np.bool_]]
"""Two decisions, and [option, option] whether they may be taken together."""


def alike(nodes: Sequence[Node], tied_to: Sequence[int], calls: Sequence[Call]) -> Sequence[Pair]:
    """The pairs of decisions on operations of one call. Options have the same points where they read the same of every
    operand; others may not be taken together, if there is a choice of all operations that has. Of options in turns only
    the first part is known: they go with any.
    """
    node_of_op = {node.name: node for node in nodes if isinstance(node, OperationNode)}
    number = {node.name: tied_to[k] for k, node in enumerate(nodes) if isinstance(node, OperationNode)}
    found: dict[tuple[int, int], NDArray[np.bool_]] = {}
    for call in calls:
        names = [op.name for op in call.operations]
        read = [{s.needs for s in node_of_op[name].strategies if s.turns is None} for name in names]
        if set.intersection(*read):
            for pair in pairwise(sorted({number[name] for name in names})):
                one, other = (nodes[k] for k in pair)
                if pair not in found and isinstance(one, OperationNode) and isinstance(other, OperationNode):
                    found[pair] = _may(one, other)
    return [(*pair, may) for pair, may in found.items() if not may.all()]


def _may(one: OperationNode, other: OperationNode) -> NDArray[np.bool_]:
    turning = (np.array([s.turns is not None for s in node.strategies], dtype=np.bool_) for node in (one, other))
    same = np.array([[a.needs == b.needs for b in other.strategies] for a in one.strategies], dtype=np.bool_)
    mine, theirs = turning
    return same | mine[:, None] | theirs[None, :]
