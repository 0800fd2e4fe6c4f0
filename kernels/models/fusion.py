"""`fuse_for_inference`: a copy of a model, as a graph whose layers do what follows them (`fused_layers`)."""

from __future__ import annotations

import copy
import inspect
import operator
import re
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from functools import cache
from typing import Any

import torch
from torch import fx, nn
from torch.fx.node import has_side_effect

from ..errors import WrongValue
from ..layers.followed import Constant, FollowedConv2d, FollowedLinear, FollowedNorm
from ..layers.fused import FusedConv2d, Pointwise
from ..layers.layer_norms import FusedLayerNorm
from ..layers.response_norms import FusedResponseNorm
from ..layers.stem import multiplies_from_shared_memory
from ..layers.timm import SameStem, settle_filters
from ..tensors.convolution_calls import DTYPES
from .arguments import check_floats, check_model
from .excitations import squeeze_all
from .fused_layers import fuse_layers
from .hooks import HOOKS, bare
from .in_place import Tracer, without_unread, writes
from .replacement import replaced
from .resampling import KINDS, fuse_resampling
from .row_norms import fuse_row_norms
from .scales import scale_sums

SWAPPED = (FusedLayerNorm, FusedResponseNorm, *KINDS.values())  # layers that are kernels of their own
MADE = (FusedConv2d, SameStem, Pointwise, FollowedConv2d, FollowedLinear, FollowedNorm, Constant)  # of an earlier call
LEAVES = (nn.Conv2d, nn.Linear, *MADE, *SWAPPED)
PART = "fused_part"  # the graph of a part of a model
_ASKS_FOR_PARTS = re.compile(r"\.(named_)?(children|modules)\(|\._modules\b")
CONSTANT = "_tensor_constant"  # what torch.fx calls tensors that a forward makes


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
        made: nn.Module = _fused(model, _graph(model), halves, dense)[0]
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
        vars(made).update({name: hooks for name in HOOKS if (hooks := vars(model).get(name))})
    return made.to(dtype).requires_grad_(False)


def _fused(model: nn.Module, graph: fx.Graph, halves: bool, dense: bool) -> tuple[fx.GraphModule, bool]:
    """What a graph of a model says, with launches that do more than one of its layers; and whether there are any."""
    traced = fx.GraphModule(model, graph)
    _copy_written(traced)
    for node in traced.graph.find_nodes(op="call_function", target=torch._assert):  # they read what is to be hidden
        traced.graph.erase_node(node)
    without_unread(traced.graph, traced)
    for node in traced.graph.nodes:  # types of `from __future__ import annotations` are text, and cannot be pickled
        node.type = None if isinstance(node.type, str) else node.type
    found = fuse_layers(traced, halves, dense)
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
    return traced, found


def _copy_written(traced: fx.GraphModule) -> None:
    """Have tensors that a forward makes anew in each call made anew where they are written into, or handed out."""
    first: dict[str, fx.Node] = {}
    for node in traced.graph.find_nodes(op="get_attr"):
        name = str(node.target)
        if name.startswith(CONSTANT) and first.setdefault(name, node) is not node:
            node.replace_all_uses_with(first[name])
            traced.graph.erase_node(node)
    for node in first.values():
        if _is_told(traced, node):
            with traced.graph.inserting_after(node):
                own = traced.graph.call_method("clone", (node,))
            node.replace_all_uses_with(own)
            own.args = (node,)


def _is_told(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Whether somebody could tell a tensor from another one of the same numbers; views of it are it."""
    for reader in node.users:
        looks = reader.op == "call_method" or reader.target is operator.getitem
        if reader.op == "output" or writes(reader, traced) or (looks and _is_told(traced, reader)):
            return True
    return False


def _flatten_constants(traced: fx.GraphModule) -> None:
    """Have those of five dimensions kept by modules of their own."""
    large = {name: value for name, value in traced.named_buffers(recurse=False) if value.dim() == 5}
    for name, value in large.items():
        delattr(traced, name)
        setattr(traced, f"flat_{name}", Constant(value))
    for node in traced.graph.find_nodes(op="get_attr"):
        if node.target in large:
            with traced.graph.inserting_after(node):
                whole = traced.graph.call_module(f"flat_{node.target}", ())
            node.replace_all_uses_with(whole)


class Within:
    """The forward of a part of a model, by its graph; copied and pickled with the part."""

    def __init__(self, part: nn.Module) -> None:
        self.part = part

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.part.get_submodule(PART)(*given, **named)

    def put(self) -> None:
        """Have the part compute what its graph says."""
        vars(self.part)["forward"] = self
        vars(self.part)["_replicate_for_data_parallel"] = self.of_replica

    def of_replica(self) -> Any:
        """A copy of the part for another device, as nn.DataParallel makes it."""
        copied: Any = nn.Module._replicate_for_data_parallel
        replica: nn.Module = copied(self.part)
        Within(replica).put()
        return replica


class FusedSequential(nn.Sequential):
    """An nn.Sequential with its graph beside its layers: who goes through these one by one does not meet it. Mixed into
    classes of sequences.
    """

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

    def __reduce_ex__(self, protocol: Any) -> Any:
        kind = next(kind for kind in type(self).__mro__[1:] if not issubclass(kind, FusedSequential))
        return _again, (kind,), vars(self)


@cache
def _sequential(kind: Any) -> type[nn.Sequential]:
    """A class of sequences, with its graph beside its layers."""
    return type(kind.__name__, (FusedSequential, kind), {})


def _again(kind: type[nn.Sequential]) -> nn.Sequential:
    """One that was pickled or copied, without its state."""
    made = _sequential(kind)  # type: ignore[arg-type]
    return made.__new__(made)


def _fuse_parts(model: nn.Module, halves: bool, dense: bool) -> bool:
    """Fuse the largest parts of a model that can be traced, in their places; whether there was anything to fuse."""
    found = False
    if _goes_through(model):
        return found
    for part in model.children():
        if "forward" in vars(part):  # it is in several places
            continue
        graph = _graph_of(part)
        made = None if graph is None else _part(part, graph, halves, dense)
        if made is None:
            found |= _fuse_parts(part, halves, dense)
            continue
        traced, is_fused = made
        if is_fused:
            part.add_module(PART, traced)
            Within(part).put()
            if isinstance(part, nn.Sequential):
                part.__class__ = _sequential(type(part))  # type: ignore[arg-type]
            found = True
    return found


def _goes_through(model: nn.Module) -> bool:
    """Whether a model asks for the parts of its parts where it computes, as far as its source says: it would meet
    graphs among them.
    """
    for name, function in inspect.getmembers(type(model), inspect.isfunction):
        if name.startswith("forward") and not function.__module__.startswith("torch.nn"):
            try:
                source = inspect.getsource(function)
            except (OSError, TypeError):
                continue
            if _ASKS_FOR_PARTS.search(source):
                return True
    return False


def _part(part: nn.Module, graph: fx.Graph, halves: bool, dense: bool) -> tuple[fx.GraphModule, bool] | None:
    """What `_fused` makes of it; None where a graph says what Python cannot."""
    try:
        return _fused(part, graph, halves, dense)
    except Exception:
        return None


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
        hung = any(vars(m).get(name) for name in HOOKS)  # hooks are given values, and not what stands for them here
        return isinstance(m, LEAVES) or hung or super().is_leaf_module(m, module_qualified_name)
