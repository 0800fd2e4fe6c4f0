"""Layer scales of a model, each with the residual that is added behind it: one launch, in training two backward.

    before:  y = residual + drop(x * gamma)
    after:   y = scaled_sum(x, gamma, residual, factors_of(drop, x, gamma))

gamma is a number a channel. Under autocast x is a half, gamma f32, and so is all that follows: torch passes over
thirteen tensors there, forward and backward, most of them f32, where kernels (`normalization/scaled_sum.cu`) pass over
six. Stochastic depth, which drops whole images, is a factor of each.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from ..normalization.scaled_sum import ScaleKind
from ..tensors.norm_calls import DTYPES
from ..tensors.scale_calls import scaled_sum, scaled_sum_into
from .arguments import check_model
from .hooks import bare
from .in_place import ADDITIONS, says_it_writes_nothing, undisturbed, writes
from .norm_sums import Graphs
from .rewritten import Rewritten, called_in, rewrite

_torch: Any = torch  # what is not typed by torch
_LAYERS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.modules.conv._ConvNd, nn.Linear)


def factors_of(drop: Any, x: Any, gamma: Any) -> Any:
    """What stochastic depth multiplies each image of x * gamma with, [n, 1, ...], drawn as it draws it; None where it
    drops nothing. Of what is traced, `drop` itself.
    """
    if not drop.training or not _rate(drop):
        return None
    if not isinstance(x, Tensor):
        return drop
    first, *rest = _torch.broadcast_shapes(x.shape, gamma.shape)
    return drop(x.new_ones((first, *(1 for _ in rest)), dtype=torch.promote_types(x.dtype, gamma.dtype)))


def scale_kinds(model: nn.Module, dtype: torch.dtype) -> list[ScaleKind]:
    """The kernels that the layer scales of a model ask for, of activations of a type."""
    named, found = DTYPES.get(dtype), []
    for part in model.modules():
        dropping = any(_is_drop(child) and child.training and _rate(child) for child in part.children())
        for gamma in _taken(part):
            own = DTYPES.get(gamma.dtype)
            if named is not None and own is not None:
                wide = "f32" if "f32" in (own, named) else named
                sums = dict.fromkeys([(wide, wide), (named, wide)])
                found += [ScaleKind.of(gamma.numel(), named, *types, own, factors=dropping) for types in sums]
    return list(dict.fromkeys(found))


def _taken(part: nn.Module) -> Iterator[Tensor]:
    """The layer scales that kernels compute in a block that was rewritten, or in a graph for inference."""
    made = vars(part).get("forward")
    known = made.known.values() if isinstance(made, Rewritten) else ()
    if any(one is scaled_sum or one is scaled_sum_into for one in known):
        yield from _gammas(part)
    for call in part.graph.nodes if isinstance(part, fx.GraphModule) else ():
        node = call.args[1] if call.target in (scaled_sum, scaled_sum_into) else None
        while isinstance(node, fx.Node) and node.op == "call_method":
            node = node.args[0]
        if isinstance(node, fx.Node) and node.op == "get_attr":
            yield part.get_parameter(str(node.target))


def fuse_layer_scales(model: nn.Module) -> list[str]:
    """Have kernels compute the layer scales of `model` and the sums behind them, in place: the names of the blocks.

    Taken are sums in a block of a residual and of what a parameter of the block, or timm's LayerScale, multiplies by
    channels, with timm's DropPath or torchvision's StochasticDepth between them or nothing. The block computes from
    then on what its trace says, with its own parts, as `fuse_norms` has it.

    Raises `WrongType` for what is no model.
    """
    check_model(model, "fuse_layer_scales")
    taken, graphs = [], Graphs()
    for name, block in model.named_modules():
        if "forward" in vars(block) or not bare(block) or next(_gammas(block), None) is None:
            continue
        graph = graphs.of(block, frozenset())
        if graph is None:
            continue
        before = called_in(graph)
        if scale_sums(block, graph):
            rewrite(block, graph, before)
            taken.append(name)
    return taken


def scale_sums(block: nn.Module, graph: fx.Graph) -> int:
    """Make one call of each layer scale and the sum behind it in a graph of a block; how many there were."""
    count = 0
    while (found := next(_sums(block, graph), None)) is not None:
        _rewrite(block, graph, found)
        count += 1
    return count


def _gammas(block: nn.Module) -> Iterator[Tensor]:
    """The parameters of a block that may be layer scales; of a layer of torch's, or derived from one, none."""
    if not isinstance(block, _LAYERS) and next(block.children(), None) is not None:
        for part in (block, *filter(_is_scale, block.children())):
            yield from (each for each in part.parameters(recurse=False) if each.numel() == max(each.shape, default=0))


def _is_scale(layer: nn.Module) -> bool:
    """Whether it is a layer scale that writes into nothing."""
    kind = type(layer)
    if kind.__module__ != "timm.layers.layer_scale" or kind.__name__ not in ("LayerScale", "LayerScale2d"):
        return False
    return not layer.inplace and bare(layer)


def _is_drop(layer: nn.Module) -> bool:
    """Whether it is stochastic depth of whole images."""
    kind, where = type(layer).__name__, type(layer).__module__
    rows = kind == "StochasticDepth" and where == "torchvision.ops.stochastic_depth" and layer.mode == "row"
    return (rows or (kind == "DropPath" and where == "timm.layers.drop")) and bare(layer)


def _rate(drop: Any) -> float:
    """How many images of one it drops."""
    made: float = drop.drop_prob if hasattr(drop, "drop_prob") else drop.p
    return made


