"""The plan document as bytes: deterministic JSON with repeated layers folded, and strict reading."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec

from ...errors import CheckFailed, UsageError
from .digest import KEY, changed_parts, digests
from .document import FORMAT, Document
from .fold import fold, unfold

# What this much JSON takes in memory is below one GiB, whatever it says.
MOST_TEXT = 1 << 25
FOLDED = ("buffers", "tasks")
FOLDED_OF_PROGRAM = ("tensors", "operations", "bindings", "outputs", "states", "pins")


def encode(document: Document) -> bytes:
    """JSON, the same bytes for the same document: keys in the order of the records, one line a task or buffer."""
    data: dict[str, Any] = msgspec.to_builtins(document)
    data = {"format": data.pop("format"), KEY: digests(document), **data}
    for key in FOLDED:
        data[key] = fold(list(data[key]))
    data["program"] = {key: fold(value) if isinstance(value, list) else value for key, value in data["program"].items()}
    return _lines(data)


def _lines(data: dict[str, Any]) -> bytes:
    """The document with one line per entry of its long parts: readable, and small in a diff."""
    rows = [f"{_text(key)}: {_block(value, 1)}" for key, value in data.items()]
    return ("{\n  " + ",\n  ".join(rows) + "\n}\n").encode()


def _block(value: Any, depth: int) -> str:
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and value and depth < 2:
        inner = (f",\n{pad}").join(f"{_text(k)}: {_block(v, depth + 1)}" for k, v in value.items())
        return f"{{\n{pad}{inner}\n{'  ' * depth}}}"
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return f"[\n{pad}" + f",\n{pad}".join(map(_text, value)) + f"\n{'  ' * depth}]"
    return _text(value)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def decode(data: bytes | str, where: str = "plan") -> Document:
    """Read a plan. UsageError naming the place for text that is not JSON, another version, or a field that is wrong."""
    return read(data, where)[0]


def decode_unchanged(data: bytes | str, where: str = "plan") -> Document:
    """Read a plan as it was written: besides, CheckFailed for one that its own digests are not of."""
    document, changed = read(data, where)
    if changed:
        raise CheckFailed(
            f"the plan was changed after it was written: {', '.join(changed)}",
            where=where,
            hint=f"plan again, or look at it with tapestry check; without {KEY!r} it stands for itself",
        )
    return document


def read(data: bytes | str, where: str = "plan") -> tuple[Document, tuple[str, ...]]:
    """The plan, and the parts of it (program, machine, plan) that its digests are not of."""
    if len(data) > MOST_TEXT:
        raise UsageError(
            "too long for a plan: it is not read",
            where=where,
            sides={"found": f"{len(data)} bytes", "read": f"at most {MOST_TEXT}"},
            hint="80 layers on 4,096 ranks take 3 MB: write repeated stretches folded, as tapestry plan -o does",
        )
    try:
        raw = json.loads(data, object_pairs_hook=_once_each, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"not a complete JSON document: {error}", where=where, hint="write the plan again with tapestry plan -o"
        ) from None
    if not isinstance(raw, dict) or "format" not in raw:
        raise UsageError("not a tapestry plan: it has no field 'format'", where=where)
    if raw["format"] != FORMAT:
        raise UsageError(
            "a plan of another version",
            where=where,
            sides={"found": repr(raw["format"]), "read here": repr(FORMAT)},
            hint="plan again with this version",
        )
    has_digests, stated = KEY in raw, raw.pop(KEY, None)
    _known_keys(raw, where)
    document = _convert(_expanded(raw, where), where)
    return document, changed_parts(document, stated) if has_digests else ()


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are distinct: readers disagree on which of two equal keys counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice!r} is there twice in one object")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")


def _known_keys(raw: dict[str, Any], where: str) -> None:
    """Nothing is expanded for a field that nobody would read."""
    unknown = [key for key in raw if key not in Document.__struct_fields__]
    if unknown:
        raise UsageError(f"malformed plan: unknown field `{unknown[0]}`", where=where)


def _expanded(raw: dict[str, Any], where: str) -> dict[str, Any]:
    try:
        lists = {key: unfold(raw[key]) for key in FOLDED if isinstance(raw.get(key), list)}
        program = raw.get("program")
        if isinstance(program, dict):
            folded = {key: unfold(program[key]) for key in FOLDED_OF_PROGRAM if isinstance(program.get(key), list)}
            lists["program"] = {**program, **folded}  # type: ignore[assignment]
    except (ValueError, msgspec.DecodeError) as error:
        raise UsageError(f"malformed plan: {error}", where=where) from None
    return {**raw, **lists}


def _convert(raw: dict[str, Any], where: str) -> Document:
    try:
        return msgspec.convert(raw, Document)
    except msgspec.ValidationError as error:
        raise UsageError(f"malformed plan: {error}", where=where, hint="the field after $ is the place") from None
