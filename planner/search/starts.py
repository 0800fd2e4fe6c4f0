"""Choices that need no solver: nothing cut, and everything cut."""

from __future__ import annotations

from ..sharding.model import Model
from ..sharding.nodes import Node, OperationNode, SinkNode, SourceNode


def uncut(model: Model) -> dict[int, int]:
    """Everything computed everywhere, from copies where there may be copies."""
    return {k: _option(model.nodes[k], least_cut=True) for k in sorted(set(model.tied_to))}


def cut(model: Model) -> dict[int, int]:
    """Everything cut as far as it goes."""
    return {k: _option(model.nodes[k], least_cut=False) for k in sorted(set(model.tied_to))}


def _option(node: Node, *, least_cut: bool) -> int:
    """Strategies are listed the most cut first; of homes the one that holds most, or least."""
    match node:
        case OperationNode():
            return len(node.strategies) - 1 if least_cut else 0
        case SourceNode():
            sizes = [home.storage_size for home in node.homes]
            return sizes.index(max(sizes) if least_cut and node.tensor.role != "input" else min(sizes))
        case SinkNode():
            return 0
