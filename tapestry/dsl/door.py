"""The door of a public function: arguments are checked against its annotations before anything else happens.

What is refused is named with the parameter, what it takes, and what was given; NumPy's scalars come in as Python's.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial, wraps
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import UsageError
from ..literals import python_number
from .caller import located, place, user_frame

P = ParamSpec("P")
R = TypeVar("R")
Fitter = Callable[[Any], Any]
_MISFIT = object()


def door(function: Callable[P, R]) -> Callable[P, R]:
    """The function, its arguments checked: UsageError with the place of the call for one that does not fit."""
    entrance = _Entrance(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        entrance.demand_fit(args, kwargs)
        return function(*entrance.positional(args), **entrance.named(kwargs))

    return call


class _Entrance:
    """What a function takes. `inspect` binds arguments too, but takes longer than most functions do."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.signature = function, inspect.signature(function)
        self.name = function.__name__.strip("_")
        parameters = self.signature.parameters.values()
        self.places = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.known = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self.required = [p.name for p in parameters if p.name in {*self.places, *self.known} and p.default is p.empty]
        self.rest = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
        self.others = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The annotations, evaluated at the first call: modules name one another in them."""
        return get_type_hints(self.function)

    @cached_property
    def fitters(self) -> dict[str, Fitter]:
        return {name: _fitter(self.hints[name]) for name in self.signature.parameters}

    def demand_fit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """UsageError unless each parameter gets one argument, and each argument has a parameter."""
        given = self.places[: len(args)]
        if (
            (len(args) <= len(self.places) or self.rest)
            and (self.others or kwargs.keys() <= self.known)
            and self.known.isdisjoint(kwargs.keys() & given)
            and all(name in given or (name in self.known and name in kwargs) for name in self.required)
        ):
            return
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            where = located(self.name, place(user_frame()))
            raise UsageError(str(error), where=where, hint=usage(self.name, self.signature)) from None

    def positional(self, args: Sequence[Any]) -> list[Any]:
        """The arguments given by position, as the annotations want them."""
        slots = self.places[: len(args)] + self.rest * (len(args) - len(self.places))
        return [self._fitted(slot, slot, value) for slot, value in zip(slots, args, strict=True)]

    def named(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments given by name, as the annotations want them."""
        slots = [name if name in self.known else self.others[0] for name in kwargs]
        return {name: self._fitted(slot, name, kwargs[name]) for slot, name in zip(slots, kwargs, strict=True)}

    def _fitted(self, slot: str, name: str, value: Any) -> Any:
        found = self.fitters[slot](value)
        if found is _MISFIT:
            raise self._misfit(name, self.hints[slot], value)
        return found

    def _misfit(self, name: str, hint: Any, value: Any) -> UsageError:
        from .tensor import Tensor

        wants = wanted(hint)
        array = "array" in spoken(value) and "tensor" in wants
        advice = "write the values into the program with tp.constant, or declare an input" if array else None
        if isinstance(value, Tensor):
            value.demand_whole()
        where = located(self.name, place(user_frame()))
        return UsageError(f"{name} is {spoken(value)}, not {wants}", where=where, hint=advice)


def usage(name: str, signature: inspect.Signature) -> str:
    """How a function is called: its parameters, defaults included, without annotations."""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return f"{name}{signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)}"


def _fitter(hint: Any) -> Fitter:
    """What gives a value as the annotation wants it, or a mark that it does not fit."""
    from .tensor import Tensor

    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _any_of([_fitter(option) for option in get_args(hint)])
    if origin is Literal:
        return partial(_literal, get_args(hint))
    if origin in (Sequence, list, tuple):
        return partial(_items, _fitter(get_args(hint)[0]))
    if hint is Any or isinstance(hint, TypeVar | ParamSpec) or origin is not None:
        return lambda value: value
    if hint is Tensor:
        return lambda value: value if isinstance(value, Tensor) and value.is_tensor else _MISFIT
    if hint in (int, float, bool):
        return partial(_number, hint)
    return lambda value: value if isinstance(value, hint) else _MISFIT


def _any_of(options: list[Fitter]) -> Fitter:
    def fit(value: Any) -> Any:
        for option in options:
            found = option(value)
            if found is not _MISFIT:
                return found
        return _MISFIT

    return fit


def _literal(options: tuple[Any, ...], value: Any) -> Any:
    return value if any(type(value) is type(one) and value == one for one in options) else _MISFIT


def _items(fit: Fitter, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return _MISFIT
    found = [fit(item) for item in value]
    if any(item is _MISFIT for item in found):
        return _MISFIT
    return tuple(found) if isinstance(value, tuple) else found


def _number(kind: type, value: Any) -> Any:
    number = python_number(value)
    if number is None or (kind is not bool and isinstance(number, bool)) or not isinstance(number, (kind, int)):
        return _MISFIT
    if kind is bool:
        return number if isinstance(number, bool) else _MISFIT
    return number


def wanted(hint: Any) -> str:
    """An annotation in words."""
    from .element import Element
    from .index import Index
    from .tensor import Tensor

    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        words = list(dict.fromkeys(wanted(option) for option in get_args(hint) if option is not type(None)))
        return " or ".join(words)
    if origin is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if origin in (Sequence, list, tuple):
        return f"a list whose items are {wanted(get_args(hint)[0])} each"
    if hint in (Element, Index):
        return "an element of index notation"
    names = {Tensor: "a tensor", int: "an integer", float: "a number", bool: "True or False", str: "a string"}
    return names.get(hint) or str(getattr(hint, "__name__", hint))


def spoken(value: Any) -> str:
    """A value of the user's as errors speak of it: short, arrays by their shape, NumPy's scalars as numbers."""
    from .tensor import Tensor

    if isinstance(value, Tensor):
        return repr(value) if value.is_tensor else f"the element {value!r}"
    number = python_number(value)
    if number is not None:
        return _shortened(repr(number))
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        kind = f"a NumPy array {tuple(value.shape)}" if type(value).__module__ == "numpy" else "an array"
        return f"{kind} of {value.dtype}"
    if callable(value) and hasattr(value, "__name__"):
        return f"the function {value.__name__}"
    if isinstance(value, Mapping | Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return f"{_shortened(repr(value))} ({type(value).__name__})"
    return _shortened(repr(value)) if value is None or isinstance(value, str) else f"a {type(value).__name__}"


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


__all__ = ["door", "spoken", "usage", "wanted"]
