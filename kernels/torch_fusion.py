"""Convolution, batch norm, residual and activation of a model in evaluation as one launch.

A chain of a torch.fx graph, of which every value but the last has one reader,

    grouped convolution -> [batch norm] -> [+ residual] -> [relu, silu, gelu or hardswish]

becomes `tapestry::grouped_conv2d_fused`. `fuse_for_inference` does that to a model, and folds batch norms into the
other convolutions; `fuse_compiled` to whatever torch.compile compiles without gradients.
"""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from .convolution.problem import MOST_WIDTH
from .errors import WrongValue
from .torch_calls import DTYPES
from .torch_fused import FusedConv2d, Pointwise
from .torch_fused import operator as fused_operator
from .torch_geometry import geometry_of
from .torch_in_place import ADDITIONS, Tracer, undisturbed, without_unread, writes
from .torch_large_filters import FusedLargeFilters, LargeFilters
from .torch_layers import GroupedConv2d
from .torch_norms import bare
from .torch_operators import forward as convolution
from .torch_replacement import needs_no_warpgroups, replaced
from .torch_stem import Stem, in_blocks, multiplies_from_shared_memory
from .torch_timm import (
    FusedSameConv2d,
    SameStem,
    is_same,
    is_standardized,
    kind_of,
    moved,
    settle_filters,
)

_torch: Any = torch
_functions = nn.functional
NARROW = 24  # channels in of 1 x 1 convolutions that are one launch with what follows
IDENTITIES = (nn.Identity, nn.Dropout, nn.Dropout2d)
ACTIVATION_FUNCTIONS: dict[Any, str] = {
    _functions.relu: "relu",
    torch.relu: "relu",
    _functions.silu: "silu",
    _functions.gelu: "gelu",
    _functions.hardswish: "hardswish",
}
ACTIVATION_LAYERS: dict[type, str] = {
    nn.ReLU: "relu",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
    nn.Hardswish: "hardswish",
}
FUSED = "fused"  # what the names of layers begin with that stand for several
PART = "fused_part"  # the graph of a part of a model
NORM_ARGUMENTS = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")


@dataclass(frozen=True)
class Norm:
    """A batch norm in evaluation: its statistics and parameters, tensors or nodes of the graph."""

    mean: Any
    variance: Any
    weight: Any
    bias: Any
    eps: float

    def affine(self) -> tuple[Tensor, Tensor]:
        """(scale, shift) a channel, in f32, of tensors."""
        scale = torch.rsqrt(self.variance.float() + self.eps)
        if self.weight is not None:
            scale = scale * self.weight.float()
        shift = -self.mean.float() * scale
        return scale, shift if self.bias is None else shift + self.bias.float()


@dataclass(frozen=True)
class Chain:
    """What becomes one call: its nodes, the convolution's first, and what those behind it do."""

    nodes: tuple[fx.Node, ...]
    norm: Norm | None = None
    residual: fx.Node | None = None
    activation: str = ""

    @property
    def start(self) -> fx.Node:
        return self.nodes[0]

    @property
    def end(self) -> fx.Node:
        return self.nodes[-1]

    def and_then(self, node: fx.Node, **does: Any) -> Chain:
        """The chain with one node more."""
        return replace(self, nodes=(*self.nodes, node), **does)

    def without_residual(self) -> Chain:
        """What of it comes before a residual."""
        if self.residual is None:
            return self
        # What the convolution is of may be added, too.
        added = next(at for at, node in enumerate(self.nodes) if at > 0 and self.residual in node.args)
        return Chain(self.nodes[:added], self.norm)

    def erase(self) -> None:
        """Take the nodes out of the graph, when nobody reads the last one any more."""
        for node in reversed(self.nodes):
            node.graph.erase_node(node)


