"""Batch norms of a model in training, each with the activation behind it: the layer, and a swap of a model's layers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from . import torch_autograd, torch_native, torch_norm_calls, torch_norm_operators
from .normalization.batch_norm import NormKind
from .torch_hooks import bare
from .torch_in_place import DEVICES, Tracer
from .torch_norm_library import Norm, Running, are_taken, parameter_type

_torch: Any = torch  # what is not typed by torch
ACTIVATIONS: dict[type, str] = {
    nn.Identity: "",
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
    nn.Hardswish: "hardswish",
}


def activation_name(module: nn.Module) -> str | None:
    """What the kernels call an activation of torch; None for one that they do not compute."""
    named = {"GELU": "gelu"} if type(module).__module__.startswith("timm.layers.") else {}  # the exact one, as torch's
    found = named.get(type(module).__name__, ACTIVATIONS.get(type(module)))
    return None if found == "gelu" and getattr(module, "approximate", "none") != "none" else found


class NormAct2d(nn.BatchNorm2d):
    """nn.BatchNorm2d and what follows it: `act(norm(x))`, and of `(x, residual)` `act(norm(x) + residual)`.

    In training, of dense channels-last CUDA tensors of f16, bf16 or f32 with parameters and buffers of f32 or of that
    type, the kernels compute both in one pass over x after the one for the statistics, and keep x alone for the
    gradients, in two passes as well.
    All else is torch's: evaluation, other tensors, tracing.
    """

    summed = False  # whether its activation is that of a sum with a residual: without one it has none
    written: Literal["", "norm", "residual"] = ""  # which summand the sum was written into, and has the type of

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm, act: nn.Module) -> None:
        """With the parameters and buffers of `norm`, which are shared."""
        settings: dict[str, Any] = {"eps": norm.eps, "momentum": norm.momentum, "affine": norm.affine}
        track = norm.track_running_stats
        super().__init__(norm.num_features, track_running_stats=track, device="meta", **settings)
        self._parameters, self._buffers = dict(norm._parameters), dict(norm._buffers)
        self._non_persistent_buffers_set = set(norm._non_persistent_buffers_set)
        self.act, self.activation = act, activation_name(act)
        self.train(norm.training)

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        """[n, c, h, w]."""
        alone = self.summed and residual is None
        if self.training or self.running_mean is None:
            # Not by a set, whose order, which is another one in every process, a graph that is kept would have.
            fits = "weight" in self._parameters and "bias" in self._parameters
            fits = fits and (residual is None or isinstance(residual, Tensor))
            made = self._fused(input, residual, "" if alone else self.activation) if fits else None
            if made is not None:
                return made
            y = super().forward(input)
        else:  # as `fuse_for_inference` traces it
            _torch._assert(input.ndim == 4, "images [n, c, h, w]")
            known = (self.running_mean, self.running_var, self.weight, self.bias)
            y = nn.functional.batch_norm(input, *known, False, 0.0, self.eps)
        if alone:
            return y
        if residual is not None:
            if self.written == "norm":
                y += residual
            elif self.written == "residual":
                residual += y
                y = residual
            else:
                y = y + residual
        result: Tensor = self.act(y)
        return result

    def _fused(self, x: Tensor, residual: Tensor | None, activation: str | None) -> Tensor | None:
        """The same by the kernels; None where that is torch's."""
        parameters, buffers = self._parameters, self._buffers
        weight, bias = parameters["weight"], parameters["bias"]
        # Asked first: a graph that is being traced would depend on whether the extension is there, which it soon is.
        compiling = torch.compiler.is_compiling()
        if not compiling and torch_native.norm is not None and activation is not None:
            setting = torch_norm_calls.setting_of(self.eps, activation)
            made = self._native(torch_native.norm, x, residual, weight, bias, setting)
            if made is not None:
                return made
        plain = compiling or (torch_autograd.plain(x) if residual is None else torch_autograd.plain(x, residual))
        if activation is None or not plain:
            return None
        norm, running = Norm(weight, bias, self.eps, activation), None
        known: list[Tensor | None] = [weight, bias]
        if self.training and self.track_running_stats:
            mean, variance, batches = buffers["running_mean"], buffers["running_var"], buffers["num_batches_tracked"]
            if mean is None or variance is None or batches is None:
                return None
            running = Running(mean, variance, batches, self.momentum)
            known += [mean, variance]
        if not _fits(x, residual, *known):
            return None
        if compiling:
            return _traced(x, residual, norm, running)
        if any(one is not None and one.get_device() != x.get_device() for one in known):
            return None
        return torch_norm_operators.direct(x, residual, norm, running)

    def _native(
        self,
        norm: Callable[..., Tensor | None],
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        setting: int,
    ) -> Tensor | None:
        """By the extension, where it knows the call."""
        buffers = self._buffers
        if not (self.training and self.track_running_stats):
            return norm(x, residual, weight, bias, None, None, None, setting, 0.0)
        known = (buffers["running_mean"], buffers["running_var"], buffers["num_batches_tracked"])
        return norm(x, residual, weight, bias, *known, setting, torch_norm_calls.momentum_of(self.momentum))

    def extra_repr(self) -> str:
        settings: str = super().extra_repr()  # type: ignore[no-untyped-call]
        return f"{settings}, activation={self.activation or None}"


