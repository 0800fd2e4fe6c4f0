"""What hangs on layers, and is set off by their calls."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from .in_place import is_of_class

HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)  # fmt: skip


def bare(layer: nn.Module) -> bool:
    """Whether nothing hangs on a layer that its calls would set off, a forward of its own among that."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return not any(hooks) and not hasattr(layer, "parametrizations") and is_of_class(layer)


def swapped(model: nn.Module, made: Callable[[nn.Module], nn.Module | None]) -> dict[str, nn.Module]:
    """Put what is `made` of parts of a model, on which nothing hangs, in their places: what is there now, by its name.

    A layer in several places stays one; the model itself has no place.
    """
    found: dict[str, nn.Module] = {}
    new: dict[nn.Module, nn.Module] = {}
    for name, layer in list(model.named_modules(remove_duplicate=False)):
        if layer is model or not bare(layer):
            continue
        put = new[layer] if layer in new else made(layer)
        if put is not None:
            parent, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(parent), attribute, put)
            found[name] = new[layer] = put
    return found
