"""What an instance has besides what its class has, for the layer that is put in its place."""

from __future__ import annotations

import weakref
from typing import TypeVar

from torch import nn

_HOLDERS = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
_Made = TypeVar("_Made", bound=nn.Module)


def inherit(made: _Made, layer: nn.Module) -> _Made:
    """`made`, with all that `layer` was given and it was not: attributes, parameters, buffers, parts, in their order;
    and hooks of state_dicts, which the two share, so that who hung them there can take them off.
    """
    own, theirs = vars(made), vars(layer)
    for name in _HOLDERS:
        own[name] = {**theirs[name], **own[name]}
    own["_non_persistent_buffers_set"] |= theirs["_non_persistent_buffers_set"]
    for name, value in theirs.items():
        if name not in own or name in _HOOKS:
            own[name] = value
    return _hung_on(made)


def in_place_of(layer: nn.Module) -> nn.Identity:
    """What passes on, where `layer` was that is elsewhere now: with attributes it was given, and not those by which
    its class says what it does.
    """
    made = nn.Identity().train(layer.training)
    said = getattr(type(layer), "__constants__", ())
    vars(made).update({name: value for name, value in vars(layer).items() if name not in (*vars(made), *said)})
    return made


def like(layer: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """A layer of another class that has all that this one has."""
    made = kind.__new__(kind)
    made.__dict__.update(vars(layer))
    return _hung_on(made)


def _hung_on(made: _Made) -> _Made:
    """With hooks that are given the module which they were hung on: that may be gone."""
    for hook in vars(made)["_load_state_dict_pre_hooks"].values():
        if hook.with_module:
            hook.module = weakref.ref(made)
    return made
