"""The forward of a module as a graph of it says, for as long as nobody changes what the graph took for granted."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import fx, nn

_OWN = vars(nn.Module()).keys()
_HOLDERS = ("_modules", "_parameters", "_buffers")
_PLAIN = (int, float, bool, str, type(None))
_ABSENT = object()  # what a name that is gone says


class Setting(NamedTuple):
    """What a graph takes for granted: a part by its name, where that holds it, its name there, and what it is.

    What is no plain value is told by its identity. `holder` is empty for attributes.
    """

    part: str
    holder: str
    name: str
    value: Any

    def held(self, module: nn.Module) -> dict[str, Any]:
        """What holds it."""
        attributes = vars(module.get_submodule(self.part))
        found: dict[str, Any] = attributes[self.holder] if self.holder else attributes
        return found


Held = tuple[dict[str, Any], str, Any]  # what holds a setting, its name there, and what it is


class Rewritten:
    """The forward of a module as a graph says it, for as long as the module's settings are those it was traced with;
    copied and pickled with the module.
    """

    of_class = True  # it computes what that of the class does

    def __init__(
        self, module: nn.Module, source: str, known: Mapping[str, Any], settings: Sequence[Setting] = ()
    ) -> None:
        """`source` defines `forward(self, ...)` of what is `known` by name."""
        self.module, self.source, self.known, self.settings = module, source, known, settings
        names = dict(known)
        exec(compile(source, f"<{type(module).__name__}, rewritten>", "exec"), names)
        self.function: Callable[..., Any] = names["forward"]
        self._held: list[Held] | None = None

    def __call__(self, *given: Any, **named: Any) -> Any:
        # A graph depends on what it is traced with: not on what is filled in later.
        for held, name, was in self._holders() if torch.compiler.is_compiling() else self._known_holders():
            now = held.get(name, _ABSENT)
            if now is not was and not _alike(now, was):
                return type(self.module).forward(self.module, *given, **named)
        return self.function(self.module, *given, **named)

    def _known_holders(self) -> list[Held]:
        if self._held is None:  # not before the module has its parts: it may be being copied
            self._held = self._holders()
        return self._held

    def _holders(self) -> list[Held]:
        return [(each.held(self.module), each.name, each.value) for each in self.settings]

    def of_replica(self) -> Any:
        """A copy of the module for another device, as nn.DataParallel makes it."""
        copied: Any = nn.Module._replicate_for_data_parallel
        replica: nn.Module = copied(self.module)
        put(replica, Rewritten(replica, self.source, self.known, self.settings))
        return replica

    def __reduce__(self) -> tuple[Any, ...]:
        by_name = {name: found.__name__ for name, found in self.known.items() if isinstance(found, ModuleType)}
        rest = {name: found for name, found in self.known.items() if name not in by_name}
        return _rewritten, (self.module, self.source, rest, by_name, self.settings)


def _rewritten(
    module: nn.Module, source: str, known: dict[str, Any], by_name: dict[str, str], settings: Sequence[Setting]
) -> Rewritten:
    found = known | {name: importlib.import_module(path) for name, path in by_name.items()}
    return Rewritten(module, source, found, settings)


def put(block: nn.Module, made: Rewritten) -> None:
    """Have a block compute what is rewritten."""
    vars(block)["forward"] = made
    vars(block)["_replicate_for_data_parallel"] = made.of_replica


def called_in(graph: fx.Graph) -> set[str]:
    """The names of the parts that a graph calls."""
    return {str(node.target) for node in graph.find_nodes(op="call_module")}


def rewrite(block: nn.Module, graph: fx.Graph, before: Collection[str] = ()) -> None:
    """Have a block compute what a graph of it says, while nobody changes its settings, or the layers that it called
    `before` and calls no more.
    """
    code, called = graph.python_code("self"), {*before} | called_in(graph)
    settings = [_layer(block, name) for name in {*before} - called_in(graph)]
    for name, part in block.named_modules():
        if not name or any(other.startswith(f"{name}.") for other in called):  # what it calls asks for its own
            settings += _settings(name, part)
    put(block, Rewritten(block, code.src, code.globals, settings))


def _layer(block: nn.Module, name: str) -> Setting:
    part, _, own = name.rpartition(".")
    return Setting(part, "_modules", own, block.get_submodule(name))


def _settings(name: str, part: nn.Module) -> Iterator[Setting]:
    """The attributes of a part, and what it has none of: a graph says nothing of who asks for either."""
    for attribute, value in vars(part).items():
        if attribute not in _OWN and attribute not in ("forward", "_replicate_for_data_parallel"):
            yield Setting(name, "", attribute, list(value) if type(value) is list and _is_plain(value) else value)
    for holder in _HOLDERS:
        yield from (Setting(name, holder, own, None) for own, one in vars(part)[holder].items() if one is None)


def _alike(now: Any, was: Any) -> bool:
    """Whether two values that are not one and the same say the same."""
    return type(now) is type(was) and _is_plain(was) and _is_plain(now) and bool(now == was)


def _is_plain(value: Any) -> bool:
    """Whether it is a number, a word, none, or some of these."""
    if type(value) in (list, tuple):
        return all(_is_plain(one) for one in value)
    return type(value) in _PLAIN
