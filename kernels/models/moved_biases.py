"""Biases of what is added to another layer's result: that layer adds both, and the other one none.

    before:  relu(layer(x) + bias + (shortcut(x) + its bias))
    after:   relu(layer(x) + (bias + its bias) + shortcut(x))

A bias that follows nothing but a convolution is a launch of torch's, or makes a product slower.
"""

from __future__ import annotations

from typing import Any

from torch import fx, nn

from ..layers.followed import FollowedConv2d
from ..layers.fused import FusedConv2d, Pointwise
from .chains import Reader


def move_biases(traced: fx.GraphModule, made: str) -> int:
    """Move what can be in a graph of fused layers, still in f32, whose names begin with `made`: how many."""
    count, reader = 0, Reader(traced.graph, traced)
    for node in traced.graph.nodes:
        layer = reader.module(node)
        if not isinstance(layer, (FollowedConv2d, FusedConv2d)) or len(node.args) != 2:
            continue  # a linear layer adds its bias to the last dimension
        convolved, added = node.args
        other = _added(reader, added, made) if added is not convolved else None
        if other is None:
            continue
        assert other.bias is not None
        moved = other.bias.detach()
        if len(moved) != len(layer.weight):  # one channel is added to all
            continue
        total = moved if layer.bias is None else layer.bias.detach() + moved.to(layer.bias.dtype)
        layer.bias = total.float() if isinstance(layer, FusedConv2d) else nn.Parameter(total, requires_grad=False)
        other.bias = None
        count += 1
    return count


def _added(reader: Reader, node: Any, made: str) -> Pointwise | nn.Conv2d | None:
    """The layer whose result a node is, nobody else's, if it only convolves and adds a bias."""
    while isinstance(node, fx.Node) and len(node.users) == 1 and reader.passes_on(node):
        (node,) = node.all_input_nodes
    if not isinstance(node, fx.Node) or len(node.users) != 1 or not str(node.target).startswith(made):
        return None
    layer = reader.module(node)
    return layer if isinstance(layer, (Pointwise, nn.Conv2d)) and layer.bias is not None else None
