"""Squeeze-and-excitations of a model, each with the two calls that compute it (`tensors/excitations`)."""

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
from .norm_sums import Graphs
from .rewritten import Rewritten, rewrite

MOST_CALLS = 12  # between a mean and its gate


def excitation_kinds(model: nn.Module, dtype: torch.dtype) -> list[ImageKind]:
    """The kernels that the squeeze-and-excitations of a model ask for, of activations of a type."""
    named, found = DTYPES.get(dtype), []
    for part in model.modules():
        made = vars(part).get("forward")
        if named and isinstance(made, Rewritten) and squeezed in made.known.values():
            channels = [child.out_channels for child in part.children() if isinstance(child, nn.Conv2d)]
            found.append(ImageKind.of(channels[-1], named))
        if named and isinstance(part, fx.GraphModule):
            gates = [node.args[1] for node in part.graph.find_nodes(op="call_function", target=excited)]
            found += [ImageKind.of(count, named) for gate in gates if (count := _channels(part, gate))]
    return list(dict.fromkeys(found))


def _channels(root: fx.GraphModule, gate: Any) -> int:
    """Of a gate, by the last layer that it goes through; 0 where that cannot be told."""
    for _ in range(MOST_CALLS):
        if not isinstance(gate, fx.Node) or len(gate.all_input_nodes) != 1:
            return 0
        weight = getattr(root.get_submodule(str(gate.target)), "weight", None) if gate.op == "call_module" else None
        if isinstance(weight, torch.Tensor):
            return len(weight)
        (gate,) = gate.all_input_nodes
    return 0


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


def squeeze_all(root: nn.Module, graph: fx.Graph) -> int:
    """Put both calls into a graph of a model for inference, in the place of each of its squeeze-and-excitations: how
    many there were.
    """
    count = 0
    for mean in list(graph.nodes):
        x = mean.args[0] if mean.args else None
        if not isinstance(x, fx.Node) or len(x.users) != 2 or not _is_mean(root, mean, x):
            continue
        (product,) = (user for user in x.users if user is not mean)
        gate = _gate(product, x)
        if gate is not None and _comes_from(gate, mean):
            _put(graph, x, mean, product, gate)
            count += 1
    return count


def _comes_from(gate: fx.Node, mean: fx.Node) -> bool:
    """Whether a gate is computed of nothing but a mean, one call after another."""
    for _ in range(MOST_CALLS):
        if gate is mean:
            return True
        if len(gate.all_input_nodes) != 1:
            return False
        (gate,) = gate.all_input_nodes
    return False


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
    gate = _gate(product, x)
    if len(means) != 1 or gate is None:
        return False
    _put(graph, x, means[0], product, gate)
    return True


def _gate(product: Any, x: fx.Node) -> fx.Node | None:
    """What x is multiplied with; None of anything but a product of it."""
    if not isinstance(product, fx.Node) or product not in x.users or product.kwargs or len(product.args) != 2:
        return None
    if product.target not in (operator.mul, torch.mul):
        return None
    gate = product.args[1] if product.args[0] is x else product.args[0]
    return gate if isinstance(gate, fx.Node) and gate is not x else None


def _put(graph: fx.Graph, x: fx.Node, mean: fx.Node, product: fx.Node, gate: fx.Node) -> None:
    """Both calls, in the place of mean and product."""
    over = (-2, -1) if mean.op == "call_module" else (2, 3)
    with graph.inserting_before(mean):
        first = graph.call_function(squeezed, (x, over))
        passed, given, link = (graph.call_function(operator.getitem, (first, k)) for k in range(3))
    with graph.inserting_before(product):
        last = graph.call_function(excited, (passed, gate, link))
    mean.replace_all_uses_with(given)
    product.replace_all_uses_with(last)
    graph.erase_node(product)
    graph.erase_node(mean)


def _is_mean(part: nn.Module, node: fx.Node, x: fx.Node) -> bool:
    if node.op == "call_module":
        module: Any = part.get_submodule(str(node.target))
        return isinstance(module, nn.AdaptiveAvgPool2d) and module.output_size in (1, (1, 1)) and bare(module)
    named = node.op == "call_method" and node.target == "mean"
    return named and node.args in ((x, (2, 3)), (x, [2, 3])) and dict(node.kwargs) == {"keepdim": True}
