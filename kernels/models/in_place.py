"""What nodes of torch.fx graphs write into: such a graph says which node reads which, and nothing of that.

A call in the place of several nodes stands where the last of them does, and reads there what the first one read: that
is the same only where nothing between them writes into it. And what writes may be there for that alone, read by nobody.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode

from . import kept

_OPERATORS = (
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
    operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
)  # fmt: skip


def _function(name: str, does: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any) -> Any:
        return does(x, y)

    function.__name__ = function.__qualname__ = name
    return function


# The same as functions of this module. Python's own would be written as statements by torch.fx, of which a number,
# that cannot be written into, is another one afterwards wherever it is read.
in_place = {f"in_place_{does.__name__}": _function(f"in_place_{does.__name__}", does) for does in _OPERATORS}
globals().update(in_place)

ADDITIONS = (operator.add, torch.add, operator.iadd, in_place["in_place_iadd"])
_WRITING = {operator.setitem, *_OPERATORS, *in_place.values()}
# As methods, which a tensor that a trace knows calls with values that it does not.
_DUNDER = {"__setitem__", *(f"__{does.__name__}__" for does in _OPERATORS)}
DEVICES = ("cuda", "cpu")  # whose autocast is looked at
_ALLOCATING = (nn.modules.conv._ConvNd, nn.modules.batchnorm._BatchNorm, nn.Linear)  # their results are new tensors

_OURS = "tapestry.kernels."
_SAYING = ("torch.", "torchvision.", "timm.", _OURS)
_COMPUTING = {operator.add, operator.sub, operator.mul, operator.truediv, torch.add, torch.sub, torch.mul}  # likewise


class Proxy(fx.Proxy):
    """A value that is traced. That of torch.fx takes `x += y` for `x = x + y`, which writes into nothing.

    A model that sets its attributes cannot be traced. One that asks whether it is a Tensor is told that it is not.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("tracer", "node"):
            raise fx.proxy.TraceError(f"attribute {name} of a tensor is set")
        object.__setattr__(self, name, value)


def _method(function: Callable[[Any, Any], Any]) -> Callable[[fx.Proxy, Any], fx.Proxy]:
    def method(self: fx.Proxy, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return method


for _name, _made in in_place.items():
    setattr(Proxy, f"__{_name.removeprefix('in_place_')}__", _method(_made))


_NUMBERS = {
    Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__float__, Tensor.__int__, Tensor.__index__, Tensor.__repr__,
    Tensor.equal, Tensor.allclose, Tensor.is_nonzero, Tensor.numpy, torch.equal, torch.allclose, torch.is_nonzero,
}  # fmt: skip


class Reading(TorchFunctionMode):
    """Sees numbers that are read out of tensors."""

    found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What a function of torch's gives."""
        self.found |= func in _NUMBERS and not any(type(one) is Proxy for one in args)
        return func(*args, **(kwargs or {}))


def is_of_class(layer: nn.Module) -> bool:
    """Whether a layer computes what its class says, and not what was put in the place of that, but by us."""
    forward = vars(layer).get("forward")
    return forward is None or bool(getattr(forward, "of_class", False))


class Tracer(fx.Tracer):
    """One whose graphs have what is written in place, and which leaves models as they were.

    An operand with a default is traced as left out, or as `given`: its forward may do one thing or the other, and a
    graph says one. Of the model that was traced last, `optional` are the placeholders of those; `kept` is what it would
    have been left with: no graph says that; `constants` are tensors that its forward made of none of its operands, as
    they were made once: attributes that its graph reads; and `regions` are the nodes that are computed without
    gradients, or with another autocast, than the rest: no graph says that either. `read` is whether a number was read
    out of a tensor of the model's, which a graph has as it was.
    """

    def __init__(self, given: bool = True) -> None:  # so torch.fx makes one where a pickled graph is traced again
        super().__init__()
        self.given, self.kept = given, kept.NOTHING
        self.optional: list[fx.Node] = []
        self.constants: dict[str, Any] = {}
        self.regions: set[fx.Node] = set()
        self._modes, self._branched, self.read = _modes(), False, False

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        """The graph of a module or of a function."""
        self.kept, self.constants, self.optional = kept.NOTHING, {}, []
        self.regions, self._modes, self._branched = set(), _modes(), False
        if not isinstance(root, nn.Module):
            return super().trace(root, concrete_args)
        if not is_of_class(root):  # torch.fx would not call it
            raise fx.proxy.TraceError("its forward is not that of its class")
        state, known = kept.State(root), set(vars(root))
        try:
            with Reading() as reading:
                graph = super().trace(root, concrete_args)
            self.read = reading.found
            if self._branched:
                raise fx.proxy.TraceError("it goes on after a control flow of values was refused")
            made = {str(node.target) for node in graph.find_nodes(op="get_attr")} & vars(root).keys() - known
            self.constants = {name: vars(root).pop(name) for name in sorted(made)}
            return graph
        finally:
            self.kept = state.put_back()

    def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *more: Any, **named: Any) -> Any:
        """A value of the graph; of an operand that is left out, its default."""
        made = super().create_proxy(kind, target, args, kwargs, *more, **named)
        if _modes() != self._modes:
            self.regions.add(made.node)
        if kind == "placeholder" and args:
            self.optional.append(made.node)
            return made if self.given else args[0]
        return made

    def to_bool(self, obj: fx.Proxy) -> bool:
        """A value cannot decide anything; nor may it be tried whether it does."""
        self._branched = True
        return super().to_bool(obj)

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """The same of a loop."""
        before, self._branched = self._branched, True
        found: Iterator[Any] = super().iter(obj)
        self._branched = before
        return found

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """The value of a node."""
        return Proxy(node, self)


