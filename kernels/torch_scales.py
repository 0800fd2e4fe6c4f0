"""Layer scales of a model in training, each with the residual that is added behind it: one launch, two backward.

    before:  y = residual + drop(x * gamma)
    after:   y = scaled_sum(x, gamma, residual, factors_of(drop, x, gamma))

gamma is a number a channel. Under autocast x is a half, gamma f32, and so is all that follows: torch passes over eleven
tensors there, forward and backward, most of them f32, where kernels (`normalization/scaled_sum.cu`) pass over six.
Stochastic depth, which drops whole images, is a factor of each. What is no plain CUDA tensor, dense, is torch's, and
so is all under torch.compile, which fuses it by itself.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from . import torch_autograd, torch_native
from .normalization import scaled_sum as kernels
from .normalization.scaled_sum import Operands, ScaleKind
from .runtime import moving
from .runtime.stream import torch_stream
from .torch_calls import REMEMBERED
from .torch_hooks import bare
from .torch_in_place import ADDITIONS, says_it_writes_nothing, undisturbed, writes
from .torch_norm_calls import DTYPES, prepared
from .torch_norm_sums import Graphs, Rewritten, called_in, rewrite
from .torch_operands import ALIGNED
from .torch_recorded import applied

_torch: Any = torch  # what is not typed by torch
MOST_ROWS = 1 << 31  # that kernels count
_LAYERS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.modules.conv._ConvNd, nn.Linear)


def factors_of(drop: Any, x: Any, gamma: Any) -> Any:
    """What stochastic depth multiplies each image of x * gamma with, [n, 1, ...], drawn as it draws it; None where it
    drops nothing. Of what is traced, `drop` itself.
    """
    if not isinstance(x, Tensor):
        return drop
    if not drop.training or not _rate(drop):
        return None
    first, *rest = _torch.broadcast_shapes(x.shape, gamma.shape)
    return drop(x.new_ones((first, *(1 for _ in rest)), dtype=torch.promote_types(x.dtype, gamma.dtype)))


def scaled_sum(x: Any, gamma: Any, residual: Any, factors: Any = None) -> Any:
    """x * gamma * factors + residual. gamma is [c], of the last dimension of x, or [..., c, 1, 1] of images."""
    if isinstance(x, Tensor) and not torch.compiler.is_compiling() and not _tracing() and _is_worth_it(gamma):
        native = torch_native.scaled_sum
        if native is not None and (known := native(x, gamma, residual, factors)) is not None:
            return known
        given = (x, gamma, residual) if factors is None else (x, gamma, residual, factors)
        if torch_autograd.plain(*given) and (plan := _plan(*given)) is not None and not _odd(x, residual):
            if torch.is_grad_enabled():
                return _recorded(x, gamma, residual, factors, plan)
            return plan.run_forward(x, gamma, residual, factors)
    return _by_torch(x, gamma, residual, factors)


def scaled_sum_into(x: Any, gamma: Any, residual: Any, factors: Any = None) -> Any:
    """The same, where the sum is written into the product, and keeps its type."""
    if isinstance(x, Tensor):
        product = torch.promote_types(x.dtype, gamma.dtype)
        if torch.promote_types(product, residual.dtype) is product:
            return scaled_sum(x, gamma, residual, factors)
    y = _product(x, gamma, factors)
    y += residual
    return y


def _is_worth_it(gamma: Tensor) -> bool:
    """Whether the sum of its gradient is wanted: without it torch keeps no x."""
    return gamma.requires_grad or not torch.is_grad_enabled()


_tracing = _torch._C._is_tracing


def _by_torch(x: Any, gamma: Any, residual: Any, factors: Any) -> Any:
    return _product(x, gamma, factors) + residual


def _product(x: Any, gamma: Any, factors: Any) -> Any:
    y = x * gamma
    if factors is not None:
        y = factors(y) if isinstance(factors, nn.Module) else y * factors
    return y


def _odd(*tensors: Tensor) -> bool:
    return any(tensor.data_ptr() & ALIGNED for tensor in tensors)


class _Plan:
    """One kind of call: its kernels, its cut, and its launches, once they are prepared."""

    def __init__(self, kind: ScaleKind, x: Tensor, added: torch.dtype, result: torch.dtype, channels: int) -> None:
        """`added` is the residual's type, `result` that of y."""
        from .runtime.device import properties

        self.device: int = x.get_device()
        self.kind, self.added, self.result, rows = kind, added, result, x.numel() // channels
        self.pixels = rows // x.shape[0]
        self.cut = kind.cut(rows, channels, properties(self.device).sms)
        self.forward: moving.Launches | None = None
        self.gradient: moving.Launches | None = None
        self._told: set[torch_native.NormCall] = set()

    def _tell(self, what: torch_native.NormCall, call: tuple[Any, ...], room: int, launches: moving.Launches) -> None:
        """Have the extension make such calls from here on, if it is there."""
        if torch_native.scaled_sum is not None and what not in self._told:
            self._told.add(what)
            torch_native.learn_norm(what, call, room, launches)

    def run_forward(self, x: Tensor, gamma: Tensor, residual: Tensor, factors: Tensor | None) -> Tensor:
        """y, which lies in memory as x does."""
        y, wide = torch.empty_like(x, dtype=self.result), _wide(factors)
        at = _addresses(x, gamma, residual, y, *wide)
        if self.forward is None:

            def described(x: int, gamma: int, residual: int, y: int, factors: int = 0) -> Any:
                return kernels.forward(self.cut, Operands(x, gamma, factors, self.pixels), residual, y)

            self.forward = moving.launches(lambda at: prepared(self.kind, described(*at), self.device), at)
        self.forward.run(at, torch_stream(self.device))
        self._tell("scaled_sum", (x, gamma, residual, factors), 0, self.forward)
        return y

    def run_gradient(self, x: Tensor, dy: Tensor, gamma: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
        """Of x and gamma."""
        dx, to_gamma = torch.empty_like(x), torch.empty_like(gamma, memory_format=torch.contiguous_format)
        room, wide = x.new_empty(kernels.workspace(self.cut), dtype=torch.float32), _wide(factors)
        at = _addresses(x, dy, gamma, dx, to_gamma, room, *wide)
        if self.gradient is None:

            def described(x: int, dy: int, gamma: int, dx: int, to_gamma: int, room: int, factors: int = 0) -> Any:
                return kernels.gradient(self.cut, Operands(x, gamma, factors, self.pixels), dy, dx, to_gamma, room)

            self.gradient = moving.launches(lambda at: prepared(self.kind, described(*at), self.device), at)
        self.gradient.run(at, torch_stream(self.device))
        call = (x, gamma, x.new_empty(0, dtype=self.added), factors)
        self._tell("scaled_sum_gradient", call, kernels.workspace(self.cut), self.gradient)
        return dx, to_gamma


def _wide(factors: Tensor | None) -> tuple[Tensor, ...]:
    """As kernels take them: f32."""
    return () if factors is None else (factors.float(),)


def _addresses(*tensors: Tensor) -> tuple[int, ...]:
    return tuple([tensor.data_ptr() for tensor in tensors])


_plans: dict[tuple[Any, ...], _Plan | None] = {}


def _plan(x: Tensor, gamma: Tensor, residual: Tensor, factors: Tensor | None = None) -> _Plan | None:
    """None for what is torch's."""
    dropped = None if factors is None else (factors.shape, factors.stride())
    devices = (x.get_device(), gamma.get_device(), residual.get_device())
    key = (
        x.shape, x.stride(), x.dtype, gamma.shape, gamma.stride(), gamma.dtype, residual.shape, residual.stride(),
        residual.dtype, dropped, devices,
    )  # fmt: skip
    if key not in _plans:
        torch_native.begin()
        if len(_plans) >= REMEMBERED:
            _plans.clear()
            torch_native.forget("scales")
        _plans[key] = _made(x, gamma, residual, factors)
    return _plans[key]


def _made(x: Tensor, gamma: Tensor, residual: Tensor, factors: Tensor | None) -> _Plan | None:
    images = gamma.dim() in (3, 4)
    if not images and gamma.dim() != 1:
        return None
    memory = torch.channels_last if images else torch.contiguous_format
    if x.dim() != (4 if images else max(2, x.dim())) or not x.numel() or residual.shape != x.shape:
        return None
    channels = x.shape[1 if images else -1]
    shape = (*(1,) * (gamma.dim() - 3), channels, 1, 1) if images else (channels,)
    if tuple(gamma.shape) != shape or not gamma.is_contiguous() or x.numel() // channels >= MOST_ROWS:
        return None
    if not all(each.is_contiguous(memory_format=memory) and each.stride() == x.stride() for each in (x, residual)):
        return None
    if len({each.get_device() for each in (x, gamma, residual)}) != 1:
        return None
    if factors is not None and (factors.numel() != x.shape[0] or not factors.is_contiguous()):
        return None
    result = torch.promote_types(torch.promote_types(x.dtype, gamma.dtype), residual.dtype)
    named = [DTYPES.get(of) for of in (x.dtype, residual.dtype, result, gamma.dtype)]
    types = [each for each in named if each is not None]
    if len(types) < len(named):
        return None
    return _Plan(ScaleKind.of(channels, *types, factors=factors is not None), x, residual.dtype, result, channels)


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma: Tensor, residual: Tensor, factors: Tensor | None, plan: _Plan) -> Tensor:
        ctx.save_for_backward(x, gamma, factors)
        ctx.added, ctx.plan = residual.dtype, plan
        return plan.run_forward(x, gamma, residual, factors)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, gamma, factors = ctx.saved_tensors
        return *_gradients(ctx.plan, x, dy, gamma, factors), dy.to(ctx.added), None, None


