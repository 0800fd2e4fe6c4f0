"""What the modules of a model keep of a call, beside what they return: graphs of torch.fx say nothing of that.

Tracing calls a model with values that stand for tensors. One whose forward stores a value, counts its calls or fills a
cache would be left with those: here everything is put back, and it is said what was kept. So are random numbers that
were drawn, of which a graph would have those of one call.
"""

from __future__ import annotations

import copy
import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_iter

_CONTAINERS = frozenset((dict, OrderedDict, defaultdict, list, set, deque))
_VALUES = frozenset((int, float, complex, bool, str, bytes))


class Kept(NamedTuple):
    """Whether a call left anything in a model, and the nodes of its graph whose values were among that.

    What is put into dictionaries alone, by keys that were not there, are caches.
    """

    anything: bool
    nodes: frozenset[fx.Node]
    beyond_caches: bool


NOTHING = Kept(False, frozenset(), False)


class State:
    """The attributes of all modules of a model, what lies in their containers, and the numbers in their buffers.

    And where the random numbers of torch, on the CPU, of Python and of NumPy are.
    """

    def __init__(self, model: nn.Module) -> None:
        parts = [part for part in model.modules() if not isinstance(part, torch.jit.ScriptModule)]
        self._attributes = [(part, dict(vars(part))) for part in parts]
        containers = (value for _, named in self._attributes for value in named.values() if type(value) in _CONTAINERS)
        self._containers = [(each, copy.copy(each) if each else None) for each in containers]
        self._buffers = [(each, each._version, each.detach().clone()) for each in model.buffers() if _counts(each)]
        self._random = _random()

    def put_back(self) -> Kept:
        """Make it what it was, and say what was kept."""
        written = [(buffer, was) for buffer, version, was in self._buffers if buffer._version != version]
        with torch.no_grad():
            for buffer, was in written:
                buffer.copy_(was)
        values, beyond = list[Any](), bool(written)
        for container, before in self._containers:
            if changed := list(_differing(container, () if before is None else before)):
                values += changed
                beyond |= not isinstance(container, dict) or len(container) - len(before or ()) != len(changed)
                _fill(container, before)
        for part, named in self._attributes:
            if changed := list(_differing(vars(part), named)):
                values += changed
                beyond = True
                _fill(vars(part), named)
        if _random() != self._random:
            beyond = True
            _set_random(*self._random)
        if not values and not beyond:
            return NOTHING
        nodes = (value.node for value in tree_iter(values) if isinstance(value, fx.Proxy))
        return Kept(True, frozenset(nodes), beyond)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """A model that is as it was afterwards."""
    state = State(model)
    try:
        yield
    finally:
        state.put_back()


def _random() -> tuple[Any, ...]:
    """Where random numbers are: torch's, Python's and NumPy's."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), (name, np.asarray(keys).tobytes(), *rest)


def _set_random(of_torch: bytes, of_python: Any, of_numpy: Any) -> None:
    torch.set_rng_state(torch.frombuffer(bytearray(of_torch), dtype=torch.uint8))
    random.setstate(of_python)
    name, keys, *rest = of_numpy
    np.random.set_state((name, np.frombuffer(keys, dtype=np.uint32), *rest))


def _counts(buffer: Tensor) -> bool:
    """Whether a tensor counts what is written into it; one that is not there yet does not."""
    return not is_lazy(buffer) and not buffer.is_inference()


def _differing(now: Collection[Any], before: Collection[Any]) -> Iterator[Any]:
    """What is in one container and not, or not in that place, in another of its kind; None for what is gone."""
    if isinstance(now, set):
        yield from (value for value in now if value not in before)
        yield from (None for value in before if value not in now)
        return
    ones, others = (dict(each if isinstance(each, dict) else enumerate(each)) for each in (now, before))
    yield from (value for key, value in ones.items() if key not in others or not _same(value, others[key]))
    yield from (None for key in others if key not in ones)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) in _VALUES and bool(one == other)


def _fill(container: Any, was: Any) -> None:
    """Put into a container what was in it."""
    container.clear()
    if was is not None:
        (container.extend if isinstance(container, (list, deque)) else container.update)(was)
