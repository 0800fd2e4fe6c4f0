"""Squeeze-and-excitation of a model in training: y = x * gate(mean of x over each image), the gate a part of the model.

    before:  m = x.mean((2, 3), keepdim=True);  y = x * gate(m)
    after:   x, m, link = squeezed(x);          y = excited(x, gate(m), link)

Torch makes fifteen passes over x and tensors of its size, forward and backward; here they are seven. x is handed from
`squeezed` to `excited`, and its gradient back, which is dy until `squeezed` knows the mean's too:

    dx = dy * gate + dm / pixels        one pass, in the backward of `squeezed`

The gradients of plain channels-last CUDA tensors are computed by kernels (`normalization/images.cu`); all else is
torch's, in evaluation and under torch.compile too.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn

from . import torch_autograd, torch_native
from .normalization.images import ImageKind
from .torch_hooks import bare
from .torch_image_calls import launched, worth_it
from .torch_norm_calls import DTYPES, computed, fetchable
from .torch_norm_sums import Graphs, Rewritten, rewrite
from .torch_recorded import applied, no_second_derivative


class Link:
    """What `excited` tells the gradient of `squeezed`: the gate."""

    __slots__ = ("gate",)

    def __init__(self) -> None:
        self.gate: Tensor | None = None


def squeezed(x: Tensor) -> tuple[Tensor, Tensor, Any]:
    """x, its mean over each image [n, c, 1, 1], and what connects it with `excited`, which alone may take the x."""
    native = None if torch.compiler.is_compiling() else torch_native.squeezed
    if native is not None and (made := native(x)) is not None:
        return made
    if not isinstance(x, Tensor) or not torch.is_grad_enabled() or not x.requires_grad or not _fits(x):
        return x, x.mean((-2, -1), keepdim=True), None
    link = Link()
    passed, mean = _squeeze(x, link)
    return passed, mean, link


def excited(x: Tensor, gate: Tensor, link: Any) -> Tensor:
    """x * gate."""
    if link is None:
        return x * gate
    native = torch_native.excited
    if native is not None and (known := native(x, gate, link)) is not None:
        return known
    if gate.shape != (*x.shape[:2], 1, 1) or gate.dtype is not x.dtype:  # torch's, once the gradient is x's own again
        link.gate = torch.ones_like(x[:, :, :1, :1])
        return x * gate
    made: Tensor = _excite(x, gate, link)
    return made


def _fits(x: Tensor) -> bool:
    if torch.compiler.is_compiling() or not torch_autograd.plain(x) or not computed(x) or not x.numel():
        return False
    return worth_it(x)


class _Squeeze(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, link: Link) -> tuple[Tensor, Tensor]:
        ctx.link = link
        mean = x.new_empty((*x.shape[:2], 1, 1))
        launched("means", x, mean)
        return x.view_as(x), mean

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dm: Tensor) -> tuple[Tensor, None]:
        return squeeze_backward_of(dy, dm, ctx.link.gate), None


class _Excite(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, link: Link) -> Tensor:
        link.gate = gate = gate.detach().contiguous()
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        launched("scaled", x, gate, y)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None]:
        (x,) = ctx.saved_tensors
        return *excite_backward_of(x, dy), None


def squeeze_backward_of(dy: Tensor, dm: Tensor, gate: Tensor) -> Tensor:
    """The gradient of what was squeezed, as the extension asks for it too."""
    _once()
    dy = fetchable(dy)
    dx = torch.empty_like(dy)
    launched("mapped", dy, gate, dm.contiguous(), dx)
    return dx


def excite_backward_of(x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Of what is excited, until `squeezed` knows its gradient, and of the gate; likewise."""
    _once()
    dy, dgate = fetchable(dy), x.new_empty((*x.shape[:2], 1, 1))
    launched("products", fetchable(x), dy, dgate)  # what keeps tensors elsewhere may give them back as it likes
    return dy, dgate


_squeeze = applied(_Squeeze)
_excite = applied(_Excite)


def _once() -> None:
    """Gradients are not recorded: what is between the two is known to neither of them."""
    if torch.is_grad_enabled():
        raise no_second_derivative("squeeze-and-excitation", "fuse_excitations")


# -- models ------------------------------------------------------------------------------------------------------------


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
    """
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
