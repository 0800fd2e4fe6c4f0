"""The layers of a graph for inference, each with what follows it (`chains`) as one module: which, and in what way.

grouped, narrow and first convolutions    one launch of ours (`layers/fused`, `layers/stem`)
other ones                                cuDNN's, or a launch of ours behind them (`layers/followed`)
linear layers, norms in front             likewise, of halves
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, fx, nn

from ..convolution.problem import MOST_WIDTH
from ..layers.followed import FollowedConv2d, FollowedLinear, FollowedNorm
from ..layers.fused import FusedConv2d, Pointwise
from ..layers.grouped import GroupedConv2d
from ..layers.large_filters import FusedLargeFilters, LargeFilters
from ..layers.stem import Stem, in_blocks
from ..layers.timm import FusedSameConv2d, SameStem, is_same, is_standardized, kind_of, moved
from ..tensors.geometry import geometry_of
from .chains import Chain, Norm, Reader
from .hooks import bare
from .moved_biases import move_biases
from .replacement import needs_no_warpgroups

NARROW = 24  # channels in of 1 x 1 convolutions that are one launch with what follows
FUSED = "fused"  # what the names of layers begin with that stand for several
VIEWS = ("view", "view_as", "as_strided", "stride", "is_contiguous")  # what depends on how a tensor lies


def fuse_layers(traced: fx.GraphModule, halves: bool, dense: bool) -> bool:
    """Put them in their places, in a graph that is still in f32: for `halves`, and of kernels for `dense` ones too.
    Whether there were any.
    """
    made = FUSED
    while any(name.startswith(made) for name, _ in traced.named_children()):
        made = f"_{made}"  # the model has something by such a name
    with torch.no_grad():
        for number, start in enumerate(list(_convolutions(traced))):
            _fuse_layer(traced, Reader(traced.graph, traced), start, f"{made}_{number}", dense)
        if halves:
            for number, start in enumerate(list(_linear_layers(traced))):
                _fuse_linear(traced, Reader(traced.graph, traced), start, f"{made}_linear_{number}")
            for number, start in enumerate(list(traced.graph.nodes)):
                _fuse_norm(traced, Reader(traced.graph, traced), start, f"{made}_norm_{number}")
        move_biases(traced, made)
    _keep_orders(traced)
    return any(name.startswith(made) for name, _ in traced.named_children())


def _keep_orders(traced: fx.GraphModule) -> None:
    """Have results lie as images do where somebody could tell: who views or returns them. Otherwise they lie
    channels-last, whatever the images do, as the next layer takes them.
    """
    viewed = any(node.op == "call_method" and node.target in VIEWS for node in traced.graph.nodes)
    (end,) = traced.graph.find_nodes(op="output")
    for node in traced.graph.find_nodes(op="call_module"):
        if viewed or end in node.users:
            for part in traced.get_submodule(str(node.target)).modules():
                if isinstance(part, (FusedConv2d, FollowedConv2d)):
                    part.keeps = True


def _convolutions(traced: fx.GraphModule) -> Iterator[fx.Node]:
    for node in traced.graph.nodes:
        if node.op != "call_module":
            continue
        layer = traced.get_submodule(node.target)
        if isinstance(layer, nn.Conv2d) and kind_of(layer) is not None and bare(layer):
            yield node


def _linear_layers(traced: fx.GraphModule) -> Iterator[fx.Node]:
    for node in traced.graph.nodes:
        if node.op == "call_module" and len(node.args) == 1 and not node.kwargs:
            layer = traced.get_submodule(node.target)
            if type(layer) is nn.Linear and layer.bias is not None and bare(layer):
                yield node


def _fuse_linear(traced: fx.GraphModule, reader: Reader, start: fx.Node, name: str) -> None:
    """The same of a linear layer, where there is something that follows."""
    layer, chain = traced.get_submodule(str(start.target)), reader.chain(start)
    assert isinstance(layer, nn.Linear)
    if chain.norm is None and (chain.activation or chain.residual is not None):
        _put(traced, name, FollowedLinear(layer, chain.activation), start, chain)


def _fuse_norm(traced: fx.GraphModule, reader: Reader, start: fx.Node, name: str) -> None:
    """The same of a batch norm that is left, of statistics that are tensors here."""
    x = start.args[0] if start.args else None
    norm = reader.norm(start, x) if isinstance(x, fx.Node) and start.users else None
    if norm is not None and _is_known(norm):
        chain = reader.chain(start)
        if chain.norm is None:
            _put(traced, name, FollowedNorm(*norm.affine(), chain.activation), start, chain)


def _is_known(norm: Norm) -> bool:
    """Whether what a norm multiplies with and adds are tensors here, and not computed in each call."""
    there = all(isinstance(one, Tensor) for one in (norm.mean, norm.variance))
    return there and all(one is None or isinstance(one, Tensor) for one in (norm.weight, norm.bias))


def _fuse_layer(traced: fx.GraphModule, reader: Reader, start: fx.Node, name: str, dense: bool) -> None:
    """Put one module in the place of a convolution and of what it does as well; of some `dense` ones too."""
    layer, chain = traced.get_submodule(str(start.target)), reader.chain(start)
    assert isinstance(layer, nn.Conv2d)
    if chain.norm is not None and not _is_known(chain.norm):
        chain = Chain((start,))
    ours = isinstance(layer, GroupedConv2d) and not isinstance(layer, LargeFilters)
    if isinstance(layer, LargeFilters) and not is_same(layer):
        made, chain = _over_blocks(layer, chain)
    elif ours and (dense or layer.groups > 1 or needs_no_warpgroups(layer)):
        made = _in_one_launch(layer, chain)
    elif is_standardized(layer):
        return
    elif dense and (in_blocks(layer) or _narrow_product(layer, chain)):
        made = _in_one_launch(layer, chain)
    elif chain.norm is not None and layer.padding_mode == "zeros":
        made, chain = _folded(layer, chain, reader.chain(start, norm_alone=True))
    elif dense and layer.bias is not None and _is_followed(layer, chain):
        made = FollowedConv2d(layer.weight, layer.bias, chain.activation, layer)
    elif dense and layer.bias is not None and _is_product(layer):
        made, chain = Pointwise(layer.weight, layer.bias), Chain((start,))
    else:
        return
    _put(traced, name, made, start, chain)


def _put(traced: fx.GraphModule, name: str, made: nn.Module, start: fx.Node, chain: Chain) -> None:
    """One module in the place of a chain of calls."""
    traced.add_submodule(name, made)
    given = (start.args[0],) if chain.residual is None else (start.args[0], chain.residual)
    with traced.graph.inserting_before(chain.end):
        call = traced.graph.call_module(name, given)
    chain.end.replace_all_uses_with(call)
    chain.erase()


def _over_blocks(layer: LargeFilters, chain: Chain) -> tuple[nn.Module, Chain]:
    """A large filter with what follows it but a residual, which does not lie in blocks; and what that is."""
    chain = chain.without_residual()
    return FusedLargeFilters(layer, *_affine(layer, chain), chain.activation), chain


def _affine(layer: nn.Conv2d, chain: Chain) -> tuple[Tensor | None, Tensor | None]:
    """What a layer's products are multiplied with, and what is added: by a batch norm, its own bias in it."""
    if chain.norm is None:
        return None, layer.bias
    scale, shift = chain.norm.affine()
    return scale, shift if layer.bias is None else shift + layer.bias.float() * scale