def _traced(x: Tensor, residual: Tensor | None, norm: Norm, running: Running | None) -> Tensor:
    """By an operator."""
    y: Tensor
    if running is None:
        y, _ = torch_norm_operators.operator(x, residual, *norm)
    else:
        weight, bias, *settings = norm
        *known, momentum = running
        share = torch_norm_calls.momentum_of(momentum)
        y, _ = torch_norm_operators.remembered(x, residual, weight, bias, *known, share, *settings)
    return y


def _fits(x: Tensor, residual: Tensor | None, *parameters: Tensor | None) -> bool:
    """Whether the kernels compute a call, and are predicted to take less time than torch."""
    if not torch_norm_calls.computed(x) or x.numel() <= x.shape[1]:
        return False
    if residual is not None and not (residual.shape == x.shape and residual.dtype is x.dtype):
        return False
    if residual is not None and not torch_norm_calls.computed(residual):
        return False
    return are_taken(parameters, parameter_type(*parameters), x, x.shape[1])


def lowered(example: Any) -> torch.dtype:
    """The type that autocast, where it is on, makes of what a model is called with."""
    first = example[0] if isinstance(example, tuple) else example
    where = first.device.type
    made: torch.dtype = torch.get_autocast_dtype(where) if torch.is_autocast_enabled(where) else first.dtype
    return made


def kinds(model: nn.Module, dtype: torch.dtype) -> list[NormKind]:
    """The kernels that the norms of a model in training ask for, of activations of a type."""
    named, found = torch_norm_calls.DTYPES.get(dtype), []
    for part in model.modules():
        if named and isinstance(part, NormAct2d) and part.activation is not None:
            learned, made = (part.weight, part.bias), (part.num_features, named, part.activation, part.summed)
            for given in ((*learned, part.running_mean), learned):  # that of the gradient knows of no statistics
                own = torch_norm_calls.DTYPES.get(parameter_type(*given))
                found += [NormKind.of(*made, own)] if own in ("f32", named) else []
    return list(dict.fromkeys(found))


# -- models ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FusedNorms:
    """What `fuse_norms` did: of every norm that was taken the activation computed with it, or none; and why others were
    left.
    """

    taken: dict[str, str]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{len(self.taken)} norms taken, {len(self.left)} left"]
        lines += [f"  {name}{f': with {activation}' if activation else ''}" for name, activation in self.taken.items()]
        return "\n".join([*lines, *(f"  {name}: left, {why}" for name, why in self.left.items())])


