"""Modules that torch.fx has the same to say of, told by what their forwards can see: a model has many of a kind."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from torch import Size, Tensor, nn, strided
from torch.nn.parameter import is_lazy

from .hooks import bare

_OWN = vars(nn.Module()).keys()
_VALUES = (int, float, complex, bool, str, bytes, type(None))
_SEQUENCES = (tuple, list, Size)


def looks(module: nn.Module) -> Hashable | None:
    """What is the same of modules with the same graphs: the classes of all their parts, what these have, and which are
    one. None where something hangs on a part: that may do anything.

    Numbers and strings count by their values; tensors by all but their numbers, and by which one they are among all of
    the module's; and anything else by which object it is: nobody may change that while what was said of one is used.
    What is not all in its modules' dictionaries is like nothing else, nor is what is not there yet.
    """
    found: list[Hashable] = []
    parts: dict[int, int] = {}
    tensors: dict[int, int] = {}
    for name, part in module.named_modules(remove_duplicate=False):
        if id(part) in parts:
            found.append((name, parts[id(part)]))
            continue
        parts[id(part)] = len(parts)
        if not bare(part) or hasattr(type(part), "__slots__"):
            return None
        own = vars(part)
        empty = tuple(each for each, inner in part._modules.items() if inner is None)
        kept = [*own["_parameters"].items(), *own["_buffers"].items()]
        if any(is_lazy(value) for _, value in kept):
            return None
        rest = ((each, value) for each, value in own.items() if each not in _OWN)
        found.append((name, type(part), empty, _tensors(kept, tensors), tuple(_seen(rest))))
    return tuple(found)


def _tensors(kept: Iterable[tuple[str, Tensor | None]], known: dict[int, int]) -> Hashable:
    return tuple(
        (name, None if value is None else (known.setdefault(id(value), len(known)), *_look(value)))
        for name, value in kept
    )


def _look(value: Tensor) -> Iterable[Hashable]:
    """A forward may ask a buffer for any of that."""
    yield from (type(value), value.shape, value.dtype, value.device, value.layout, value.requires_grad)
    yield tuple(_seen(vars(value).items()))
    yield value.stride() if value.layout is strided else None


def _seen(attributes: Iterable[tuple[str, Any]]) -> Iterable[Hashable]:
    for name, value in attributes:
        if type(value) in _VALUES:
            yield name, type(value), repr(value)  # which tells 0.0 from -0.0
        elif type(value) in _SEQUENCES and all(type(one) in _VALUES for one in value):
            yield name, type(value), tuple((type(one), repr(one)) for one in value)
        else:
            yield name, id(value)