class Reader:
    """What the nodes of a graph do; `root` holds its modules, where it has any."""

    def __init__(self, graph: fx.Graph, root: nn.Module | None) -> None:
        self.graph, self.root = graph, root

    def module(self, node: fx.Node) -> nn.Module | None:
        """The module that a node calls."""
        return self.root.get_submodule(str(node.target)) if node.op == "call_module" and self.root is not None else None

    def chain(self, start: fx.Node, norm_alone: bool = False) -> Chain:
        """The chain that begins with a convolution, or no more of it than its batch norm."""
        chain = Chain((start,))
        while (reader := self._only_reader(chain.end)) is not None and not (norm_alone and chain.norm):
            longer = self._longer(chain, reader)
            if longer is None or not undisturbed(start, reader, chain.nodes, self.root):
                break
            chain = longer
        return chain

    def _longer(self, chain: Chain, reader: fx.Node) -> Chain | None:
        """A chain with one node more, if that does what the launch does next."""
        if self._passes_on(reader):
            return chain.and_then(reader)
        if chain.activation:
            return None
        if activation := self._activation(reader):
            return chain.and_then(reader, activation=activation)
        if chain.residual is not None:
            return None
        if chain.norm is None and (norm := self._norm(reader, chain.end)):
            return chain.and_then(reader, norm=norm)
        other = self._added(reader, chain.end)
        return None if other is None else chain.and_then(reader, residual=other)

    def _only_reader(self, node: fx.Node) -> fx.Node | None:
        readers = list(node.users)
        return readers[0] if len(readers) == 1 and readers[0].op != "output" else None

    def _passes_on(self, node: fx.Node) -> bool:
        module = self.module(node)
        return isinstance(module, IDENTITIES) and not module.training

    def _norm(self, node: fx.Node, given: fx.Node) -> Norm | None:
        module = self.module(node)
        if type(module) is nn.BatchNorm2d and not module.training and module.running_mean is not None:
            return Norm(module.running_mean, module.running_var, module.weight, module.bias, module.eps)
        if node.target is not _functions.batch_norm:
            return None
        named: dict[str, Any] = {"weight": None, "bias": None, "training": False, "eps": 1e-5}
        named |= {**dict(zip(NORM_ARGUMENTS, node.args, strict=False)), **node.kwargs}
        if named["input"] is not given or named["training"] is not False or named["running_mean"] is None:
            return None
        mean, variance, weight, bias = (self.value(named[name]) for name in NORM_ARGUMENTS[1:5])
        return Norm(mean, variance, weight, bias, named["eps"])

    def value(self, node: Any) -> Any:
        """The tensor that a node of a model's graph gets; nodes of other graphs stay nodes."""
        if isinstance(node, fx.Node) and node.op == "get_attr" and self.root is not None:
            found: Any = self.root
            for part in str(node.target).split("."):
                found = getattr(found, part)
            return found
        return node

    def _added(self, node: fx.Node, given: fx.Node) -> fx.Node | None:
        """The other summand, which has to be there before the convolution is."""
        if node.target not in ADDITIONS or len(node.args) != 2 or node.kwargs:
            return None
        first, second = node.args
        other = second if first is given else first
        if not isinstance(other, fx.Node) or other is given or not _same_extents(node, given):
            return None
        if first is other and writes(node, self.root) and len(other.users) > 1:  # others read the sum, too
            return None
        return other

    def _activation(self, node: fx.Node) -> str:
        module = self.module(node)
        if isinstance(module, nn.GELU) and module.approximate != "none":
            return ""
        if module is not None:
            return ACTIVATION_LAYERS.get(type(module), "")
        if node.op == "call_method" and node.target in ("relu", "relu_"):
            return "relu"
        exact = node.kwargs.get("approximate", "none") == "none"
        return ACTIVATION_FUNCTIONS.get(node.target, "") if node.op == "call_function" and exact else ""


def _same_extents(node: fx.Node, given: fx.Node) -> bool:
    """Whether a sum is as large as one of its summands, where the graph knows."""
    total, one = (found.meta.get("example_value") for found in (node, given))
    return total is None or one is None or bool(total.shape == one.shape)


