"""Results of functions that take long and depend on nothing but their arguments, on disk for later processes.

They lie beside the compiled kernels (`cache.py`), one file each, under a key of the function, what it was computed by
(`version`) and its arguments as they are printed: another version finds nothing, and computes anew. What does not read
back as one of the kinds that are told is computed again, and overwritten. On a `Shelf` lies what no function computes:
it is put there, and found by later processes likewise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache, wraps
from pathlib import Path
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
        def key(given: tuple[Any, ...]) -> str:
            return _key(version(), function.__module__, function.__qualname__, given)

        @lru_cache(maxsize=REMEMBERED)
        @wraps(function)
        def found(*given: Any) -> Any:
            store = _store()
            if store is None:
                return function(*given)
            result = _found(store, key(given), named)
            if result is _NOTHING:
                result = function(*given)
                store.put(key(given), Record(b"", {"result": _written(result)}))
            return result

        def there(*given: Any) -> bool:
            store = _store()
            return store is not None and _found(store, key(given), named) is not _NOTHING

        found.there = there  # type: ignore[attr-defined]
        return cast(Function, found)

    return around


def keeps() -> bool:
    """Whether anything is kept on disk."""
    return _store() is not None


def is_kept(function: Callable[..., Any], *given: Any) -> bool:
    """Whether a result lies on disk, of a function that is `kept`: of another there is nothing to be kept."""
    there: Callable[..., bool] | None = getattr(function, "there", None)
    return there is None or there(*given)


class Shelf:
    """Values of keys that are put by hand, in memory and on disk: of the kinds that are kept, but None.

    A process looks once for what is not there: what another one puts later is seen by those that come after it.
    """

    def __init__(self, name: str, version: Callable[[], str], *kinds: type[Any]) -> None:
        self._name, self._version = name, version
        self._named = {kind.__name__: kind for kind in kinds}
        self._known: dict[tuple[Any, ...], Any] = {}

    def get(self, *key: Any) -> Any:
        """The value of a key, or None."""
        if key not in self._known:
            store = _store()
            found = _NOTHING if store is None else _found(store, self._key(key), self._named)
            self._known[key] = None if found is _NOTHING else found
        return self._known[key]

    def put(self, value: Any, *key: Any) -> None:
        """From now on the value of a key."""
        self._known[key] = value
        if (store := _store()) is not None:
            store.put(self._key(key), Record(b"", {"result": _written(value)}))

    def forget(self) -> None:
        """What is in memory: it is read again."""
        self._known.clear()

    def _key(self, key: tuple[Any, ...]) -> str:
        return _key(self._version(), __name__, self._name, key)


def digest_of(folders: Iterable[Path], suffixes: tuple[str, ...]) -> str:
    """A digest of all files below some folders of one package with such endings, their names included."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.suffix in suffixes):
            data = path.read_bytes()
            digest.update(f"{folder.name}/{path.relative_to(folder).as_posix()} {len(data)} ".encode() + data)
    return digest.hexdigest()


_NOTHING = object()  # where there is no value, which may be None


def _store() -> cache.Cache | None:
    return cache.at(cache.directory())


def _found(store: cache.Cache, key: str, named: Mapping[str, type[Any]]) -> Any:
    """What is kept under a key, or `_NOTHING`, of what does not read back as well."""
    record = store.get(key)
    if record is not None:
        try:
            return _read(record.head["result"], named)
        except (KeyError, TypeError, ValueError):
            pass  # as good as no file
    return _NOTHING


def _key(version: str, module: str, name: str, given: tuple[Any, ...]) -> str:
    """SHA-256 over every part as text, with quotes, so that no two calls run together."""
    return hashlib.sha256(repr((version, module, name, given)).encode()).hexdigest()


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