_recorded = applied(_Recorded)


def _gradients(plan: _Plan, x: Tensor, dy: Tensor, gamma: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of x and gamma."""
    if torch.is_grad_enabled() or not torch_autograd.direct(dy) or torch_autograd._batched(dy):
        return _differentiable(x, dy, gamma, factors)
    if dy.stride() != x.stride() or _odd(dy):
        dy = torch.empty_like(x, dtype=dy.dtype).copy_(dy)
    return plan.run_gradient(x, dy, gamma, factors)


def scaled_sum_backward_of(
    x: Tensor, dy: Tensor, gamma: Tensor, factors: Tensor | None, like: Tensor
) -> tuple[Tensor, Tensor]:
    """The same as the extension asks for it; `like` is of the residual's type."""
    given = (x, gamma, torch.empty_like(x, dtype=like.dtype))
    plan = _plan(*given) if factors is None else _plan(*given, factors)
    assert plan is not None  # the forward pass had one
    return _gradients(plan, x, dy, gamma, factors)


def _differentiable(x: Tensor, dy: Tensor, gamma: Tensor, factors: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradients of x and gamma by torch's functions, whose own derivatives may be asked for."""
    slopes = dy if factors is None else dy * factors
    products, over = slopes * x, [d for d in range(x.dim()) if d != (x.dim() - 1 if gamma.dim() == 1 else 1)]
    return (slopes * gamma).to(x.dtype), products.sum(over).reshape(gamma.shape).to(gamma.dtype)


# -- models ------------------------------------------------------------------------------------------------------------


def scale_kinds(model: nn.Module, dtype: torch.dtype) -> list[ScaleKind]:
    """The kernels that the layer scales of a model in training ask for, of activations of a type."""
    named, found = DTYPES.get(dtype), []
    for part in model.modules():
        made = vars(part).get("forward")
        known = made.known.values() if isinstance(made, Rewritten) else ()
        if not named or not any(one is scaled_sum or one is scaled_sum_into for one in known):
            continue
        dropping = any(_is_drop(child) and child.training and _rate(child) for child in part.children())
        for gamma in _gammas(part):
            own = DTYPES.get(gamma.dtype)
            if own is not None:
                wide = "f32" if "f32" in (own, named) else named
                sums = dict.fromkeys([(wide, wide), (named, wide)])
                found += [ScaleKind.of(gamma.numel(), named, *types, own, factors=dropping) for types in sums]
    return list(dict.fromkeys(found))


def fuse_layer_scales(model: nn.Module) -> list[str]:
    """Have kernels compute the layer scales of `model` and the sums behind them, in place: the names of the blocks.

    Taken are sums in a block of a residual and of what a parameter of the block, or timm's LayerScale, multiplies by
    channels, with timm's DropPath or torchvision's StochasticDepth between them or nothing. The block computes from
    then on what its trace says, with its own parts, as `fuse_norms` has it.
    """
    taken, graphs = [], Graphs()
    for name, block in model.named_modules():
        if "forward" in vars(block) or not bare(block) or next(_gammas(block), None) is None:
            continue
        graph = graphs.of(block, frozenset())
        if graph is None:
            continue
        before, count = called_in(graph), 0
        while (found := next(_sums(block, graph), None)) is not None:
            _rewrite(block, graph, found)
            count += 1
        if count:
            rewrite(block, graph, before)
            taken.append(name)
    return taken


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
    """Nodes of a graph: the sum, what drops, if anything, and the product; and their operands. `moved`: channels, the
    last dimension of the product, become the second one of images behind it.
    """

    total: fx.Node
    drop: fx.Node | None
    scale: fx.Node
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
    drop, moved, scale = None, False, summand
    while len(scale.users) == 1 and scale.args and isinstance(scale.args[0], fx.Node):
        layer = block.get_submodule(str(scale.target)) if scale.op == "call_module" and len(scale.args) == 1 else None
        if layer is not None and drop is None and _is_drop(layer):
            drop = scale
        elif not moved and scale.op == "call_method" and scale.target == "permute" and _order(scale) == (0, 3, 1, 2):
            moved = True
        elif type(layer) is not nn.Identity or not bare(layer):
            break
        scale = scale.args[0]
    x = _scaled(block, scale, moved) if len(scale.users) == 1 else None
    own = [each for each in (total, drop, scale) if each is not None]
    if x is None or not undisturbed(scale, total, own, block) or not _quiet(block, scale, total):
        return None
    return _Sum(total, drop, scale, x, residual, moved)


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
    if not isinstance(node, fx.Node) or node.op != "get_attr" or "." in str(node.target):
        return False
    value = getattr(block, str(node.target), None)
    if not isinstance(value, nn.Parameter) or value.numel() != max(value.shape, default=0):
        return False
    return value.dim() == 1 or not last


def _rewrite(block: nn.Module, graph: fx.Graph, found: _Sum) -> None:
    """One call in the place of product, drop and sum."""
    total, drop, scale, x, residual, moved = found
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
    node: Any = total
    while node is not x:  # with the identities between them
        before = (
            x
            if node is scale
            else next(each for each in node.args if each is not residual)
            if node is total
            else node.args[0]
        )
        graph.erase_node(node)
        node = before
