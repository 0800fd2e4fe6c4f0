"""Convolution, batch norm, residual and activation of a model in evaluation as one launch.

A chain of a graph (`chains`) that begins with a convolution of ours becomes `tapestry::grouped_conv2d_fused`.
`fuse_for_inference` does that to a model, and folds batch norms into the other convolutions; `fuse_compiled` to
whatever torch.compile compiles without gradients.
"""

from __future__ import annotations

import copy
import inspect
import operator
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import has_side_effect

from ..convolution.problem import MOST_WIDTH
from ..errors import WrongValue
from ..layers.followed import FollowedConv2d, FollowedLinear, FollowedNorm
from ..layers.fused import FusedConv2d, Pointwise
from ..layers.fused import operator as fused_operator
from ..layers.grouped import GroupedConv2d
from ..layers.large_filters import FusedLargeFilters, LargeFilters
from ..layers.layer_norms import FusedLayerNorm
from ..layers.response_norms import FusedResponseNorm
from ..layers.stem import Stem, in_blocks, multiplies_from_shared_memory
from ..layers.timm import (
    FusedSameConv2d,
    SameStem,
    is_same,
    is_standardized,
    kind_of,
    moved,
    settle_filters,
)
from ..tensors.convolution_calls import DTYPES
from ..tensors.geometry import geometry_of
from ..tensors.operators import forward as convolution
from .arguments import check_floats, check_model
from .chains import Chain, Norm, Reader
from .excitations import squeeze_all
from .hooks import HOOKS, bare
from .in_place import Tracer, without_unread
from .moved_biases import move_biases
from .replacement import needs_no_warpgroups, replaced
from .resampling import KINDS, fuse_resampling
from .row_norms import fuse_row_norms
from .scales import scale_sums

NARROW = 24  # channels in of 1 x 1 convolutions that are one launch with what follows
FUSED = "fused"  # what the names of layers begin with that stand for several
SWAPPED = (FusedLayerNorm, FusedResponseNorm, *KINDS.values())  # layers that are kernels of their own
LEAVES = (nn.Conv2d, nn.Linear, *SWAPPED)
PART = "fused_part"  # the graph of a part of a model