def _modes() -> tuple[Any, ...]:
    """Whether gradients are recorded, and what autocast does."""
    lowered = ((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in DEVICES)
    return torch.is_grad_enabled(), *lowered


def writes(node: fx.Node, root: nn.Module | None) -> bool:
    """Whether a node writes into what it is given; `root` holds the modules that are called, where there are any.

    By torch's names: methods and functions that end with an underscore, and what is told to work in place. And layers
    of a user's that are called without a look into them.
    """
    if node.op == "call_module":
        layer = None if root is None else root.get_submodule(str(node.target))
        return layer is not None and (bool(getattr(layer, "inplace", False)) or not _says_so(layer))
    if node.op not in ("call_method", "call_function"):
        return False
    known = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    name, *_ = str(known).split(".")  # of an operator's overload
    if node.op == "call_method" and name in _DUNDER:
        return True
    named = name.endswith("_") and not name.endswith("__") and getattr(node.target, "__module__", "") != "_operator"
    return named or node.target in _WRITING or bool(_given(node, "inplace")) or node.kwargs.get("out") is not None


def _says_so(layer: nn.Module) -> bool:
    """Whether a layer is of a package whose layers say that they write in place. One with parts has none of its own."""
    return type(layer).__module__.startswith(_SAYING) or next(layer.children(), None) is not None


def says_it_writes_nothing(layer: nn.Module) -> bool:
    """Whether neither a layer nor a part of it writes in place, as far as they say."""
    return all(_says_so(part) and not getattr(part, "inplace", False) for part in layer.modules())


def _given(node: fx.Node, name: str) -> Any:
    """An operand of a function of Python's, by its name."""
    code = getattr(node.target, "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    place = names.index(name) if name in names else len(node.args)
    return node.args[place] if place < len(node.args) else node.kwargs.get(name)


def makes_new(root: nn.Module | None, node: fx.Node) -> bool:
    """Whether a node's value is a tensor of its own, which one node reads: a layer's of ours, too."""
    if len(node.users) != 1:
        return False
    if node.op == "call_module" and root is not None:
        layer = root.get_submodule(str(node.target))
        return isinstance(layer, _ALLOCATING) or type(layer).__module__.startswith(_OURS)
    if node.op != "call_function":
        return False
    written = node.args[0] if node.target in in_place.values() else None
    return node.target in _COMPUTING or (isinstance(written, fx.Node) and makes_new(root, written))


def undisturbed(start: fx.Node, end: fx.Node, own: Collection[fx.Node], root: nn.Module | None) -> bool:
    """Whether nothing between two nodes of a graph writes into what was there before.

    Not counted are what is their `own`, and layers that write into the result of a layer between them.
    """
    node, new = start.next, set[fx.Node]()
    while node is not end:
        module = root.get_submodule(str(node.target)) if node.op == "call_module" and root is not None else None
        if isinstance(module, _ALLOCATING) or (isinstance(module, nn.Identity) and node.args[0] in new):
            new.add(node)
        elif node not in own and writes(node, root):
            if module is None or node.args[0] not in new:
                return False
            new.add(node)
        node = node.next
    return True


def without_unread(graph: fx.Graph, root: nn.Module) -> None:
    """Take the nodes that nobody reads, and what they alone read, out of a graph, but for those that write."""
    graph.eliminate_dead_code(lambda node: writes(node, root) or node.is_impure())
