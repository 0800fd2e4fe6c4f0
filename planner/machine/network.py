"""ASTRA-sim's network (its analytical backend): dimensions of devices, from the innermost out, as YAML.

    topology: [ Ring, Switch ]
    npus_count: [ 8, 4 ]
    bandwidth: [ 50.0, 25.0 ]  # GB/s of a link, each way
    latency: [ 500.0, 2000.0 ]  # ns

The part of YAML that such files use is read here: keys with lists of words and numbers, or with a single one; comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

from .errors import MachineError

# How many links each device of a dimension of n devices has: to two neighbours, to all others, to a switch.
LINKS: dict[str, Callable[[int], int]] = {
    "Ring": lambda n: min(2, n - 1),
    "FullyConnected": lambda n: n - 1,
    "Switch": lambda _: 1,
}
_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_GIB = (1 << 30) / 1e9  # a GB of ASTRA-sim is 2^30 bytes
_MOST = 1 << 20
_RATES = (1e-6, 1e9)  # GB/s: beyond these a number is a slip, and times are no longer told apart
_LONGEST = 1e12  # ns
_END = "..."


@dataclass(frozen=True)
class Dimension:
    """``count`` devices (or groups of such), each receiving ``gb_per_s`` (10^9 bytes) by all its links."""

    kind: str
    count: int
    gb_per_s: float
    latency_s: float


def read_network(text: str, file: str) -> list[Dimension]:
    """MachineError, with the key and what was expected."""
    lists = _lists(text, file)
    for key in _KEYS:
        if key not in lists:
            raise _wrong(file, key, "a list", None)
    kinds = lists["topology"]
    for key in _KEYS:
        if len(lists[key]) != len(kinds):
            raise _wrong(file, key, f"{len(kinds)} of them, as there are topologies", lists[key])
    found = []
    for kind, *numbers in zip(*(lists[key] for key in _KEYS), strict=True):
        if kind not in LINKS:
            raise _wrong(file, "topology", " or ".join(LINKS), kind)
        count = _count(file, numbers[0])
        rate = _number(file, "bandwidth", numbers[1], *_RATES)
        wait = _number(file, "latency", numbers[2], 0, _LONGEST)
        found.append(Dimension(kind.lower(), count, rate * _GIB * LINKS[kind](count), wait * 1e-9))
    if prod(dim.count for dim in found) > _MOST:
        raise _wrong(file, "npus_count", f"{_MOST} devices at most", lists["npus_count"])
    return found


def _lists(text: str, file: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    key = ""
    for number, line in _lines(text):
        entry = re.fullmatch(r"""["']?([\w-]+)["']?\s*:\s*(?:\[([^\[\]]*)\]|([^\[\]{}:]*))""", line)
        if entry:
            key = entry[1]
            if key in found:
                raise MachineError(f"line {number}: {key!r} comes twice", where=file)
            items = (entry[3] or "") if entry[2] is None else entry[2]
            found[key] = [_bare(item) for item in items.split(",") if item.strip()]
        elif line.startswith("- ") and key:
            found[key].append(_bare(line[2:]))
        elif line and line != "---":
            raise MachineError(f"line {number}: {line[:60]!r} is no list", where=file, hint="write key: [ a, b ]")
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, with their numbers; those of a list that is not closed yet together."""
    began, open_list = 0, ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.split("#")[0].strip()
        if line == _END:
            break
        began = began if open_list else number
        open_list = f"{open_list} {line}".strip()
        if "[" not in open_list or "]" in open_list:
            yield began, open_list
            open_list = ""
    if open_list:
        yield began, open_list


def _bare(item: str) -> str:
    return item.strip().strip("\"'")


def _count(file: str, text: str) -> int:
    if not text.isdecimal() or len(text) > len(str(_MOST)) or not 0 < int(text) <= _MOST:
        raise _wrong(file, "npus_count", f"whole numbers from 1 to {_MOST}", text[:60])
    return int(text)


def _number(file: str, key: str, text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= most:
        raise _wrong(file, key, f"numbers from {least:g} to {most:g}", text[:60])
    return value


def _wrong(file: str, key: str, expected: str, got: object) -> MachineError:
    shown = "nothing" if got is None else repr(got)
    return MachineError(f"wrong {key!r}", where=file, sides={"expected": expected, "got": shown})
