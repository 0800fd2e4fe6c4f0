"""One TOML table read strictly: every key is asked for, typed and within its range, and none is left over."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import cast

from ...errors import UsageError, close_match

# Of rates, sizes and times in their units: beyond these a number is a slip, and picoseconds do not fit 64 bits.
SMALLEST, LARGEST = 1e-9, 1e12


def read_toml(path: Path, error: type[UsageError] = UsageError) -> TomlTable:
    """The top level of a TOML file; `error` is raised for everything that is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        reason = cause.strerror if isinstance(cause, OSError) else "not UTF-8 text"
        raise error(f"cannot be read: {reason}", where=str(path)) from cause
    return parse_toml(text, str(path), error)


def parse_toml(text: str, file: str, error: type[UsageError] = UsageError) -> TomlTable:
    try:
        return TomlTable(file, "top level", tomllib.loads(text), error)
    except (ValueError, RecursionError) as cause:  # numbers of thousands of digits and deep nesting among them
        raise error(f"not TOML: {cause}", where=file) from cause


class TomlTable:
    """A table of `file`, called `path` in messages. `close()` complains about keys that nobody asked for."""

    def __init__(self, file: str, path: str, raw: Mapping[str, object], error: type[UsageError] = UsageError) -> None:
        self.file, self.path, self._raw, self._error = file, path, raw, error
        self._asked: dict[str, None] = {}

    @property
    def _place(self) -> str:
        return f"{self.file} [{self.path}]"

    def error(self, key: str, expected: str, got: object) -> UsageError:
        shown = "nothing" if got is None else repr(got)
        return self._error(f"wrong {key!r}", where=self._place, sides={"expected": expected, "got": shown})

    def close(self, known: Iterable[str] | None = None) -> None:
        """No keys are left but those asked for. `known` are the keys to offer instead of a misspelt one."""
        for key in self._raw:
            if key not in self._asked:
                hint = close_match(key, list(self._asked if known is None else known))
                raise self._error(f"unknown key {key!r}", where=self._place, hint=hint)

    def __contains__(self, key: str) -> bool:
        return key in self._raw

    def keys_in(self, known: tuple[str, ...]) -> list[str]:
        """Those of the known keys that are here, in the order of the file."""
        return [key for key in self._raw if key in known]

    def text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str) or not value:
            raise self.error(key, "text", value)
        return value

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self._get(key)
        if not isinstance(value, str) or value not in choices:
            raise self.error(key, "one of " + ", ".join(map(repr, choices)), value)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false", value)
        return value

    def integer(self, key: str, *, least: int) -> int:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.error(key, f"an integer, {least} or more", value)
        return value

    def number(self, key: str, *, least: float | None = None, above: float | None = None) -> float:
        value = self._get(key)
        expected = f"a number, {least:g} or more" if least is not None else f"a number greater than {above or 0:g}"
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            raise self.error(key, expected, value)
        if (least is not None and value < least) or (above is not None and value <= above):
            raise self.error(key, expected, value)
        if value and not SMALLEST <= abs(value) <= LARGEST:
            raise self.error(key, f"0, or a number from {SMALLEST:g} to {LARGEST:g}", value)
        return float(value)

    def points(self, key: str) -> tuple[tuple[int, float], ...]:
        """A list of [bytes, GB/s] pairs."""
        value = self._get(key)
        expected = "a list of [bytes, GB/s], whole bytes, both greater than 0"
        if not isinstance(value, list) or not all(_is_point(point) for point in value):
            raise self.error(key, expected, value)
        return tuple((size, float(rate)) for size, rate in cast("list[list[int]]", value))

    def rising(self, key: str) -> tuple[tuple[float, float], ...]:
        """A list of [size, time] pairs: sizes increase, times do not fall, all are greater than 0."""
        value = self._get(key)
        expected = "a list of [size, time], both greater than 0, sizes increasing and times not falling"
        if not isinstance(value, list) or not value or not all(_is_pair(point) for point in value):
            raise self.error(key, expected, value)
        pairs = tuple((float(size), float(took)) for size, took in value)
        for before, after in pairwise(pairs):
            if not (before[0] < after[0] and before[1] <= after[1]):
                raise self.error(key, expected, f"{list(after)} after {list(before)}")
        return pairs

    def sizes(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers above 0 that increase."""
        value = self._get(key)
        found = (
            value if isinstance(value, list) and all(_is_positive(each) and type(each) is int for each in value) else []
        )
        if not found or any(a >= b for a, b in pairwise(found)):
            raise self.error(key, "a list of whole numbers greater than 0, increasing", value)
        return tuple(found)

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """A list of so many numbers above 0."""
        value = self._get(key)
        if not isinstance(value, list) or len(value) != count or not all(map(_is_positive, value)):
            raise self.error(key, f"a list of {count} numbers, all greater than 0", value)
        return tuple(map(float, value))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, empty where the key is missing."""
        value = self._get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "a list of texts", value)
        return tuple(value)

    def text_pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        """A table of texts, empty where the key is missing."""
        value = self._get(key)
        if value is None:
            return ()
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise self.error(key, "a table of texts", value)
        return tuple(value.items())

    def table(self, key: str) -> TomlTable:
        value = self._get(key)
        if not isinstance(value, dict):
            raise self.error(key, "a table", value)
        return self._child(key, value)

    def tables(self, key: str) -> list[TomlTable]:
        """A list of tables, none where the key is missing; the first is number 0 in messages."""
        value = self._get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(key, f"a list of tables, [[{key}]]", value)
        return [self._child(f"{key}.{number}", item) for number, item in enumerate(value)]

    def holds_tables(self, key: str) -> bool:
        """Whether there is a list at a key, [[key]], and not one table."""
        return isinstance(self._raw.get(key), list)

    def _child(self, key: str, raw: Mapping[str, object]) -> TomlTable:
        return TomlTable(self.file, key if self.path == "top level" else f"{self.path}.{key}", raw, self._error)

    def _get(self, key: str) -> object:
        self._asked[key] = None
        return self._raw.get(key)


def _is_pair(point: object) -> bool:
    return isinstance(point, list) and len(point) == 2 and all(_is_positive(value) for value in point)


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < LARGEST**2


def _is_point(point: object) -> bool:
    if not isinstance(point, list) or len(point) != 2 or any(isinstance(value, bool) for value in point):
        return False
    size, rate = point
    return isinstance(size, int) and size > 0 and isinstance(rate, (int, float)) and isfinite(rate) and rate > 0
