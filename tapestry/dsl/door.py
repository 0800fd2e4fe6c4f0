"""The door of a public function: arguments are checked against its annotations before anything else happens.

What is refused is named with the parameter, what it takes, and what was given; NumPy's scalars come in as Python's.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial, wraps
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
    signature = inspect.signature(function)
    name = function.__name__.strip("_")

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            where = located(name, place(user_frame()))
            raise UsageError(str(error), where=where, hint=usage(name, signature)) from None
        hints = _hints(function)
        for parameter, value in bound.arguments.items():
            bound.arguments[parameter] = _checked(name, signature.parameters[parameter], hints[parameter], value)
        return function(*bound.args, **bound.kwargs)

    return call


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function)


def usage(name: str, signature: inspect.Signature) -> str:
    """How a function is called: its parameters, defaults included, without annotations."""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return f"{name}{signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)}"


def _checked(function: str, parameter: inspect.Parameter, hint: Any, value: Any) -> Any:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return tuple(_one(function, parameter.name, hint, item) for item in value)
    if parameter.kind is parameter.VAR_KEYWORD:
        return {key: _one(function, key, hint, item) for key, item in value.items()}
    return _one(function, parameter.name, hint, value)


def _one(function: str, parameter: str, hint: Any, value: Any) -> Any:
    found = fitted(hint, value)
    if found is _MISFIT:
        from .tensor import Tensor

        wants = wanted(hint)
        array = "array" in spoken(value) and "tensor" in wants
        advice = "write the values into the program with tp.constant, or declare an input" if array else None
        if isinstance(value, Tensor):
            value.demand_whole()
        where = located(function, place(user_frame()))
        raise UsageError(f"{parameter} is {spoken(value)}, not {wants}", where=where, hint=advice)
    return found


def fitted(hint: Any, value: Any) -> Any:
    """The value as the annotation wants it, or a mark that it does not fit."""
    return _fitter(hint)(value)


@cache
def _fitter(hint: Any) -> Fitter:
    """What `fitted` does for one annotation, which is read once."""
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


__all__ = ["door", "fitted", "spoken", "usage", "wanted"]