def fuse_norms(model: nn.Module) -> FusedNorms:
    """Swap the batch norms of `model` for `NormAct2d`, in place, each one with the activation that follows it.

    And its layer norms, nn.LayerNorm over one dimension and timm's LayerNorm and LayerNorm2d, for `FusedLayerNorm`, and
    timm's global response norms for `FusedResponseNorm`.

    Taken are nn.BatchNorm2d and timm's BatchNormAct2d. That an activation follows is seen in a torch.fx trace of the
    model, in training and in evaluation: every value of the norm goes to that layer alone, and it gets no others; its
    place is then an nn.Identity's. Where a block adds a residual first,
    norm, sum and activation are one, and the block computes what its trace says (`torch_norm_sums`). Parameters and
    buffers are shared with the old layers and keep their names, so state_dicts load as before. SyncBatchNorm is left
    alone: convert before, not after.
    """
    from .torch_norm_sums import fuse_sums
    from .torch_row_norms import fuse_row_norms

    followers, untraced = _followers(model)
    also = held(model)
    places = list(model.named_modules(remove_duplicate=False))
    swapped: dict[nn.Module, NormAct2d] = {}
    taken: dict[str, str] = {}
    left: dict[str, str] = {}
    for name, module in places:
        if not isinstance(module, nn.modules.batchnorm._BatchNorm) or isinstance(module, NormAct2d):
            continue
        reason = "it is the model itself: wrap it in a module" if module is model else _unfit(module)
        reason = reason or ("a list of the model's holds it, too" if module in also else None)
        if reason:
            left[name] = reason
            continue
        if module not in swapped:
            own: Any = module
            act = own.act if _own_activation(module) else followers.get(module) or nn.Identity()
            swapped[module] = NormAct2d(module, act)
        set_module(model, name, swapped[module])
        taken[name] = swapped[module].activation or ""
    hidden = {act for norm, act in followers.items() if norm in swapped}
    for name, module in places:
        if module in hidden:
            set_module(model, name, nn.Identity())
    summed = fuse_sums(model)
    taken |= {name: f"a residual and {summed[norm]}" for name, norm in model.named_modules() if norm in summed}
    if untraced and taken:
        left["(activations)"] = untraced
    rows, others = fuse_row_norms(model)
    taken |= dict.fromkeys(rows, "")
    left |= others
    return FusedNorms(taken, left)


def same_places(model: nn.Module, parts: Sequence[nn.Module]) -> bool:
    """Whether each of these has one place in a model: what is done to one is done for its place alone."""
    names = [part for _, part in model.named_modules(remove_duplicate=False)]
    return all(sum(part is other for other in names) == 1 for part in parts)


def set_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of that name."""
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, module)


def _own_activation(norm: nn.Module) -> bool:
    """Whether it is timm's, with an activation in it."""
    kind = type(norm)
    return kind.__module__ == "timm.layers.norm_act" and kind.__name__ == "BatchNormAct2d"


def _unfit(norm: nn.Module) -> str | None:
    """Why a batch norm is left to torch, or None."""
    timms = _own_activation(norm)
    act: Any = getattr(norm, "act", None)
    facts = {
        f"{type(norm).__name__}, whose forward may differ": timms or type(norm) is nn.BatchNorm2d,
        "hooks or parametrizations hang on it": bare(norm) and (not timms or bare(act)),
        f"activation {act}": not timms or activation_name(act) is not None,
        "it drops parts of its result": not timms or type(norm.drop) is nn.Identity,
    }
    return next((reason for reason, holds in facts.items() if not holds), None)


# -- what follows a norm -----------------------------------------------------------------------------------------------


class _Tracer(Tracer):
    """Layers of torch, those without parts and norms of timm are leaves; or all but those that are `opened`."""

    def __init__(self, given: bool = True, opened: Collection[nn.Module] | None = None) -> None:
        super().__init__(given)
        self._opened = opened

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        childless = next(m.children(), None) is None
        known = childless or isinstance(m, NormAct2d) or _own_activation(m)
        closed = self._opened is not None and m not in self._opened
        return known or closed or super().is_leaf_module(m, module_qualified_name)


def tracer(given: bool = False, opened: Collection[nn.Module] | None = None) -> Tracer:
    """Of models and of parts of them; of their operands with a default, as if they were `given` or not.

    Graphs have what is within all parts, or within those that are `opened`.
    """
    return _Tracer(given, opened)