def _in_one_launch(layer: nn.Conv2d, chain: Chain) -> nn.Module:
    same, then = is_same(layer), (*_affine(layer, chain), chain.activation)
    weight = layer.taps() if isinstance(layer, GroupedConv2d) else layer.weight
    if in_blocks(layer):
        return SameStem(weight, *then, layer) if same else Stem(weight, *then, moved(layer, ()))
    geometry = geometry_of(layer.stride, layer.padding, layer.dilation, layer.groups, weight.shape[2:])
    return (FusedSameConv2d if same else FusedConv2d)(weight, *then, geometry)


def _narrow_product(layer: nn.Conv2d, chain: Chain) -> bool:
    """Whether a 1 x 1 convolution moves so much more than it multiplies that it is worth a launch with what follows."""
    few = layer.in_channels <= NARROW and layer.out_channels <= MOST_WIDTH
    octets = layer.in_channels % 8 == layer.out_channels % 8 == 0
    return _is_product(layer) and few and octets and bool(chain.activation)


def _is_product(layer: nn.Conv2d) -> bool:
    steps = (layer.kernel_size, layer.stride, layer.padding, layer.groups, layer.padding_mode)
    return steps == ((1, 1), (1, 1), (0, 0), 1, "zeros")


def _folded(layer: nn.Conv2d, chain: Chain, to_norm: Chain) -> tuple[nn.Module, Chain]:
    """A convolution with the batch norm in its filter and bias, which are in f32 until the model is converted.

    And which of the two chains it is: what follows is computed with it, or it ends with the batch norm.
    """
    assert chain.norm is not None
    scale, bias = _affine(layer, chain)
    assert scale is not None
    assert bias is not None
    weight = layer.weight.float() * scale[:, None, None, None]
    if _is_followed(layer, chain):
        return FollowedConv2d(weight, bias, chain.activation, layer), chain
    if _is_product(layer):
        return Pointwise(weight, bias), to_norm
    made = copy.copy(layer)
    made._parameters = {
        "weight": nn.Parameter(weight.contiguous(memory_format=torch.channels_last)), "bias": nn.Parameter(bias),
    }  # fmt: skip
    return made, to_norm


def _is_followed(layer: nn.Conv2d, chain: Chain) -> bool:
    """Whether something follows a convolution, and it is torch's to the letter."""
    plain = layer.padding_mode == "zeros" and isinstance(layer.padding, tuple) and not is_same(layer)
    return plain and not is_standardized(layer) and bool(chain.activation or chain.residual is not None)
