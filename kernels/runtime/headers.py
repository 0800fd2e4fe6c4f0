"""The package's CUDA headers, and which of them a source reaches."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

INCLUDE = Path(__file__).resolve().parent.parent / "include"

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


@functools.cache
def package_headers() -> Mapping[str, str]:
    """Every header of the package by the name it is included with, read once: `tapestry/dim.cuh` -> text."""
    found = sorted(INCLUDE.rglob("*.cuh")) if INCLUDE.is_dir() else []
    return {path.relative_to(INCLUDE).as_posix(): path.read_text(encoding="utf-8") for path in found}


def reachable(source: str, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that `source` includes, directly or not, by the names they are included with, sorted.

    The compiler knows a header only by the exact name in the `#include`, so a header that stands beside another and is
    included as `"fold.cuh"` gets that name as well. What is not among `headers` is left to the compiler to refuse.
    """
    found: dict[str, str] = {}
    pending = _INCLUDE.findall(source)
    while pending:
        name = pending.pop()
        text = _text(name, headers)
        if name not in found and text is not None:
            found[name] = text
            pending += _INCLUDE.findall(text)
    return dict(sorted(found.items()))


def _text(name: str, headers: Mapping[str, str]) -> str | None:
    if name in headers:
        return headers[name]
    return next((text for known, text in headers.items() if known.endswith(f"/{name}")), None)
