"""How models and parts of them are traced: what is a leaf, in which mode, and which places parts have in a model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from ..layers.norms import NormAct2d
from .in_place import DEVICES, Tracer


class _Tracer(Tracer):
    """Layers of torch, those without parts and norms of timm are leaves; or all but those that are `opened`."""

    def __init__(self, given: bool = True, opened: Collection[nn.Module] | None = None) -> None:
        super().__init__(given)
        self._opened = opened

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        childless = next(m.children(), None) is None
        known = childless or isinstance(m, NormAct2d) or has_own_activation(m)
        closed = self._opened is not None and m not in self._opened
        return known or closed or super().is_leaf_module(m, module_qualified_name)


def tracer(given: bool = False, opened: Collection[nn.Module] | None = None) -> Tracer:
    """Of models and of parts of them; of their operands with a default, as if they were `given` or not.

    Graphs have what is within all parts, or within those that are `opened`.
    """
    return _Tracer(given, opened)


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


def has_own_activation(norm: nn.Module) -> bool:
    """Whether it is timm's, with an activation in it."""
    kind = type(norm)
    return kind.__module__ == "timm.layers.norm_act" and kind.__name__ == "BatchNormAct2d"


def same_places(model: nn.Module, parts: Sequence[nn.Module]) -> bool:
    """Whether each of these has one place in a model: what is done to one is done for its place alone."""
    names = [part for _, part in model.named_modules(remove_duplicate=False)]
    return all(sum(part is other for other in names) == 1 for part in parts)


def set_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of that name."""
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, module)


def held(model: nn.Module) -> set[nn.Module]:
    """Layers that a list or the like of a model's holds as well: who swaps them does not reach that place."""
    named = (item for part in model.modules() for item in vars(part).items() if item[0] != "_modules")
    several = (
        value.values() if isinstance(value, dict) else value for _, value in named if isinstance(value, _SEVERAL)
    )
    return {each for values in several for each in values if isinstance(each, nn.Module)}


_SEVERAL = (list, tuple, dict)