def fuse_for_inference(model: nn.Module, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """A copy of `model` for inference in `dtype` whose grouped convolutions do what follows them: one launch each.

    What is in one launch: convolution, batch norm, a residual that is added, relu, silu, gelu or hardswish; in f16 and
    bf16 that of dense convolutions of fewer than 128 channels too, of the first one, of fewer than 8, over blocks of
    pixels, and of 1 x 1 ones of up to 24 channels. Batch norms behind other convolutions are folded into their filters,
    in f32; what follows them is cuDNN's then, in its launch, where it ends with relu, or else one launch, as it is
    behind linear layers (`layers/followed`). 1 x 1 ones that nothing follows become matrix products. Kernels of their
    own compute pools, layer norms, squeeze-and-excitations, and layer scales with the sums behind them. The copy is in
    evaluation and has no gradients; parameters are rounded to `dtype` last.

    It is a graph of `torch.fx`, without the operands that have a default, which it refuses to be given. Of a model that
    cannot be traced, because its control flow depends on values, the largest parts that can are fused instead, each in
    its place, beside the layers that it was made of. Raises `WrongValue` where there is nothing to fuse,
    `WrongType` for what is no model and `WrongDtype` for a type of integers.
    """
    check_model(model, "fuse_for_inference")
    check_floats(dtype, "fuse_for_inference")
    # In training layers forget what they keep for evaluation, which may be of another type.
    model = copy.deepcopy(model).train().eval()
    settle_filters(model)
    halves = dtype in DTYPES
    dense = halves and multiplies_from_shared_memory()
    replaced(model, {}, one_group=dense)
    fuse_resampling(model)
    fuse_row_norms(model, autocast=False)
    try:
        graph = _graph(model)
    except Exception as error:
        if not _fuse_parts(model, halves, dense) and not any(isinstance(part, SWAPPED) for part in model.modules()):
            raise WrongValue(
                "torch.fx cannot trace this model, nor a part of it that could be fused",
                where="fuse_for_inference",
                expected="a model whose control flow does not depend on its input, and that keeps nothing of its calls",
                came=f"{type(error).__name__}: {error}",
                hint="compile it instead, after fuse_compiled()",
            ) from error
        made = model
    else:
        made = _fused(model, graph, halves, dense)
        vars(made).update({name: hooks for name in HOOKS if (hooks := vars(model).get(name))})
    return made.to(dtype).requires_grad_(False)


def _fused(model: nn.Module, graph: fx.Graph, halves: bool, dense: bool) -> fx.GraphModule:
    """What a graph of a model says, with launches that do more than one of its layers."""
    traced = fx.GraphModule(model, graph)
    for node in traced.graph.find_nodes(op="call_function", target=torch._assert):  # they read what is to be hidden
        traced.graph.erase_node(node)
    without_unread(traced.graph, traced)
    for node in traced.graph.nodes:  # types of `from __future__ import annotations` are text, and cannot be pickled
        node.type = None if isinstance(node.type, str) else node.type
    with torch.no_grad():
        for number, start in enumerate(list(_convolutions(traced))):
            _fuse_layer(traced, Reader(traced.graph, traced), start, f"{FUSED}_{number}", dense)
        if halves:
            for number, start in enumerate(list(_linear_layers(traced))):
                _fuse_linear(traced, Reader(traced.graph, traced), start, f"{FUSED}_linear_{number}")
            for number, start in enumerate(list(traced.graph.nodes)):
                _fuse_norm(traced, Reader(traced.graph, traced), start, f"{FUSED}_norm_{number}")
        move_biases(traced, FUSED)
    squeeze_all(traced, traced.graph)
    scale_sums(traced, traced.graph)
    _flatten_constants(traced)
    for node in traced.graph.find_nodes(
        op="get_attr"
    ):  # of norms that are folded: looking them up takes the host's time
        if not node.users:
            traced.graph.erase_node(node)
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


def _flatten_constants(traced: fx.GraphModule) -> None:
    """Keep constants of five dimensions in one. Where a module is told how its images lie, torch takes those for
    volumes, which lie in another way, and refuses.
    """
    large = {name: value for name, value in traced.named_buffers(recurse=False) if value.dim() == 5}
    for name, value in large.items():
        setattr(traced, name, value.flatten())
    for node in traced.graph.find_nodes(op="get_attr"):
        if node.target in large:
            readers = list(node.users)
            with traced.graph.inserting_after(node):
                whole = traced.graph.call_method("view", (node, *large[node.target].shape))
            for reader in readers:
                reader.replace_input_with(node, whole)


class Within:
    """The forward of a part of a model, by its graph; copied and pickled with the part."""

    def __init__(self, part: nn.Module) -> None:
        self.part = part

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.part.get_submodule(PART)(*given, **named)


class FusedSequential(nn.Sequential):
    """An nn.Sequential with its graph beside its layers: who goes through these one by one does not meet it."""

    def _layers(self) -> list[tuple[str, nn.Module]]:
        return [(name, layer) for name, layer in self._modules.items() if name != PART and layer is not None]

    def __iter__(self) -> Iterator[nn.Module]:
        return iter([layer for _, layer in self._layers()])

    def __len__(self) -> int:
        return len(self._layers())

    def __getitem__(self, which: Any) -> Any:
        """A layer, or the sequence of some."""
        if isinstance(which, slice):
            return nn.Sequential(OrderedDict(self._layers()[which]))
        return self._layers()[which][1]


def _fuse_parts(model: nn.Module, halves: bool, dense: bool) -> bool:
    """Fuse the largest parts of a model that can be traced, in their places; whether there was anything to fuse."""
    found = False
    for part in model.children():
        if "forward" in vars(part):  # it is in several places
            continue
        graph = _graph_of(part)
        if graph is None:
            found |= _fuse_parts(part, halves, dense)
            continue
        traced = _fused(part, graph, halves, dense)
        if any(name.startswith(FUSED) for name, _ in traced.named_children()):
            part.add_module(PART, traced)
            part.forward = Within(part)
            if type(part) is nn.Sequential:
                part.__class__ = FusedSequential
            found = True
    return found


def _graph_of(part: nn.Module) -> fx.Graph | None:
    """What a part of a model does with its one operand; None where that cannot be told.

    What has a default may be given or not: then a trace would say one thing for both.
    """
    of_torch = type(part).__module__.startswith("torch.nn") and not isinstance(part, nn.Sequential)
    if of_torch or not bare(part) or next(part.children(), None) is None:
        return None
    try:
        operands = list(inspect.signature(part.forward).parameters.values())
        plain = [one for one in operands if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
        return _graph(part) if len(operands) == len(plain) == 1 else None
    except Exception:
        return None


def _graph(part: nn.Module) -> fx.Graph:
    """What a part does, which has the constants of it from then on, where what may be left out is.

    Not of one that keeps something of a call, but in caches, or draws numbers: a graph does neither.
    """
    tracer = _Tracer(given=False)
    graph = tracer.trace(part)
    if tracer.kept.beyond_caches:
        raise fx.proxy.TraceError("it keeps something of its calls, or draws random numbers")
    vars(part).update(tracer.constants)
    for node in tracer.optional:
        with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
            graph.call_function(left_out, (node, node.args[0], str(node.target)))
    return graph


@has_side_effect
def left_out(value: Any, default: Any, name: str) -> None:
    """Refuse an operand that the graph was made without."""
    if isinstance(value, fx.Proxy):  # a graph that was pickled is traced again
        value.tracer.create_proxy("call_function", left_out, (value, default, name), {})
    elif value is not default and not (
        type(value) is type(default) and isinstance(value, Hashable) and value == default
    ):
        raise WrongValue(
            f"operand {name!r} is given", where="a model that was fused for inference",
            expected=f"it to be left out, as it was when the model was fused: {default!r}", came=type(value).__name__,
            hint="fuse a module whose forward has no such operand, and passes it on",
        )  # fmt: skip


class _Tracer(Tracer):
    """Layers of ours, and what is subclassed of convolutions and of linear layers, are leaves as torch's layers are."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, LEAVES) or super().is_leaf_module(m, module_qualified_name)


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
    if norm is not None and isinstance(norm.mean, Tensor) and isinstance(norm.variance, Tensor):
        chain = reader.chain(start)
        if chain.norm is None:
            _put(traced, name, FollowedNorm(*norm.affine(), chain.activation), start, chain)


def _fuse_layer(traced: fx.GraphModule, reader: Reader, start: fx.Node, name: str, dense: bool) -> None:
    """Put one module in the place of a convolution and of what it does as well; of some `dense` ones too."""
    layer, chain = traced.get_submodule(str(start.target)), reader.chain(start)
    assert isinstance(layer, nn.Conv2d)
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


# -- compiled graphs ---------------------------------------------------------------------------------------------------


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
