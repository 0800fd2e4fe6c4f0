"""Results of functions that take long and depend on nothing but their arguments, on disk for later processes.

They lie beside the compiled kernels (`cache.py`), one file each, under a key of the function, what it was computed by
(`version`) and its arguments as they are printed: another version finds nothing, and computes anew. What does not read
back as one of the kinds that are told is computed again, and overwritten.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

from . import cache
from .cache import Record

REMEMBERED = 16384
Function = TypeVar("Function", bound=Callable[..., Any])


def kept(version: Callable[[], str], *kinds: type[Any]) -> Callable[[Function], Function]:
    """Keep a function's results in memory and on disk.

    Arguments are positional, hashable, and print all they are. Results are None, booleans, numbers, texts, tuples of
    results, and dataclasses of the `kinds`, whose fields are results.
    """
    named = {kind.__name__: kind for kind in kinds}

    def around(function: Function) -> Function:
        @lru_cache(maxsize=REMEMBERED)
        @wraps(function)
        def found(*given: Any) -> Any:
            store = _store()
            if store is None:
                return function(*given)
            key = _key(version(), function, given)
            record = store.get(key)
            if record is not None:
                try:
                    return _read(record.head["result"], named)
                except (KeyError, TypeError, ValueError):
                    pass  # as good as no file
            result = function(*given)
            store.put(key, Record(b"", {"result": _written(result)}))
            return result

        return cast(Function, found)

    return around


def _store() -> cache.Cache | None:
    return cache.at(cache.directory())


def _key(version: str, function: Callable[..., Any], given: tuple[Any, ...]) -> str:
    """SHA-256 over every part as text, with quotes, so that no two calls run together."""
    return hashlib.sha256(repr((version, function.__module__, function.__qualname__, given)).encode()).hexdigest()


def _written(result: Any) -> Any:
    """As JSON: a tuple is a list, a dataclass an object of its kind's name and fields."""
    if isinstance(result, tuple):
        return [_written(part) for part in result]
    if is_dataclass(result):
        return {type(result).__name__: [_written(getattr(result, field.name)) for field in fields(result)]}
    return result


def _read(document: Any, named: Mapping[str, type[Any]]) -> Any:
    if isinstance(document, list):
        return tuple(_read(part, named) for part in document)
    if isinstance(document, dict):
        ((name, values),) = document.items()
        return named[name](*_read(values, named))
    return document
