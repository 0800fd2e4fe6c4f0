"""`fuse_compiled`: grouped convolutions with what follows them as one launch, in graphs of torch.compile.

A chain of torch's functions that begins with a convolution of ours becomes `tapestry::grouped_conv2d_fused`, where no
gradients are recorded.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ..layers.fused import operator as fused_operator
from ..tensors.operators import forward as convolution
from .chains import Chain, Norm, Reader


def fuse_compiled(on: bool = True) -> None:
    """Whether torch.compile fuses, from now on, what follows the grouped convolutions of replaced layers.

    That is in graphs compiled without gradients (`torch.no_grad`, `torch.inference_mode`), whose batch norms are in
    evaluation.
    """
    from torch._inductor import config

    settings: Any = config
    settings.pre_grad_custom_pass = fuse_graph if on else None


def fuse_graph(graph: fx.Graph) -> None:
    """Fuse the chains of a graph of torch's functions, in place; nothing where gradients are recorded."""
    if torch.is_grad_enabled():
        return
    for start in graph.find_nodes(op="call_function", target=convolution.default) + graph.find_nodes(
        op="call_function", target=convolution
    ):
        chain = Reader(graph, None).chain(start)
        if len(chain.nodes) > 1:
            _fuse_call(graph, chain)
    graph.lint()


def _fuse_call(graph: fx.Graph, chain: Chain) -> None:
    x, w, bias, *steps = chain.start.args
    with graph.inserting_before(chain.end):
        scale, shift = (None, bias) if chain.norm is None else _affine_nodes(graph, chain.norm, bias)
        given = (x, w, scale, shift, chain.residual, chain.activation, *steps)
        call = graph.call_function(fused_operator.default, given)
    call.meta = dict(chain.end.meta)
    chain.end.replace_all_uses_with(call)
    chain.erase()


def _affine_nodes(graph: fx.Graph, norm: Norm, bias: Any) -> tuple[fx.Node, fx.Node]:
    """(scale, shift) a channel of a batch norm and of what the convolution adds, computed by the graph."""

    def wide(node: Any) -> fx.Node:
        return graph.call_method("float", (node,))

    scale = graph.call_function(torch.rsqrt, (graph.call_function(operator.add, (wide(norm.variance), norm.eps)),))
    if norm.weight is not None:
        scale = graph.call_function(operator.mul, (scale, wide(norm.weight)))
    middle = wide(norm.mean)
    if bias is not None:
        middle = graph.call_function(operator.sub, (middle, wide(bias)))
    shift = graph.call_function(operator.neg, (graph.call_function(operator.mul, (middle, scale)),))
    if norm.bias is not None:
        shift = graph.call_function(operator.add, (shift, wide(norm.bias)))
    return scale, shift