def _followers(model: nn.Module) -> tuple[dict[nn.Module, nn.Module], str]:
    """The activation behind each norm, however the model is called; and why nothing is known, if so.

    Not within parts of a model that cannot be traced: such a one may call what is in them by itself.
    """
    if not any(type(part) is nn.BatchNorm2d for part in model.modules()):
        return {}, ""
    try:
        return _always(model), ""
    except Exception as error:
        return {}, f"torch.fx cannot trace the model, {type(error).__name__}: {str(error).splitlines()[0]:.200}"


def _always(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """The same in training, with gradients recorded and autocast on, and in evaluation without; and with operands that
    may be left out or not. Raises what torch.fx does.
    """
    ways = []
    for given in (False, True):
        reader = tracer(given)
        for training in (True, False):
            with in_mode(model, training), recorded_and_lowered(training):
                ways.append(_pairs(model, reader.trace(model), reader.kept.nodes))
        if not reader.optional:
            break
    within = [set(part.modules()) for part in model.modules() if not bare(part)]
    elsewhere = held(model) | {part for norm in model.modules() if _own_activation(norm) for part in norm.children()}
    return {
        norm: act
        for norm, act in ways[0].items()
        if all(way.get(norm) is act for way in ways)
        and not {norm, act} & elsewhere
        and all((norm in parts) == (act in parts) for parts in within)  # hooks are given what is between
    }


@contextmanager
def in_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """A model in training or in evaluation for a while, by its flags alone: no layer is told."""
    before = {part: part.training for part in model.modules()}
    for part in before:
        part.training = training
    try:
        yield
    finally:
        for part, was in before.items():
            part.training = was


@contextmanager
def recorded_and_lowered(on: bool) -> Iterator[None]:
    """Gradients recorded, and autocast on, or neither."""
    with ExitStack() as modes:
        modes.enter_context(torch.set_grad_enabled(on))
        for kind in DEVICES:
            before = torch.is_autocast_enabled(kind)
            torch.set_autocast_enabled(kind, on)
            modes.callback(torch.set_autocast_enabled, kind, before)
        yield


def _pairs(model: nn.Module, graph: fx.Graph, kept: Collection[fx.Node]) -> dict[nn.Module, nn.Module]:
    """Norms and activations that always come together: all values of a norm go to one, and it gets no others.

    None of these is among those that are `kept`.
    """
    called: dict[nn.Module, list[fx.Node]] = {}
    for node in graph.find_nodes(op="call_module"):
        called.setdefault(model.get_submodule(str(node.target)), []).append(node)
    found: dict[nn.Module, nn.Module] = {}
    fed: dict[nn.Module, set[fx.Node]] = {}  # the calls of an activation that get what a norm gives
    for norm, calls in called.items():
        readers = [_reader(model, node, kept) for node in calls] if type(norm) is nn.BatchNorm2d else []
        acts = {None if node is None else model.get_submodule(str(node.target)) for node in readers}
        act = acts.pop() if len(acts) == 1 else None
        if act is not None and activation_name(act) and bare(act):
            found[norm] = act
            fed.setdefault(act, set()).update(node for node in readers if node is not None)
    return {norm: act for norm, act in found.items() if fed[act] == set(called[act])}


def held(model: nn.Module) -> set[nn.Module]:
    """Layers that a list or the like of a model's holds as well: who swaps them does not reach that place."""
    named = (item for part in model.modules() for item in vars(part).items() if item[0] != "_modules")
    several = (
        value.values() if isinstance(value, dict) else value for _, value in named if isinstance(value, _SEVERAL)
    )
    return {each for values in several for each in values if isinstance(each, nn.Module)}


_SEVERAL = (list, tuple, dict)


def _reader(model: nn.Module, node: fx.Node, kept: Collection[fx.Node]) -> fx.Node | None:
    """The module's call that alone gets a value, past what passes it on."""
    while len(node.users) == 1 and node not in kept:
        (node,) = node.users
        if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
            return None
        layer = model.get_submodule(str(node.target))
        if type(layer) is not nn.Identity:
            return node
        if not bare(layer):
            return None
    return None