# -- models ------------------------------------------------------------------------------------------------------------


def fuse_for_inference(model: nn.Module, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """A copy of `model` for inference in `dtype` whose grouped convolutions do what follows them: one launch each.

    What is in one launch: convolution, batch norm, a residual that is added, relu, silu, gelu or hardswish; in f16 and
    bf16 that of dense convolutions of fewer than 128 channels too, of the first one, of fewer than 8, over blocks of
    pixels, and of 1 x 1 ones of up to 24 channels. Batch norms behind other convolutions are folded into their filters,
    in f32; 1 x 1 ones become matrix products, with relu where that follows. The copy is in evaluation and has no
    gradients; parameters are rounded to `dtype` last.

    It is a graph of `torch.fx`. Of a model that cannot be traced, because its control flow depends on values, the
    largest parts that can are fused instead, each in its place, beside the layers that it was made of. Raises
    `WrongValue` where those have nothing to fuse.
    """
    model = copy.deepcopy(model).eval()
    settle_filters(model)
    dense = dtype in DTYPES and multiplies_from_shared_memory()
    replaced(model, {}, one_group=dense)
    try:
        graph = _Tracer().trace(model)
    except Exception as error:
        if not _fuse_parts(model, dense):
            raise WrongValue(
                "torch.fx cannot trace this model, nor a part of it that could be fused",
                where="fuse_for_inference",
                expected="a model whose control flow does not depend on its input",
                came=f"{type(error).__name__}: {error}",
                hint="compile it instead, after fuse_compiled()",
            ) from error
        made = model
    else:
        made = _fused(model, graph, dense)
    return made.to(dtype).requires_grad_(False)


def _fused(model: nn.Module, graph: fx.Graph, dense: bool) -> fx.GraphModule:
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
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced


class Within:
    """The forward of a part of a model, by its graph; copied and pickled with the part."""

    def __init__(self, part: nn.Module) -> None:
        self.part = part

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.part.get_submodule(PART)(*given, **named)


def _fuse_parts(model: nn.Module, dense: bool) -> bool:
    """Fuse the largest parts of a model that can be traced, in their places; whether there was anything to fuse."""
    found = False
    for part in model.children():
        if "forward" in vars(part):  # it is in several places
            continue
        graph = _graph_of(part)
        if graph is None:
            found |= _fuse_parts(part, dense)
            continue
        traced = _fused(part, graph, dense)
        if any(name.startswith(FUSED) for name, _ in traced.named_children()):
            part.add_module(PART, traced)
            part.forward = Within(part)
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
        return _Tracer().trace(part) if len(operands) == len(plain) == 1 else None
    except Exception:
        return None


class _Tracer(Tracer):
    """Convolutions, linear layers, and layers of torch whose class is not subclassed, are leaves."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, (nn.Conv2d, nn.Linear)) or super().is_leaf_module(m, module_qualified_name)


def _convolutions(traced: fx.GraphModule) -> Iterator[fx.Node]:
    for node in traced.graph.nodes:
        if node.op != "call_module":
            continue
        layer = traced.get_submodule(node.target)
        if isinstance(layer, nn.Conv2d) and kind_of(layer) is not None:
            yield node


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
    else:
        return
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

    And which of the two chains it is: one of a product may end with relu, the other ends with the batch norm.
    """
    assert chain.norm is not None
    scale, bias = _affine(layer, chain)
    assert scale is not None
    assert bias is not None
    weight = layer.weight.float() * scale[:, None, None, None]
    if _is_product(layer):
        clamped = chain.activation == "relu" and chain.residual is None
        followed = len(chain.nodes) > len(to_norm.nodes)
        return Pointwise(weight, bias, clamped, followed), chain if clamped else to_norm
    made = copy.copy(layer)
    made._parameters = {
        "weight": nn.Parameter(weight.contiguous(memory_format=torch.channels_last)), "bias": nn.Parameter(bias),
    }  # fmt: skip
    return made, to_norm


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