class _Sum(NamedTuple):
    """Nodes of a graph, from the sum back to the product; what drops among them, if anything; and the operands. With
    `moved` channels, the last dimension of the product, become the second one of images behind it.
    """

    nodes: tuple[fx.Node, ...]
    drop: fx.Node | None
    x: fx.Node
    residual: fx.Node
    moved: bool


def _sums(block: nn.Module, graph: fx.Graph) -> Iterator[_Sum]:
    """The sums of a graph that are left."""
    for total in graph.nodes:
        if total.op != "call_function" or total.target not in ADDITIONS or total.kwargs or len(total.args) != 2:
            continue
        for summand, residual in (total.args, total.args[::-1]):
            if writes(total, None) and summand is not total.args[0]:
                continue  # it is written into the residual
            found = _found(block, total, summand, residual)
            if found is not None:
                yield found
                break


def _found(block: nn.Module, total: fx.Node, summand: Any, residual: Any) -> _Sum | None:
    if not isinstance(summand, fx.Node) or not isinstance(residual, fx.Node) or summand is residual:
        return None
    drop, moved, scale, nodes = None, False, summand, [total]
    while len(scale.users) == 1 and scale.args and isinstance(scale.args[0], fx.Node):
        layer = block.get_submodule(str(scale.target)) if scale.op == "call_module" and len(scale.args) == 1 else None
        if layer is not None and drop is None and _is_drop(layer):
            drop = scale
        elif not moved and scale.op == "call_method" and scale.target == "permute" and _order(scale) == (0, 3, 1, 2):
            moved = True
        elif type(layer) is not nn.Identity or not bare(layer):
            break
        nodes.append(scale)
        scale = scale.args[0]
    x = _scaled(block, scale, moved) if len(scale.users) == 1 else None
    own = [each for each in (total, drop, scale) if each is not None]
    if x is None or not undisturbed(scale, total, own, block) or not _quiet(block, scale, total):
        return None
    return _Sum((*nodes, scale), drop, x, residual, moved)


def _quiet(block: nn.Module, start: fx.Node, end: fx.Node) -> bool:
    """Whether no part of what is called between two nodes writes in place, whose graph is not seen here."""
    node = start.next
    while node is not end:
        if node.op == "call_module" and not says_it_writes_nothing(block.get_submodule(str(node.target))):
            return False
        node = node.next
    return True


def _order(node: fx.Node) -> tuple[Any, ...]:
    """Of dimensions, as a call that permutes them is given it."""
    given = node.args[1:]
    return tuple(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def _scaled(block: nn.Module, node: fx.Node, last: bool) -> fx.Node | None:
    """What a node multiplies with a layer scale: of the `last` dimension, where it is to be, else of any."""
    if node.kwargs:
        return None
    if node.op == "call_module":
        layer = block.get_submodule(str(node.target))
        fits = len(node.args) == 1 and _is_scale(layer) and not (last and type(layer).__name__ == "LayerScale2d")
        return node.args[0] if fits and isinstance(node.args[0], fx.Node) else None
    product = node.target in (operator.mul, torch.mul) if node.op == "call_function" else node.target == "mul"
    if node.op not in ("call_function", "call_method") or not product or len(node.args) != 2:
        return None
    for x, gamma in (node.args, node.args[::-1]):
        if isinstance(x, fx.Node) and isinstance(gamma, fx.Node) and x is not gamma and _is_gamma(block, gamma, last):
            return x
    return None


def _is_gamma(block: nn.Module, node: fx.Node, last: bool) -> bool:
    """Whether a node is a parameter of numbers a channel: as it is, of one dimension, or in any shape that has them."""
    if not last and node.op == "call_method" and node.target in ("reshape", "view"):
        if not all(type(one) is int for one in node.args[1:]):
            return False
        (node, *_) = node.args  # type: ignore[assignment]
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return False
    holder, _, name = str(node.target).rpartition(".")
    if holder and not isinstance(block, fx.GraphModule):  # a part of the block may be told to have another one
        return False
    value = getattr(block.get_submodule(holder), name, None)
    if not isinstance(value, nn.Parameter) or value.numel() != max(value.shape, default=0):
        return False
    return value.dim() == 1 or not last


def _rewrite(block: nn.Module, graph: fx.Graph, found: _Sum) -> None:
    """One call in the place of product, drop and sum."""
    (total, *_, scale), drop, x, residual, moved = found
    with graph.inserting_before(scale):
        if scale.op == "call_module":
            gamma = graph.get_attr(f"{scale.target}.gamma")
            if type(block.get_submodule(str(scale.target))).__name__ == "LayerScale2d":
                gamma = graph.call_method("view", (gamma, 1, -1, 1, 1))
        else:
            gamma = next(each for each in scale.args if each is not x)  # type: ignore[assignment]
    factors = None
    if drop is not None:
        with graph.inserting_before(drop):
            factors = graph.call_function(factors_of, (graph.get_attr(str(drop.target)), x, gamma))
    with graph.inserting_before(total):
        images, numbers = x, gamma
        if moved:
            images = graph.call_method("permute", (x, 0, 3, 1, 2))
            numbers = graph.call_method("view", (gamma, -1, 1, 1))
        function = scaled_sum_into if writes(total, None) else scaled_sum
        call = graph.call_function(function, (images, numbers, residual, factors))
    total.replace_all_uses_with(call)
    for node in found.nodes:
        graph.erase_node(node)
