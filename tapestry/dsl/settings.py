"""Settings: the parameters of a program that are not tensors, frozen when the program is bound.

A setting is a number, a string, a truth value, a member of an enum, or a list, tuple or dict of such. The traced
function gets a copy of its own; the program's bindings record the value as JSON would (enum members by name, lists as
tuples, dicts as pairs), so that nothing that happens to the user's object afterwards changes the program.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from ..errors import UsageError
from ..literals import python_number
from .door import spoken

_DEPTH = 16


@dataclass(frozen=True)
class Setting:
    """One setting: the type of its values, whether None is one, and its default (`inspect.Parameter.empty`: none)."""

    name: str
    kind: type
    optional: bool
    default: Any

    @staticmethod
    def of(parameter: inspect.Parameter, hint: Any) -> Setting:
        """The setting of a parameter: its type is that of its default, else the annotated one, else an integer."""
        default = parameter.default
        known = default is not inspect.Parameter.empty and default is not None
        kind = type(plain(default)) if known else _annotated(hint)
        return Setting(parameter.name, kind, default is None or _takes_none(hint), default)

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def value(self, given: Any, where: str) -> Any:
        """A value for this setting, copied and without NumPy's types. UsageError for one of another type."""
        found = copied(given, self.name, where)
        if found is None and self.optional:
            return None
        if self.kind is float and type(found) is int:
            return float(found)
        if self.kind is tuple and type(found) is list:
            return tuple(found)
        if self.kind is list and type(found) is tuple:
            return list(found)
        if type(found) is not self.kind:
            raise UsageError(
                f"{self.name}={_shown(given)} is not {_article(self.kind)}", where=where, hint=f"declared {self}"
            )
        return found

    def parse(self, text: str, where: str) -> Any:
        """The value that a text stands for (``--set causal=false``)."""
        if self.optional and text == "None":
            return None
        parse = _PARSERS.get(self.kind)
        if parse is None and not issubclass(self.kind, Enum):
            raise UsageError(f"{self.name} is a {self.kind.__name__}, which cannot be given as text", where=where)
        try:
            return parse(text) if parse else self.kind.__members__[text]  # type: ignore[attr-defined]
        except (ValueError, KeyError):
            raise UsageError(f"{self.name}={text} is not {_article(self.kind)}", where=where) from None

    def __str__(self) -> str:
        return f"{self.name}: {self.kind.__name__}" + ("" if self.required else f" = {_shown(self.default)}")


def plain(value: Any) -> Any:
    """NumPy's scalars as Python's; everything else as it is."""
    number = python_number(value) if hasattr(value, "dtype") else None
    if number is not None:
        return number
    return str(value) if type(value).__name__ == "str_" and isinstance(value, str) else value


def copied(value: Any, name: str, where: str, depth: int = 0) -> Any:
    """A copy that shares nothing with the user's object. UsageError for what no program can record."""
    value = plain(value)
    if value is None or type(value) in (bool, int, float, str) or isinstance(value, Enum):
        return value
    if depth > _DEPTH:
        raise UsageError(f"{name} is nested more than {_DEPTH} deep", where=where)
    if type(value) in (list, tuple):
        return type(value)(copied(item, name, where, depth + 1) for item in value)
    if type(value) is dict and all(type(key) in (str, int, bool) for key in value):
        return {key: copied(item, name, where, depth + 1) for key, item in value.items()}
    hint = "settings are numbers, strings, truth values, enum members, and lists, tuples and dicts of these"
    if hasattr(value, "dtype"):
        hint = "make an array a tensor of the program: an input, or tp.constant in its body"
    raise UsageError(f"the setting {name} is {spoken(value)}, which a plan cannot record", where=where, hint=hint)


def frozen(value: Any) -> Any:
    """A copied value as bindings record it: numbers, strings, truth values, None, and tuples of these."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return tuple((key, frozen(item)) for key, item in value.items())
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def _options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _takes_none(hint: Any) -> bool:
    return any(option in (None, type(None)) for option in _options(hint))


def _annotated(hint: Any) -> type:
    """The type that an annotation names: its first option that is not None."""
    for option in _options(hint):
        origin = get_origin(option)
        if origin is Literal:
            return type(get_args(option)[0])
        if origin in (list, tuple, dict):
            return origin  # type: ignore[no-any-return]
        if isinstance(option, type) and option is not type(None) and option is not inspect.Parameter.empty:
            return option
    return int


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError(text)
    return text.lower() in ("true", "1", "yes")


_PARSERS: Mapping[type, Callable[[str], Any]] = {int: int, float: float, str: str, bool: _truth}


def _article(kind: type) -> str:
    names = {int: "an integer", float: "a number", str: "a string", bool: "true or false"}
    if issubclass(kind, Enum):
        return f"one of {', '.join(kind.__members__)}"
    return names.get(kind) or f"a {kind.__name__}"


def _shown(value: Any) -> str:
    number = plain(value)
    text = repr(number) if type(number) in (bool, int, float, str, type(None), list, tuple, dict) else spoken(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
