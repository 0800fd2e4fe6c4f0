"""A certified lower bound on the makespan of any plan, with perfect overlap.

Every plan runs every operation in some strategy. The busiest rank computes at least the average over the ranks, and
transfers can at best hide behind it: makespan >= sum over operations of min over strategies of (seconds summed over
ranks) / ranks. Memory is ignored, layers are not tied, no order is assumed. Sums are exact fractions of the strategies'
times, rounded down.
"""

from __future__ import annotations

from fractions import Fraction

from .nodes import Node, OperationNode


def lower_bound_seconds(nodes: list[Node], ranks: int) -> float:
    """The bound in seconds, from the nodes' strategies alone."""
    total = Fraction(0)
    for node in nodes:
        if isinstance(node, OperationNode):
            total += min(sum(map(Fraction, strategy.seconds), Fraction(0)) for strategy in node.strategies) / ranks
    return float(total) * (1 - 1e-12)
