"""What follows a convolution in a torch.fx graph and can be one launch with it: chains, and who reads them.

A chain's values have one reader each, but for the last:

    convolution -> [batch norm] -> [+ residual] -> [relu, silu, gelu or hardswish]
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..layers.activations import ACTIVATIONS
from .hooks import bare
from .in_place import ADDITIONS, makes_new, undisturbed, writes

_functions = nn.functional
IDENTITIES = (nn.Identity, nn.Dropout, nn.Dropout2d)
ACTIVATION_FUNCTIONS: dict[Any, str] = {
    _functions.relu: "relu",
    torch.relu: "relu",
    _functions.silu: "silu",
    _functions.gelu: "gelu",
    _functions.hardswish: "hardswish",
}
ACTIVATION_LAYERS = {kind: name for kind, name in ACTIVATIONS.items() if name in ACTIVATION_FUNCTIONS.values()}
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
        if self.passes_on(reader):
            return chain.and_then(reader)
        if chain.activation:
            return None
        if activation := self._activation(reader):
            return chain.and_then(reader, activation=activation)
        if chain.residual is not None:
            return None
        if chain.norm is None and (norm := self.norm(reader, chain.end)):
            return chain.and_then(reader, norm=norm)
        other = self._added(reader, chain.end)
        return None if other is None else chain.and_then(reader, residual=other)

    def _only_reader(self, node: fx.Node) -> fx.Node | None:
        readers = list(node.users)
        return readers[0] if len(readers) == 1 and readers[0].op != "output" else None

    def passes_on(self, node: fx.Node) -> bool:
        """Whether a node gives what it is given."""
        module = self.module(node)
        return isinstance(module, IDENTITIES) and not module.training and bare(module)

    def norm(self, node: fx.Node, given: fx.Node) -> Norm | None:
        """The batch norm in evaluation that a node is of another's result; None where it is something else."""
        module = self.module(node)
        if module is not None and not bare(module):
            return None
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
        if first is other and writes(node, self.root) and not makes_new(self.root, other):
            return None  # others may read the sum, too
        return other

    def _activation(self, node: fx.Node) -> str:
        module = self.module(node)
        if isinstance(module, nn.GELU) and module.approximate != "none":
            return ""
        if module is not None:
            return ACTIVATION_LAYERS.get(type(module), "") if bare(module) else ""
        if node.op == "call_method" and node.target in ("relu", "relu_"):
            return "relu"
        exact = node.kwargs.get("approximate", "none") == "none"
        return ACTIVATION_FUNCTIONS.get(node.target, "") if node.op == "call_function" and exact else ""


def _same_extents(node: fx.Node, given: fx.Node) -> bool:
    """Whether a sum is as large as one of its summands, where the graph knows."""
    total, one = (found.meta.get("example_value") for found in (node, given))
    return total is None or one is None or bool(total.shape == one.shape)


# -- models ------------------------------------------------------------------------------------------------------------
