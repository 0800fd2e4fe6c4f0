"""Squeeze-and-excitations of a model in training, each with the two calls that compute it (`tensors/excitations`)."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn

from ..normalization.images import ImageKind
from ..tensors.excitations import excited, squeezed
from ..tensors.norm_calls import DTYPES
from .arguments import check_model
from .hooks import bare
from .norm_sums import Graphs, Rewritten, rewrite


def excitation_kinds(model: nn.Module, dtype: torch.dtype) -> list[ImageKind]:
    """The kernels that the squeeze-and-excitations of a model in training ask for, of activations of a type."""
    named, found = DTYPES.get(dtype), []
    for part in model.modules():
        made = vars(part).get("forward")
        if named and isinstance(made, Rewritten) and squeezed in made.known.values():
            channels = [child.out_channels for child in part.children() if isinstance(child, nn.Conv2d)]
            found.append(ImageKind.of(channels[-1], named))
    return list(dict.fromkeys(found))


def fuse_excitations(model: nn.Module) -> list[str]:
    """Have kernels compute the squeeze-and-excitations of `model` in training, in place: the names of those modules.

    Taken is a module that a torch.fx trace shows to take the mean of its one input over each image, to compute a gate
    of that, and to return their product; it computes from then on what the trace says, with its own parts.

    Raises `WrongType` for what is no model.
    """
    check_model(model, "fuse_excitations")
    taken, graphs = [], Graphs()
    for name, part in model.named_modules():
        if "forward" in vars(part) or not _may_be_one(part) or not bare(part):
            continue
        if not all(bare(inner) for inner in part.modules()):
            continue
        graph = graphs.of(part)
        if graph is not None and _rewrite(part, graph):
            rewrite(part, graph)
            taken.append(name)
    return taken


def _may_be_one(part: nn.Module) -> bool:
    """Two layers of single pixels, and nothing in them."""
    children = list(part.children())
    small = [child for child in children if isinstance(child, nn.Conv2d) and child.kernel_size == (1, 1)]
    return len(small) == 2 and not type(part).__module__.startswith("torch.nn")


def _rewrite(part: nn.Module, graph: fx.Graph) -> bool:
    """Put `squeezed` and `excited` into a graph, if it is that of a squeeze-and-excitation."""
    inputs, (end,) = graph.find_nodes(op="placeholder"), graph.find_nodes(op="output")
    if len(inputs) != 1 or len(inputs[0].users) != 2:
        return False
    (x,), product = inputs, end.args[0]
    means = [node for node in x.users if _is_mean(part, node, x)]
    if len(means) != 1 or not isinstance(product, fx.Node) or product not in x.users:
        return False
    if product.target not in (operator.mul, torch.mul) or product.kwargs or len(product.args) != 2:
        return False
    gate = product.args[1] if product.args[0] is x else product.args[0]
    (mean,) = means
    with graph.inserting_before(mean):
        first = graph.call_function(squeezed, (x,))
        passed, given, link = (graph.call_function(operator.getitem, (first, k)) for k in range(3))
    with graph.inserting_before(product):
        last = graph.call_function(excited, (passed, gate, link))
    mean.replace_all_uses_with(given)
    product.replace_all_uses_with(last)
    graph.erase_node(product)
    graph.erase_node(mean)
    return True


def _is_mean(part: nn.Module, node: fx.Node, x: fx.Node) -> bool:
    if node.op == "call_module":
        module: Any = part.get_submodule(str(node.target))
        return isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size in (1, (1, 1))
    named = node.op == "call_method" and node.target == "mean"
    return named and node.args in ((x, (2, 3)), (x, [2, 3])) and dict(node.kwargs) == {"keepdim": True}
