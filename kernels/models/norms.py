"""A swap of a model's norms for those that kernels compute, batch norms each with the activation behind it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from torch import fx, nn

from ..layers.activations import activation_name
from ..layers.inherited import in_place_of
from ..layers.norms import NormAct2d
from .arguments import check_model
from .hooks import bare
from .norm_sums import fuse_sums
from .row_norms import fuse_row_norms
from .tracing import has_own_activation, held, in_mode, recorded_and_lowered, set_module, tracer


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
    norm, sum and activation are one, and the block computes what its trace says (`norm_sums`). Parameters and
    buffers are shared with the old layers and keep their names, so state_dicts load as before. SyncBatchNorm is left
    alone: convert before, not after.

    Raises `WrongType` for what is no model.
    """
    check_model(model, "fuse_norms")
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
            act = own.act if has_own_activation(module) else followers.get(module) or nn.Identity()
            swapped[module] = NormAct2d(module, act)
        set_module(model, name, swapped[module])
        taken[name] = swapped[module].activation or ""
    hidden = {act for norm, act in followers.items() if norm in swapped}
    for name, module in places:
        if module in hidden:
            set_module(model, name, in_place_of(module))
    summed = fuse_sums(model)
    taken |= {name: f"a residual and {summed[norm]}" for name, norm in model.named_modules() if norm in summed}
    if untraced and taken:
        left["(activations)"] = untraced
    rows, others = fuse_row_norms(model)
    taken |= dict.fromkeys(rows, "")
    left |= others
    return FusedNorms(taken, left)


def _unfit(norm: nn.Module) -> str | None:
    """Why a batch norm is left to torch, or None."""
    timms = has_own_activation(norm)
    act: Any = getattr(norm, "act", None)
    facts = {
        f"{type(norm).__name__}, whose forward may differ": timms or type(norm) is nn.BatchNorm2d,
        "hooks or parametrizations hang on it": bare(norm) and (not timms or bare(act)),
        f"activation {act}": not timms or activation_name(act) is not None,
        "it drops parts of its result": not timms or type(norm.drop) is nn.Identity,
    }
    return next((reason for reason, holds in facts.items() if not holds), None)


# -- what follows a norm -----------------------------------------------------------------------------------------------


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
                graph = reader.trace(model)
                ways.append(_pairs(model, graph, {*reader.kept.nodes, *reader.regions}, reader.regions))
        if not reader.optional:
            break
    within = [set(part.modules()) for part in model.modules() if not bare(part)]
    elsewhere = held(model) | {part for norm in model.modules() if has_own_activation(norm) for part in norm.children()}
    return {
        norm: act
        for norm, act in ways[0].items()
        if all(way.get(norm) is act for way in ways)
        and not {norm, act} & elsewhere
        and all((norm in parts) == (act in parts) for parts in within)  # hooks are given what is between
    }


def _pairs(
    model: nn.Module, graph: fx.Graph, kept: Collection[fx.Node], apart: Collection[fx.Node]
) -> dict[nn.Module, nn.Module]:
    """Norms and activations that always come together: all values of a norm go to one, and it gets no others.

    None of a norm's is among those that are `kept`, and no activation `apart`.
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
        beside = any(node in apart for node in readers)
        if act is not None and activation_name(act) and bare(act) and not beside:
            found[norm] = act
            fed.setdefault(act, set()).update(node for node in readers if node is not None)
    return {norm: act for norm, act in found.items() if fed[act] == set(called[act])}


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
